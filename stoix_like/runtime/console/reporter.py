"""The one channel for what a command tells its user while it works. Whoever runs the work decides where it goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stoix_like.runtime.console.messages import print_to_stderr


def _print(line: str) -> None:
    print(line, flush=True)


class Reporter(NamedTuple):
    """Four functions that receive one line each. By default they print it.

    Attributes:
        info: a line of the result, to stdout.
        note: information that needs no action, to stdout after `note: `.
        warning: what went wrong without ending the command, to stderr after `warning: `.
        progress: how far the work is, to stderr.
    """

    info: Callable[[str], None] = _print
    note: Callable[[str], None] = lambda line: _print(f"note: {line}")
    warning: Callable[[str], None] = lambda line: print_to_stderr(f"warning: {line}")
    progress: Callable[[str], None] = print_to_stderr


SILENT = Reporter(*[lambda _line: None] * 4)
