"""The command `animate.py`: one episode of a saved run as a GIF."""

from __future__ import annotations

from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import (
    ArgumentParser,
    add_checkpoint_flag,
    add_device_flag,
    add_run_argument,
    output_file,
    positive_int,
    seed_number,
)
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.evaluators.policies import select_policy
from stoix_like.runtime.evaluators.record import MOST_STEPS, board_states, record_episode
from stoix_like.runtime.evaluators.search_flags import add_search_flags, search_choice
from stoix_like.runtime.hardware import devices


def main(argv: list[str]) -> int:
    """Plays an episode, writes the GIF and prints its path; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    choice = search_choice(arguments)
    devices.select(HardwareConfig(device_type=arguments.device_type))
    import jax

    from stoix_like.runtime.figures.gif import save_gif
    from stoix_like.runtime.runs import saved as saved_run

    saved = saved_run.load_run(arguments.run, arguments.checkpoint)
    if not 0 <= arguments.index < saved.num_seeds:
        raise ConfigError(f"--index: the run has {saved.num_seeds} seed(s)", f"use 0 to {saved.num_seeds - 1}")
    saved.require_policy("animate")
    params, key = saved.seed_params(arguments.index), jax.random.key(arguments.seed)
    is_deterministic = not arguments.sampled
    chosen = select_policy(saved, choice, arguments.network, is_deterministic)
    episode = record_episode(
        saved.env, chosen.policy, params, key, deterministic=is_deterministic, most_steps=arguments.max_steps
    )
    out = arguments.out or saved.folder / "episode.gif"
    states = board_states(saved.env, episode) if saved.env.game is not None else episode.states
    path = save_gif(saved.env, states, out)
    num_steps = len(episode.states) - 1
    length = f"episode of {num_steps} steps" if episode.is_whole else f"first {num_steps} steps of an episode"
    reporter = Reporter()
    for note in chosen.notes:
        reporter.note(note)
    sees = f", which sees {chosen.hidden_state}" if chosen.hidden_state is not None else ""
    reporter.info(f"{length}, {chosen.name}{sees}, return {episode.episode_return:.4f}")
    reporter.info(f"animation {path}")
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("animate"), "Draws one episode of a run as a GIF.")
    add_run_argument(parser)
    add_checkpoint_flag(parser)
    parser.add_argument("--seed", type=seed_number, default=0, help="chooses the level (default: 0)")
    parser.add_argument("--index", type=int, default=0, help="index of the run's seed to play (default: 0, the first)")
    parser.add_argument(
        "--max-steps",
        type=positive_int,
        default=MOST_STEPS,
        metavar="N",
        help=f"largest number of steps to draw (default: {MOST_STEPS})",
    )
    parser.add_argument("--sampled", action="store_true", help="sample actions instead of taking the most probable")
    parser.add_argument("--out", type=output_file, help="GIF file (default: episode.gif in the folder)")
    add_search_flags(parser)
    add_device_flag(parser)
    return parser
