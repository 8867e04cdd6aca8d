"""A sink on its own thread behind a bounded queue, so that training never waits for a server or a foreign library."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stoix_like.runtime.telemetry.sink import Report, RunMeta, Sink, Span, SpanSink

MAX_PENDING = 1000  # calls that may be queued: half an hour at a report every 2 seconds


class QueuedSink:
    """Calls a sink on a thread. Every call here returns at once and raises what the sink has raised before.

    After an exception only `close` follows, as for every sink; the thread closes the sink. A sink that hangs is
    abandoned: its thread does not keep the process alive.

    Args:
        sink: opened, called and closed on the thread only.
        name: used in warnings.
        max_pending: calls that may be queued before the sink counts as failed.
        answer_seconds: the run waits at least this long for the sink to open, because opening may show that something
            the user named does not exist.
    """

    def __init__(self, sink: Sink, name: str, max_pending: int = MAX_PENDING, answer_seconds: float = 0.0) -> None:
        self.name = name
        self._answer_seconds = answer_seconds
        self._sink = sink
        self._pending: queue.Queue[Callable[[], None] | None] = queue.Queue(max_pending)
        self._opened = threading.Event()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self._deadline = 0.0

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Starts the thread, which opens the sink."""
        work = functools.partial(self._work, run_dir, meta)
        self._thread = threading.Thread(target=work, name=f"telemetry-{self.name}", daemon=True)
        self._thread.start()

    def wait_until_open(self, deadline: float) -> None:
        """Waits until the sink is open, until `deadline` (of `time.monotonic()`) or for its `answer_seconds`.

        Raises what the sink's `open` has raised.
        """
        self._opened.wait(max(0.0, deadline - time.monotonic(), self._answer_seconds))
        self._raise_failure()

    def write(self, reports: Sequence[Report]) -> None:
        """Queues the reports of one moment. Raises what the sink has raised before; TimeoutError for a full queue."""
        self._queue(functools.partial(self._sink.write, reports))

    def trace(self, spans: Sequence[Span]) -> None:
        """Queues spans if the sink takes them. Raises as `write`."""
        if isinstance(self._sink, SpanSink):
            self._queue(functools.partial(self._sink.trace, spans))

    def finish(self, deadline: float) -> None:
        """Queues the end; `close` waits for it until `deadline` (of `time.monotonic()`). Raises as `write`."""
        self._deadline = deadline
        self._queue(None)

    def close(self) -> None:
        """Waits for the queued calls until the deadline of `finish`; without it they are lost. Safe to call twice.

        Raises what the sink has raised, and TimeoutError if it was not done in time.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(max(0.0, self._deadline - time.monotonic()))
        if thread.is_alive():
            behind = self._pending.qsize()  # the end queued by `finish` counts for the call in progress
            self._abandon()
            raise TimeoutError(f"{behind:,} reports could not be written in time")
        self._raise_failure()

    def _queue(self, delivery: Callable[[], None] | None) -> None:
        self._raise_failure()
        try:
            self._pending.put_nowait(delivery)
        except queue.Full:
            self._abandon()
            raise TimeoutError(f"it is {self._pending.maxsize:,} reports behind") from None

    def _abandon(self) -> None:
        """Lets the thread end after its call in progress."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._pending.get_nowait()
        self._pending.put_nowait(None)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self, run_dir: Path, meta: RunMeta) -> None:
        try:
            with contextlib.closing(self._sink):
                self._sink.open(run_dir, meta)
                self._opened.set()
                while (delivery := self._pending.get()) is not None:
                    delivery()
        except Exception as error:  # raised by the next call
            self._failure = error
        finally:
            self._opened.set()
