"""The command `play_text.py`: episodes of a language agent in the terminal, and token by token as an HTML page."""

from __future__ import annotations

from typing import Any

from stoix_like.config.sections.runs import EnvironmentConfig, HardwareConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import (
    ArgumentParser,
    add_checkpoint_flag,
    add_device_flag,
    output_file,
    positive_int,
    seed_number,
)
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.loading.documents import parse_leaf

_OUT = "HTML file (default: in the run folder, episodes.html, or episodes-TASK.html of another world)"


def main(argv: list[str]) -> int:
    """Plays the episodes, prints them and writes the page; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    kwargs = _kwargs(arguments.kwargs)
    devices.select(HardwareConfig(device_type=arguments.device_type))
    from stoix_like.runtime.evaluators.text_episodes import play_text
    from stoix_like.runtime.reports import text_page
    from stoix_like.runtime.runs.saved import load_run
    from stoix_like.runtime.storage.atomic import atomic_write_text

    saved = load_run(arguments.model, arguments.checkpoint)
    if not 0 <= arguments.index < saved.num_seeds:
        raise ConfigError(f"--index: the run has {saved.num_seeds} seed(s)", f"use 0 to {saved.num_seeds - 1}")
    environment = saved.config.environment
    world = world_of(environment, arguments.task_id, kwargs)
    task, is_own = world["task_id"], world == world_of(environment, None, {})
    episodes = play_text(saved, arguments.episodes, arguments.seed, arguments.index, world)
    print("\n".join(text_page.lines(episodes)))
    out = arguments.out or saved.folder / ("episodes.html" if is_own else f"episodes-{task}.html")
    atomic_write_text(out, text_page.text_page(f"{saved.path.name} on {task}", episodes))
    Reporter().info(f"page {out}")
    return 0


def world_of(own: EnvironmentConfig, task_id: str | None, kwargs: dict[str, Any]) -> dict[str, Any]:
    """{leaf: value} of the world that is asked for. Another world than the run's begins with its own defaults."""
    task = task_id or own.task_id
    return {"task_id": task, "kwargs": {**(own.kwargs if task == own.task_id else {}), **kwargs}}


def _kwargs(text: str | None) -> dict[str, Any]:
    """The arguments of the world. Raises ConfigError if the text is no mapping in YAML."""
    if text is None:
        return {}
    value, problem = parse_leaf(text, EnvironmentConfig, "kwargs")
    if problem:
        raise ConfigError(f"--kwargs: {problem}", "write YAML in one line, such as '{size: 6}'")
    return dict(value)


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("play-text"), "Shows episodes of a language agent, token by token.")
    parser.add_argument("--model", required=True, metavar="RUN", help="run of an agent or of pretraining: path or name")
    add_checkpoint_flag(parser)
    parser.add_argument("--task-id", help="another world than the run's, such as Sokoban-text-v0")
    parser.add_argument(
        "--kwargs",
        metavar="YAML",
        help="its arguments, such as '{size: 6}', beside the run's own; '{bank: null}' leaves the run's bank out",
    )
    parser.add_argument("--episodes", type=positive_int, default=4, help="levels of evaluation to play (default: 4)")
    parser.add_argument("--seed", type=seed_number, default=0, help="of the sampling (default: 0)")
    parser.add_argument("--index", type=int, default=0, help="index of the run's seed to play (default: 0, the first)")
    parser.add_argument("--out", type=output_file, help=_OUT)
    add_device_flag(parser)
    return parser
