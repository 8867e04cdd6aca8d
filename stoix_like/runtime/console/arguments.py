"""argparse for the small commands, with our one form of error instead of a usage dump."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from stoix_like.config.values import LARGEST_WHOLE, nearest
from stoix_like.errors import ConfigError

LARGEST_SEED = LARGEST_WHOLE


class ArgumentParser(argparse.ArgumentParser):
    """Full flags only; what is wrong is raised as ConfigError."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message + self._nearest(message), f"{self.prog} --help lists what it takes")

    def _nearest(self, message: str) -> str:
        """`; did you mean '--seed'?` where argparse names an argument that it does not know."""
        _, told, unknown = message.partition("unrecognized arguments: ")
        flags = [flag for flag in unknown.split() if flag.startswith("--")]
        if not (told and flags):
            return ""
        known = [flag.removeprefix("--") for flag in self._option_string_actions if flag.startswith("--")]
        return nearest(flags[0].partition("=")[0].removeprefix("--"), known).replace("mean '", "mean '--")


def positive_int(text: str) -> int:
    """A whole number in [1, 2147483647]; 1e3 is accepted."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if number < 1 or not number.is_integer():
        raise argparse.ArgumentTypeError(f"expected a positive whole number, got '{text}'")
    if number > LARGEST_WHOLE:
        raise argparse.ArgumentTypeError(f"expected at most {LARGEST_WHOLE}, got '{text}'")
    return int(number)


def checked_number(text: str, fits: Callable[[float], bool], expected: str) -> float:
    """The number a flag was given; `expected` says what fits."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not fits(number):
        raise argparse.ArgumentTypeError(f"expected {expected}, got '{text}'")
    return number


def above_zero(number: float) -> bool:
    """Whether it is a finite number above 0."""
    return 0.0 < number < float("inf")


def seed_number(text: str) -> int:
    """A seed: a whole number in [0, 2147483647]."""
    if not text.isdecimal() or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"expected a whole number in [0, {LARGEST_SEED}], got '{text}'")
    return int(text)


def output_file(text: str) -> Path:
    """A file to be written, in a folder that exists: said before anything is computed."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def add_run_argument(parser: ArgumentParser) -> None:
    """`run`, the same wherever a policy is read that was trained."""
    told = "run folder, its name under runs/, or latest; or a params.safetensors of export_policy.py, or its folder"
    parser.add_argument("run", help=told)


def add_runs_argument(parser: ArgumentParser, also: str = "") -> None:
    """`runs`, one or more, the same wherever runs are read."""
    parser.add_argument("runs", nargs="+", help=f"run folders, names under runs/, or latest{also}")


def add_json_flag(parser: ArgumentParser, what: str = "the result") -> None:
    """`--json`, the same wherever a command can write what it prints."""
    parser.add_argument("--json", type=output_file, help=f"write {what} to this file as well")


def add_checkpoint_flag(parser: ArgumentParser) -> None:
    """`--checkpoint`, the same wherever a saved run is read."""
    parser.add_argument(
        "--checkpoint",
        default="best",
        metavar="best|latest|N",
        help="best (highest evaluation so far), latest, or the number of an update (default: best)",
    )


def add_device_flag(parser: ArgumentParser) -> None:
    """`--device-type`, the same wherever something is computed."""
    kinds = ["auto", "cpu", "cuda", "gpu", "tpu"]
    parser.add_argument("--device-type", default="auto", choices=kinds, help="what computes (default: auto)")
