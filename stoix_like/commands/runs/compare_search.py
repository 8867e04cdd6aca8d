"""The command `compare_search.py`: compares searches of saved runs at equal numbers of model steps."""

from __future__ import annotations

import argparse

from stoix_like.config.checks.values import nearest
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.runtime.console.arguments import (
    ArgumentParser,
    above_zero,
    add_checkpoint_flag,
    add_device_flag,
    add_json_flag,
    add_runs_argument,
    checked_number,
    output_file,
    positive_int,
    seed_number,
)
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.figures.style import check_format
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.runs.find import find_saved
from stoix_like.runtime.searches.compare import compare, plot_comparison
from stoix_like.runtime.searches.settings import DEFAULT_LEVELS, DEFAULT_NUM_ENVS, LEARNED, METHODS, ComparisonSettings
from stoix_like.runtime.storage.atomic import write_output_json


def main(argv: list[str]) -> int:
    """Plays the methods, and prints and writes the results; returns the exit code."""
    arguments, settings = parse(argv)
    if arguments.plot:
        check_format(arguments.plot)
    paths = list({path.resolve(): path for path in map(find_saved, arguments.runs)}.values())
    devices.select(HardwareConfig(device_type=arguments.device_type))
    reporter = Reporter()
    result = compare(paths, arguments.checkpoint, arguments.levels, settings, reporter)
    if arguments.json:
        write_output_json(arguments.json, result)
    if arguments.plot:
        reporter.info(f"figure {plot_comparison(result, arguments.plot)}")
    return 0


def parse(argv: list[str]) -> tuple[argparse.Namespace, ComparisonSettings]:
    """(all arguments, those of them that are settings of the comparison)."""
    arguments = make_parser().parse_args(argv)
    return arguments, ComparisonSettings(*(getattr(arguments, name) for name in ComparisonSettings._fields))


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("compare-search"), "Compares searches of saved runs at equal numbers of model steps.")
    defaults = ComparisonSettings()
    add_runs_argument(parser, ", or files params.safetensors")
    add_checkpoint_flag(parser)
    help_text = f"frozen levels, such as binpack-2048 (default: {DEFAULT_LEVELS} of the task)"
    parser.add_argument("--level-set", dest="levels", metavar="LEVELS", help=help_text)
    described = "; ".join(f"{name}: {description}" for name, description in METHODS.items())
    help_text = f"some of {','.join(METHODS)}; greedy is always played, as the baseline of gains (default: all)."
    parser.add_argument("--methods", type=_methods, default=defaults.methods, help=f"{help_text} {described}")
    budgets = ",".join(map(str, defaults.budgets))
    help_text = (
        "model steps per decision, in the mean over an episode; they limit the particles of a search, at least 1"
        f" (default: {budgets})"
    )
    parser.add_argument("--budgets", type=_budgets, default=defaults.budgets, help=help_text)
    help_text = (
        f"of smc, reward units; {LEARNED}: the one that an SPO run has learned (default: {defaults.temperature})"
    )
    parser.add_argument(
        "--temperature", type=_temperature, default=defaults.temperature, metavar=f"T|{LEARNED}", help=help_text
    )
    help_text = f"levels played at a time (default: {DEFAULT_NUM_ENVS}, fewer if there are many particles)"
    parser.add_argument("--num-envs", type=positive_int, help=help_text)
    parser.add_argument("--seed", type=seed_number, default=defaults.seed, help="of sampling")
    add_json_flag(parser)
    parser.add_argument("--plot", type=output_file, help="draw mean returns over model steps: .png, .pdf or .svg")
    add_device_flag(parser)
    return parser


def _methods(text: str) -> tuple[str, ...]:
    given = text.split(",")
    for name in given:
        if name not in METHODS:
            known = ",".join(METHODS)
            raise argparse.ArgumentTypeError(f"expected some of {known}, got '{name}'{nearest(name, METHODS)}")
    return tuple(name for name in METHODS if name in given)


def _budgets(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive_int(number) for number in text.split(",")}))


def _temperature(text: str) -> float | None:
    if text == LEARNED:
        return None
    return checked_number(text, above_zero, f"a number above 0, or {LEARNED}")
