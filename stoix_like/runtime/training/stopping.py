"""Ctrl-C, SIGTERM and SIGHUP stop the run after the current chunk; a second signal stops it at once.

A lost connection sends SIGHUP, often twice, so a second SIGHUP has no effect. Where SIGHUP is ignored, as under nohup,
the run continues.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from stoix_like.errors import INTERRUPTED

STOPPING = "stopping after the current chunk or compilation; a second Ctrl-C stops at once, at the last checkpoint"


def interrupt(_number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, except where Python cannot pass it on: there the process exits at once.

    A KeyboardInterrupt during the import of an extension causes a crash or another error, and one inside JAX's
    garbage-collection callback is lost. Files are written atomically, so the process may exit at any time.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name == "_xla_gc_callback":
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


class StopRequest:
    """Whether the run shall stop: set by a signal."""

    def __init__(self) -> None:
        self.is_set = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.is_set and number != signal.SIGHUP:
            interrupt(number, frame)
        is_first, self.is_set = not self.is_set, True
        if number == signal.SIGINT and is_first:
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # stderr is closed, or is being written
                begin = "\n" if sys.stderr.isatty() else ""  # the current line shows ^C, or `compiling …`
                print(f"{begin}{STOPPING}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def stopping_on_signals(request: StopRequest | None = None) -> Iterator[StopRequest]:
    """A StopRequest that the three signals set inside the block: that of an enclosing block, if it is given. Outside
    the main thread no handler is installed.
    """
    request = request or StopRequest()
    previous = {}
    # signal.signal raises ValueError outside the main thread
    with contextlib.suppress(ValueError):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                previous[number] = signal.signal(number, request._receive)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
