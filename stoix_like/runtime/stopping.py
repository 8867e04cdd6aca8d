"""Ctrl-C and SIGTERM: the first one asks the run to end at the next chunk, a second one ends the program at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class StopRequest:
    """Whether a signal has asked the run to end."""

    def __init__(self) -> None:
        self.is_set = False

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[StopRequest]:
    """A StopRequest that SIGINT and SIGTERM set while the block runs. Outside the main thread nothing is installed."""
    request = StopRequest()
    previous = {}
    # signal.signal raises ValueError outside the main thread: signals then belong to whoever runs it
    with contextlib.suppress(ValueError):
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, request._receive)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
