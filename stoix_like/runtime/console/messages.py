"""Log messages on stderr: ours from `logging.log_level` on, those of libraries only from WARNING on.

`commands/entry.py` prints the errors that a user can correct; they are not logged. Notebooks and programs of users
configure logging themselves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # signals are handled once the entry is imported, and the configuration takes half of that time
    from stoix_like.config.sections.runs import LoggingConfig

_OURS = "stoix_like"
#: These log what no user can change. If a write fails, orbax raises the first error, which we report. It also logs it
#: through absl, and asyncio logs the errors of the other arrays when they are garbage collected.
_CHATTY = {"absl": logging.CRITICAL, "asyncio": logging.CRITICAL, "jax._src.xla_bridge": logging.ERROR}
HEARTBEAT_SECONDS = 10.0
_QUIET_SECONDS = 2.0


class _Process:
    is_cli = False


class _StderrHandler(logging.Handler):
    """Writes to the current `sys.stderr`: a live view replaces it while it is open."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # a closed pipe ends the messages, not the training
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignores the failure: stderr cannot be written."""


def mark_cli() -> None:
    """Marks this process as a command of ours: `configure_logging` may then configure the root logger."""
    _Process.is_cli = True


def is_cli() -> bool:
    """Whether this process is a command of ours, not a notebook or a user's program."""
    return _Process.is_cli


def configure_logging(config: LoggingConfig) -> None:
    """Sets the level of our loggers; in a command of ours also the handler and the levels of libraries.

    With `backend_logs_visible`, libraries log at our level.
    """
    level = config.log_level.upper()
    logging.getLogger(_OURS).setLevel(level)
    if not is_cli():
        return
    root = logging.getLogger()
    if not any(isinstance(handler, _StderrHandler) for handler in root.handlers):
        for other in [handler for handler in root.handlers if type(handler) is logging.StreamHandler]:
            root.removeHandler(other)  # a library's logging.warning added one, and each message would be printed twice
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
    """Hides the errors that tensorstore prints for each array after a failed write.

    By then orbax has closed the event loop that tensorstore reports to.
    """
    before = sys.unraisablehook
    if getattr(before, "leaves_out_tensorstore", False):
        return

    def report(unraisable: Any) -> None:
        if unraisable.exc_type is not RuntimeError or str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    report.leaves_out_tensorstore = True  # type: ignore[attr-defined]
    sys.unraisablehook = report


def print_to_stderr(text: str) -> None:
    """Prints a line to stderr, so that stdout contains only the output of the command."""
    print(text, file=sys.stderr, flush=True)


class Heartbeat:
    """Reports at most every few seconds that a long task is still running.

    Args:
        report: receives the line.
        seconds: least time between two lines, and before the first.
    """

    def __init__(self, report: Callable[[str], None], seconds: float = HEARTBEAT_SECONDS) -> None:
        self._report, self._seconds = report, seconds
        self._last = time.monotonic()

    def __call__(self, text: str) -> None:
        """Reports the text if enough time has passed since the last line."""
        if time.monotonic() - self._last > self._seconds:
            self._last = time.monotonic()
            self._report(text)


@contextlib.contextmanager
def reported_if_slow(text: str, report: Callable[[str], None], seconds: float = _QUIET_SECONDS) -> Iterator[None]:
    """Reports what a block is doing if it takes longer than so many seconds, once and from another thread."""
    timer = threading.Timer(seconds, report, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
