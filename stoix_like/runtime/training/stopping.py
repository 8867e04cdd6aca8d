"""A run stops after the current chunk at the first Ctrl-C, SIGTERM or SIGHUP, and at once at the second.

A lost connection sends SIGHUP, often twice, so a second SIGHUP has no effect. Where SIGHUP is ignored, as under nohup,
the run continues.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from stoix_like.runtime.console import signals

STOPPING = "stopping after the current chunk or compilation; a second Ctrl-C stops at once, at the last checkpoint"


class Interrupted(Exception):
    """A stage, which the text names, was stopped by a signal. What it has finished is on disk."""


class StopRequest:
    """Whether the run shall stop: set by a signal."""

    def __init__(self) -> None:
        self.is_set = False
        self._number = itertools.count()  # of signals; next() is atomic, and two threads may receive one each

    def receive(self, number: int) -> bool:
        """Asks for a stop; returns whether the process shall leave at once, because that was asked for before."""
        is_first = next(self._number) == 0 and not self.is_set
        if not is_first and number != signal.SIGHUP:
            return True
        self.is_set = True
        if number == signal.SIGINT and is_first:
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # stderr is closed, or is being written
                begin = "\n" if sys.stderr.isatty() else ""  # the current line shows ^C, or `compiling …`
                print(f"{begin}{STOPPING}", file=sys.stderr, flush=True)
        return False


@contextlib.contextmanager
def stopping_on_signals(request: StopRequest | None = None) -> Iterator[StopRequest]:
    """A StopRequest that the three signals set inside the block: that of an enclosing block, if it is given. Outside
    the main thread signals are left alone.
    """
    request = request or StopRequest()
    with signals.receiving(request.receive):
        yield request


def showing_next_command(
    close_view: Callable[[], None], last_checkpoint: Callable[[], Path | None], commands: Sequence[str]
) -> AbstractContextManager[None]:
    """If a signal ends the process in the block, the last checkpoint is named, and then the next commands."""

    def lines() -> list[str]:
        close_view()
        if (path := last_checkpoint()) is None:
            return []
        return [f"the last checkpoint is of update {int(path.name):,}", *(f"next: {command}" for command in commands)]

    return signals.closing_lines(lines)
