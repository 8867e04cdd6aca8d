"""The fan-out from a run to its sinks.

The JSONL file is the record of a run: it is written first and a failure to write it ends the run. Every other sink is
a convenience: one that raises is dropped with one warning and training goes on. Sinks are called on the caller's
thread, in order; what may wait for a network or a foreign library is given as a `QueuedSink`, which has its own thread.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from stoix_like.errors import RunError, StoixError
from stoix_like.runtime.telemetry.queued_sink import QueuedSink
from stoix_like.runtime.telemetry.sink import Row, RunMeta, Sink, Span

OPEN_SECONDS = 3.0  # that all queued sinks together are waited for before the run begins
CLOSE_SECONDS = 10.0  # ... and at its end, for what they have not written yet
_AnySink = TypeVar("_AnySink", bound=Sink)


class TelemetryHub:
    """A sink made of sinks: `record` must work, the others may fail.

    Only `open` lets an error of theirs through, and only a StoixError: what the user asked for and cannot have (a
    missing extra, an unknown MLflow run) is said before training starts. A queued sink that has not opened within
    `OPEN_SECONDS` goes on opening while the run begins, unless it has `answer_seconds` of its own.
    """

    def __init__(self, record: Sink, others: Sequence[Sink] = (), queued: Sequence[QueuedSink] = ()) -> None:
        self._record = record
        self._others: list[Sink] = list(others)
        self._queued: list[QueuedSink] = list(queued)
        self._run_dir = Path()

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Opens the record, then every other sink.

        Raises:
            RunError: the record cannot be written.
            StoixError: a sink refuses what the configuration asks for; all are closed again.
        """
        self._run_dir = run_dir
        with _disk_errors(run_dir):
            self._record.open(run_dir, meta)
        try:
            self._each(self._queued, lambda sink: sink.open(run_dir, meta), let_through=StoixError)
            self._each(self._others, lambda sink: sink.open(run_dir, meta), let_through=StoixError)
            deadline = time.monotonic() + OPEN_SECONDS
            self._each(self._queued, lambda sink: sink.wait_until_open(deadline), let_through=StoixError)
        except StoixError:
            self._abandon()
            raise

    def write(self, rows: Sequence[Row]) -> None:
        """Hands the rows of one report to every sink.

        Raises:
            RunError: the record cannot be written (a full disk, a folder that is gone).
        """
        with _disk_errors(self._run_dir):
            self._record.write(rows)
        self._each(self._others, lambda sink: sink.write(rows))
        self._each(self._queued, lambda sink: sink.write(rows))

    def trace(self, spans: Sequence[Span]) -> None:
        """Hands spans to the sinks that take them. They stand in no record."""
        self._each(self._queued, lambda sink: sink.trace(spans))

    def close(self) -> None:
        """Closes every sink, the record last. Safe to call twice."""
        deadline = time.monotonic() + CLOSE_SECONDS
        self._each(self._queued, lambda sink: sink.finish(deadline))
        self._each(self._others, lambda sink: sink.close())
        self._each(self._queued, lambda sink: sink.close())
        with _disk_errors(self._run_dir):
            self._record.close()

    def _abandon(self) -> None:
        """Closes everything, without a word and in a second at most: there will be no run."""
        deadline = time.monotonic() + 1.0
        for queued in self._queued:
            with contextlib.suppress(Exception):
                queued.finish(deadline)
        for sink in [*self._others, *self._queued]:
            with contextlib.suppress(Exception):
                sink.close()
        self._others, self._queued = [], []
        self.close()

    def _each(
        self, sinks: list[_AnySink], act: Callable[[_AnySink], None], let_through: type[StoixError] | tuple[()] = ()
    ) -> None:
        for sink in list(sinks):
            # Any exception: a sink may be anybody's client, and none of its failures may cost the training.
            try:
                act(sink)
            except let_through:
                raise
            except Exception as error:
                sinks.remove(sink)
                self._drop(sink, error)

    def _drop(self, sink: Sink, error: Exception) -> None:
        with contextlib.suppress(Exception):
            sink.close()
        name = sink.name if isinstance(sink, QueuedSink) else type(sink).__name__
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"warning: {name} dropped ({reason}); metrics continue in {self._run_dir}/metrics.jsonl"
        with contextlib.suppress(OSError, ValueError):  # a stderr that is closed is no reason to stop either
            print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _disk_errors(run_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"metrics cannot be written: {error.strerror or error}, {error.filename or run_dir}"
        raise RunError(what, "free the disk or make the folder writable, then continue with --resume") from error
