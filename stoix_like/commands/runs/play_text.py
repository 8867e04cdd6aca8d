"""The command `play_text.py`: episodes of a language agent in the terminal, and token by token as an HTML page."""

from __future__ import annotations

import json

from stoix_like.config.sections.runs import HardwareConfig
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


def main(argv: list[str]) -> int:
    """Plays the episodes, prints them and writes the page; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    world = _world(arguments.task_id, arguments.kwargs)
    devices.select(HardwareConfig(device_type=arguments.device_type))
    from stoix_like.runtime.evaluators.text_episodes import play_text
    from stoix_like.runtime.reports import text_page
    from stoix_like.runtime.runs.saved import load_run
    from stoix_like.runtime.storage.atomic import atomic_write_text

    saved = load_run(arguments.model, arguments.checkpoint)
    if not 0 <= arguments.index < saved.num_seeds:
        raise ConfigError(f"--index: the run has {saved.num_seeds} seed(s)", f"use 0 to {saved.num_seeds - 1}")
    episodes = play_text(saved, arguments.episodes, arguments.seed, arguments.index, world)
    print("\n".join(text_page.lines(episodes)))
    task = world.get("task_id", saved.meta.task_id)
    out = arguments.out or saved.folder / "episodes.html"
    atomic_write_text(out, text_page.text_page(f"{saved.path.name} on {task}", episodes))
    Reporter().info(f"page {out}")
    return 0


def _world(task_id: str | None, kwargs: str | None) -> dict[str, object]:
    """{leaf: value} of the world that is asked for. Raises ConfigError if the arguments are no JSON object."""
    world: dict[str, object] = {} if task_id is None else {"task_id": task_id, "kwargs": {}}
    if kwargs is not None:
        try:
            world["kwargs"] = json.loads(kwargs)
        except json.JSONDecodeError as error:
            raise ConfigError(f"--kwargs: {error}", """write JSON, such as '{"size": 6}'""") from error
        if not isinstance(world["kwargs"], dict):
            raise ConfigError("--kwargs: it is no JSON object", """write JSON, such as '{"size": 6}'""")
    return world


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("play-text"), "Shows episodes of a language agent, token by token.")
    parser.add_argument("--model", required=True, metavar="RUN", help="run of an agent or of pretraining: path or name")
    add_checkpoint_flag(parser)
    parser.add_argument("--task-id", help="another world than the run's, such as Sokoban-text-v0")
    parser.add_argument("--kwargs", metavar="JSON", help="""its arguments, such as '{"size": 6}'""")
    parser.add_argument("--episodes", type=positive_int, default=4, help="levels of evaluation to play (default: 4)")
    parser.add_argument("--seed", type=seed_number, default=0, help="of the sampling (default: 0)")
    parser.add_argument("--index", type=int, default=0, help="index of the run's seed to play (default: 0, the first)")
    parser.add_argument("--out", type=output_file, help="HTML file (default: episodes.html in the run folder)")
    add_device_flag(parser)
    return parser
