"""The command `bench.py`: runs suites, prints a table, and writes JSON."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoix_like.bench.timing.measure import machine_row, row_text
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.runtime.console.arguments import (
    ArgumentParser,
    above_zero,
    add_device_flag,
    add_json_flag,
    checked_number,
    positive_int,
    seed_number,
)
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.storage.atomic import write_output_json

if TYPE_CHECKING:
    from stoix_like.bench.alphazero.learning import LearningOptions

IN_ALL = (
    *("env", "scale", "overhead", "ppo", "spo", "alphazero", "promotion", "loops", "compile", "memory", "baselines"),
    *("parity", "ringrift"),
)
BY_NAME = (
    *("learning", "learning_maze", "learning_v0", "learning_text", "learning_curves", "ablation", "loop_soak"),
    *("search", "search_maze"),
    *("scale_ppo", "scale_spo", "launches", "gpu", "agent_speed", "agent_learning", "spa"),
)
WITH_OPTIONS = ("alphazero_learning", "selfplay_learning", "master_learning", "ringrift_learning")
LEARNED_GAMES = ("tic_tac_toe", "connect_four", "othello")
RINGRIFT = ("hex8", "square8", "square8:4")


def main(argv: list[str]) -> int:
    """Runs the suites, and prints and writes their rows; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    # suites start programs that need a part of the GPU's memory; by default the first process takes three quarters
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = devices.select(HardwareConfig(device_type=arguments.device_type), compile_cache=False)
    warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)  # from Jumanji's step
    from stoix_like.bench import suites

    rows = [machine_row(devices.describe_devices(found))]
    print(row_text(rows[0]), flush=True)
    every = [name for name in suites.SUITES if name not in suites.NOT_IN_ALL]
    for name in every if arguments.suite == "all" else [arguments.suite]:
        with_options = suites.WITH_OPTIONS.get(name)
        for row in with_options(_options(arguments)) if with_options else suites.SUITES[name]():
            print(row_text(row), flush=True)
            rows.append(row)
            if arguments.json:  # written after every row, because a suite takes hours and may be interrupted
                write_output_json(arguments.json, [row._asdict() for row in rows])
    return 0


def _options(arguments: argparse.Namespace) -> LearningOptions:
    from stoix_like.bench.alphazero.learning import LearningOptions

    given = arguments.games, arguments.minutes, arguments.seeds, arguments.observation_adapter, arguments.openings
    return LearningOptions(*given)


def _list_of(convert: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Reads `a,b,c`."""
    return lambda text: tuple(convert(part.strip()) for part in text.split(","))


def _learned_game(text: str) -> str:
    if text not in LEARNED_GAMES + RINGRIFT:
        raise argparse.ArgumentTypeError(f"expected games of {', '.join(LEARNED_GAMES + RINGRIFT)}, got '{text}'")
    return text


def _minutes(text: str) -> float:
    return checked_number(text, above_zero, "a number of minutes above 0")


def _add_learning_flags(parser: ArgumentParser) -> None:
    """Adds what alphazero_learning is told."""
    group = parser.add_argument_group(
        "alphazero_learning; of selfplay_learning minutes and seeds; of master_learning games, minutes and seeds;"
        " of ringrift_learning games, minutes, seeds and openings"
    )
    games = ",".join(LEARNED_GAMES)
    group.add_argument(
        "--games",
        type=_list_of(_learned_game),
        default=LEARNED_GAMES,
        metavar="A,B,…",
        help=f"games to train (default: {games}; of ringrift_learning hex8)",
    )
    help_text = "minutes of training of each seed, but of tic-tac-toe (default: 30)"
    group.add_argument("--minutes", type=_minutes, default=30.0, metavar="M", help=help_text)
    help_text = "seeds to train, a run each (default: 0,1,2)"
    group.add_argument("--seeds", type=_list_of(seed_number), default=(0, 1, 2), metavar="N,N,…", help=help_text)
    help_text = "network family instead of the preset's, which knows the lines that win (default: the preset's)"
    group.add_argument("--observation-adapter", choices=["board", "lines"], help=help_text)
    help_text = "most openings of a match (default: 568, all there are of connect four)"
    group.add_argument("--openings", type=positive_int, default=568, metavar="N", help=help_text)


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(
        prog("bench"), "Measures what docs/benchmarks.md claims, in this process and on this machine."
    )
    help_text = (
        "suite to run; all is everything but *learning*, ablation, search* and loop_soak, which take long, scale_ppo"
        " and scale_spo, which are parts of scale, agent_speed and spa, which train first, and launches and gpu,"
        " which are for a GPU; gpu takes at most nine minutes for what is worth most of all, and names what it leaves"
        " out (default: all)"
    )
    parser.add_argument("--suite", choices=(*IN_ALL, *BY_NAME, *WITH_OPTIONS, "all"), default="all", help=help_text)
    _add_learning_flags(parser)
    add_json_flag(parser, "the rows")
    add_device_flag(parser)
    return parser
