"""Ctrl-C, SIGTERM and SIGHUP ask the run to end when the device is done next; a second one ends it at once.

SIGHUP is what a lost connection sends, often twice. Where it is ignored, as under nohup, the run goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from stoix_like.errors import INTERRUPTED

STOPPING = "stopping when what runs or compiles is done; a second Ctrl-C ends at once, at the last checkpoint"


def interrupt(_number: int, frame: FrameType | None) -> None:
    """Ctrl-C as usual, except where Python cannot pass it on: there the program ends at once.

    A KeyboardInterrupt inside the import of an extension ends in a crash or another error, and one inside JAX's
    garbage-collection callback is lost. What is written is written whole, so it can be left at any moment.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name == "_xla_gc_callback":
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


class StopRequest:
    """Whether a signal has asked the run to end."""

    def __init__(self) -> None:
        self.is_set = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.is_set and number != signal.SIGHUP:
            interrupt(number, frame)
        is_first, self.is_set = not self.is_set, True
        if number == signal.SIGINT and is_first:
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # closed, or in the middle of writing
                begin = "\n" if sys.stderr.isatty() else ""  # below what is on the line: ^C, or `compiling …`
                print(f"{begin}{STOPPING}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def stopping_on_signals(outer: StopRequest | None = None) -> Iterator[StopRequest]:
    """A StopRequest that the three signals set while the block runs. Outside the main thread nothing is installed.

    Args:
        outer: that of a block around this one. What has asked that one to end before asks this one, too.
    """
    request = StopRequest()
    request.is_set = outer is not None and outer.is_set
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
