"""Passes reports and spans from a run to its sinks.

The JSONL file is written first, and a failure to write it ends the run. Any other sink that raises is dropped with one
warning, and training continues. Sinks are called in order on the caller's thread. A sink that may wait for a network or
a foreign library is wrapped in a `QueuedSink`, which has its own thread.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from stoix_like.errors import StoixError, StorageError
from stoix_like.runtime.storage.os_errors import hint_of, words_of
from stoix_like.runtime.telemetry.queued_sink import QueuedSink
from stoix_like.runtime.telemetry.sink import Report, RunMeta, Sink, Span

OPEN_SECONDS = 3.0  # the run waits for all async sinks together to open
CLOSE_SECONDS = 10.0  # ... and at its end, to write what is queued
ABANDON_SECONDS = 1.0  # ... and to close if the run does not start
_AnySink = TypeVar("_AnySink", bound=Sink)


class TelemetryHub:
    """A sink that passes everything to several sinks.

    Missing extras and unknown MLflow runs are reported before training starts: `open` raises a StoixError of any sink.
    An async sink that has not opened within `OPEN_SECONDS`, or its own `answer_seconds`, continues to open while the
    run starts.
    """

    def __init__(self, log: Sink, sinks: Sequence[Sink] = (), async_sinks: Sequence[QueuedSink] = ()) -> None:
        self._log = log
        self._sinks: list[Sink] = list(sinks)
        self._async_sinks: list[QueuedSink] = list(async_sinks)
        self._run_dir = Path()
        self._is_abandoned = False  # the run does not start, so that no warning is of use

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Opens metrics.jsonl, then the other sinks. If a sink raises a StoixError, all are closed again."""
        self._run_dir = run_dir
        with _disk_errors(run_dir):
            self._log.open(run_dir, meta)
        try:
            self._each(self._async_sinks, lambda sink: sink.open(run_dir, meta), propagate=StoixError)
            self._each(self._sinks, lambda sink: sink.open(run_dir, meta), propagate=StoixError)
            deadline = time.monotonic() + OPEN_SECONDS
            self._each(self._async_sinks, lambda sink: sink.wait_until_open(deadline), propagate=StoixError)
        except StoixError:
            self._is_abandoned = True
            self.close()
            self._sinks, self._async_sinks = [], []
            raise

    def write(self, reports: Sequence[Report]) -> None:
        """Passes the reports of one moment to every sink. Raises StorageError if metrics.jsonl cannot be written."""
        with _disk_errors(self._run_dir):
            self._log.write(reports)
        self._each(self._sinks, lambda sink: sink.write(reports))
        self._each(self._async_sinks, lambda sink: sink.write(reports))

    def trace(self, spans: Sequence[Span]) -> None:
        """Passes spans to the async sinks that take them. metrics.jsonl does not hold them."""
        self._each(self._async_sinks, lambda sink: sink.trace(spans))

    def close(self) -> None:
        """Closes every sink, metrics.jsonl last. Safe to call twice."""
        deadline = time.monotonic() + (ABANDON_SECONDS if self._is_abandoned else CLOSE_SECONDS)
        self._each(self._async_sinks, lambda sink: sink.finish(deadline))
        self._each(self._sinks, lambda sink: sink.close())
        self._each(self._async_sinks, lambda sink: sink.close())
        with _disk_errors(self._run_dir):
            self._log.close()

    def _each(
        self, sinks: list[_AnySink], act: Callable[[_AnySink], None], propagate: type[StoixError] | tuple[()] = ()
    ) -> None:
        for sink in list(sinks):
            # Any exception: a sink may use any library, and its failures must not stop the training.
            try:
                act(sink)
            except propagate:
                raise
            except Exception as error:
                sinks.remove(sink)
                with contextlib.suppress(Exception):
                    sink.close()
                if not self._is_abandoned:
                    self._warn(sink, error)

    def _warn(self, sink: Sink, error: Exception) -> None:
        name = sink.name if isinstance(sink, QueuedSink) else type(sink).__name__
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"warning: {name} dropped ({reason}); metrics continue in {self._run_dir}/metrics.jsonl"
        with contextlib.suppress(OSError, ValueError):  # stderr may be closed
            print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _disk_errors(run_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"metrics cannot be written: {words_of(error)}, {error.filename or run_dir}"
        raise StorageError(what, f"{hint_of(error)}, then continue with --resume") from error
