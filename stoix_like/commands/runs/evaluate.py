"""The command `evaluate.py`: scores the policy of a saved run, with or without search."""

from __future__ import annotations

from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import (
    LARGEST_SEED,
    ArgumentParser,
    add_checkpoint_flag,
    add_device_flag,
    add_json_flag,
    add_run_argument,
    positive_int,
    seed_number,
)
from stoix_like.runtime.console.messages import print_to_stderr
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.evaluators.saved_run import EvaluationSettings, evaluate_run, table_text
from stoix_like.runtime.evaluators.search_flags import add_search_flags, search_choice
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.storage.atomic import write_output_json


def main(argv: list[str]) -> int:
    """Evaluates the run, and prints and writes the scores; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    if arguments.level_set and arguments.num_episodes:
        raise ConfigError("--num-episodes: a level set has its own number of levels", "leave out one of the two")
    devices.select(HardwareConfig(device_type=arguments.device_type))
    settings = EvaluationSettings(
        num_episodes=arguments.num_episodes or EvaluationSettings().num_episodes,
        num_envs=arguments.num_envs,
        level_set=arguments.level_set,
        deterministic=not arguments.sampled,
        seed=arguments.seed,
        search=search_choice(arguments),
        network=arguments.network,
    )
    reporter = Reporter(note=lambda line: print_to_stderr(f"note: {line}"))  # stdout holds only the result
    result = evaluate_run(arguments.run, arguments.checkpoint, settings, reporter)
    print(table_text(result))
    if arguments.json:
        write_output_json(arguments.json, result)
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("evaluate"), "Scores the policy of a run.")
    add_run_argument(parser)
    add_checkpoint_flag(parser)
    parser.add_argument("--num-episodes", type=positive_int, help="fresh episodes per seed (default: 1024)")
    rounds = "episodes played at a time (default: equal rounds of at most 256)"
    parser.add_argument("--num-envs", type=positive_int, help=rounds)
    parser.add_argument("--level-set", help="frozen levels instead of fresh ones, such as binpack-2048")
    parser.add_argument("--sampled", action="store_true", help="sample actions instead of taking the most probable")
    parser.add_argument(
        "--seed",
        type=seed_number,
        default=LARGEST_SEED,
        help="of fresh levels and of sampling (default: 2147483647, which no preset trains with)",
    )
    add_json_flag(parser)
    add_search_flags(parser)
    add_device_flag(parser)
    return parser
