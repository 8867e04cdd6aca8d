"""Log messages on stderr: ours from `logging.log_level` on, those of the libraries only where they warn.

Errors that a user can mend are no messages: `commands/entry.py` prints them. A notebook sets up its logging itself.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from stoix_like.config.sections import LoggingConfig

_OURS = "stoix_like"
#: They warn of what no user can change. Of a write that failed orbax raises the first error, which we tell; it logs it
#: by absl, too, and asyncio logs those of the other arrays when they are collected as garbage.
_CHATTY = {"absl": logging.CRITICAL, "asyncio": logging.CRITICAL, "jax._src.xla_bridge": logging.ERROR}


HEARTBEAT_SECONDS = 10.0


class _Ownership:
    is_ours = False


_OWNERSHIP = _Ownership()


class _StderrHandler(logging.Handler):
    """To whatever `sys.stderr` is at the time: a live view puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # a reader that went away ends the messages and never the training
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing can be said where saying it failed."""


def mark_cli() -> None:
    """Says that this process is a command of ours: `configure` may then set up logging as a whole."""
    _OWNERSHIP.is_ours = True


def is_cli() -> bool:
    """Whether this process is a command of ours, and no notebook or program of a user."""
    return _OWNERSHIP.is_ours


def configure_logging(config: LoggingConfig) -> None:
    """Our level; in a command of ours also one handler and the libraries' levels, else they are the caller's.

    With `backend_logs_visible`, libraries log at our level, too.
    """
    level = config.log_level.upper()
    logging.getLogger(_OURS).setLevel(level)
    if not _OWNERSHIP.is_ours:
        return
    root = logging.getLogger()
    if not any(isinstance(handler, _StderrHandler) for handler in root.handlers):
        for other in [handler for handler in root.handlers if type(handler) is logging.StreamHandler]:
            root.removeHandler(other)  # a library called logging.warning, which adds one: each message would come twice
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)
    root.setLevel(level if config.backend_logs_visible else max(logging.WARNING, logging.getLevelName(level)))
    for name, quiet in _CHATTY.items():
        logging.getLogger(name).setLevel(logging.NOTSET if config.backend_logs_visible else quiet)
    _quiet_tensorstore()
    if not config.backend_logs_visible:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def _quiet_tensorstore() -> None:
    """Leaves out what it prints, once per array, after a write that failed: orbax has closed the event loop that it
    would tell.
    """
    before = sys.unraisablehook
    if getattr(before, "leaves_out_tensorstore", False):
        return

    def tell(what: Any) -> None:
        if what.exc_type is not RuntimeError or str(what.exc_value) != "Event loop is closed":
            before(what)

    tell.leaves_out_tensorstore = True  # type: ignore[attr-defined]
    sys.unraisablehook = tell


def print_to_stderr(text: str) -> None:
    """A line beside what a command prints, so that a pipe gets that alone."""
    print(text, file=sys.stderr, flush=True)


class Heartbeat:
    """Reports at most every few seconds that something long is still running.

    Args:
        say: receives the line.
        seconds: between two lines, and before the first.
    """

    def __init__(self, say: Callable[[str], None], seconds: float = HEARTBEAT_SECONDS) -> None:
        self._say, self._seconds = say, seconds
        self._last = time.monotonic()

    def __call__(self, text: str) -> None:
        """Reports the text if the last line is long enough ago."""
        if time.monotonic() - self._last > self._seconds:
            self._last = time.monotonic()
            self._say(text)
