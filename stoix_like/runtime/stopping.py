"""Ctrl-C, SIGTERM and SIGHUP ask the run to end at the next chunk; a second Ctrl-C or SIGTERM ends it at once.

SIGHUP is what a lost connection sends, often twice. Where it is ignored, as under nohup, the run goes on.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType


class StopRequest:
    """Whether a signal has asked the run to end."""

    def __init__(self) -> None:
        self.is_set = False

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.is_set and number != signal.SIGHUP:
            raise KeyboardInterrupt
        if number == signal.SIGINT and not self.is_set:
            with contextlib.suppress(OSError, RuntimeError):  # closed, or in the middle of writing
                print("stopping after this chunk; a second Ctrl-C ends at once", file=sys.stderr, flush=True)
        self.is_set = True


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[StopRequest]:
    """A StopRequest that the three signals set while the block runs. Outside the main thread nothing is installed."""
    request = StopRequest()
    previous = {}
    # signal.signal raises ValueError outside the main thread: signals then belong to whoever runs it
    with contextlib.suppress(ValueError):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                previous[number] = signal.signal(number, request._receive)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
