"""argparse for the commands: parsing errors are raised as ConfigError, and the flags that several commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from stoix_like.config.checks.values import LARGEST_WHOLE, nearest
from stoix_like.errors import ConfigError

LARGEST_SEED = LARGEST_WHOLE


class ArgumentParser(argparse.ArgumentParser):
    """An argparse parser that accepts no abbreviated flags and raises ConfigError."""

    def __init__(self, prog: str, description: str, *, add_help: bool = True) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, add_help=add_help)
        if add_help:
            self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message + self._nearest(message), f"{self.prog} --help lists its arguments")

    def _nearest(self, message: str) -> str:
        """`; did you mean '--seed'?` if argparse reports an unknown flag; else an empty text."""
        unknown = message.partition("unrecognized arguments: ")[2]
        flags = [flag for flag in unknown.split() if flag.startswith("--")]
        if not flags:
            return ""
        known = [flag.removeprefix("--") for flag in self._option_string_actions if flag.startswith("--")]
        return nearest(flags[0].partition("=")[0].removeprefix("--"), known).replace("mean '", "mean '--")


def positive_int(text: str) -> int:
    """A whole number in [1, 2147483647]; 1e3 is accepted."""
    checked_number(text, lambda number: number >= 1 and number.is_integer(), "a positive whole number")
    return int(checked_number(text, lambda number: number <= LARGEST_WHOLE, f"at most {LARGEST_WHOLE}"))


def checked_number(text: str, fits: Callable[[float], bool], expected: str) -> float:
    """The number in `text`. argparse reports that it expected `expected` if `fits` is False."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not fits(number):
        raise argparse.ArgumentTypeError(f"expected {expected}, got '{text}'")
    return number


def above_zero(number: float) -> bool:
    """Whether the number is finite and above 0."""
    return 0.0 < number < float("inf")


def seed_number(text: str) -> int:
    """A seed: a whole number in [0, 2147483647]."""
    if not text.isdecimal() or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"expected a whole number in [0, {LARGEST_SEED}], got '{text}'")
    return int(text)


def output_file(text: str) -> Path:
    """The path of a file to write. Its folder must exist and be writable, which is reported before anything runs."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"the folder {path.parent} is not writable")
    return path


def add_run_argument(parser: ArgumentParser) -> None:
    """Adds `run`, the run or the exported parameters that a command reads."""
    help_text = "run folder, its name under runs/, or latest; or an exported params.safetensors, or its folder"
    parser.add_argument("run", help=help_text)


def add_runs_argument(parser: ArgumentParser, also: str = "", *, nargs: str = "+") -> None:
    """Adds `runs`, one or more runs that a command reads; `also` names further values in the help text."""
    parser.add_argument("runs", nargs=nargs, help=f"run folders, names under runs/, or latest{also}")


def add_json_flag(parser: ArgumentParser, what: str = "the result") -> None:
    """Adds `--json`, the file to which a command also writes what it prints."""
    parser.add_argument("--json", type=output_file, help=f"write {what} to this file as well")


def add_checkpoint_flag(parser: ArgumentParser) -> None:
    """Adds `--checkpoint`, the checkpoint of a run that a command reads."""
    parser.add_argument(
        "--checkpoint",
        default="best",
        metavar="best|latest|N",
        help="best (highest evaluation so far), latest, or the number of an update (default: best)",
    )


def add_device_flag(parser: ArgumentParser) -> None:
    """Adds `--device-type`."""
    kinds = ["auto", "cpu", "cuda", "gpu", "tpu"]
    parser.add_argument("--device-type", default="auto", choices=kinds, help="device to run on (default: auto)")
