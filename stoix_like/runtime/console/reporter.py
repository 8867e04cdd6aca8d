"""The one channel for what a command tells its user while it works. Whoever runs the work decides where it goes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from stoix_like.runtime.console.messages import print_to_stderr


def _print(line: str) -> None:
    print(line, flush=True)


class Reporter(NamedTuple):
    """Four functions that receive one line each. By default they print it."""

    info: Callable[[str], None] = _print  # a line of the result, to stdout
    note: Callable[[str], None] = lambda line: _print(f"note: {line}")  # needs no action, to stdout
    warning: Callable[[str], None] = lambda line: print_to_stderr(f"warning: {line}")  # did not end the command
    progress: Callable[[str], None] = print_to_stderr  # how far the work is


def lossy(reporter: Reporter) -> Reporter:
    """A reporter whose lines are lost where they cannot be printed: on a full disk, to a terminal that is gone."""

    def guarded(show: Callable[[str], None]) -> Callable[[str], None]:
        def call(line: str) -> None:
            with contextlib.suppress(OSError):
                show(line)

        return call

    return Reporter(*map(guarded, reporter))


SILENT = Reporter(*[lambda _line: None] * 4)
