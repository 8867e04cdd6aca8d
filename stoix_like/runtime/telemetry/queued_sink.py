"""A sink on a thread of its own, behind a bounded queue: training never waits for a server or a foreign library."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stoix_like.runtime.telemetry.sink import Row, RunMeta, Sink, Span, SpanSink

MOST_WAITING = 1000  # deliveries that a sink may be behind: half an hour at a report every 2 seconds


class QueuedSink:
    """Every call comes back at once; what the sink raised on its thread is raised by the next call here.

    After a raise only `close` follows, as for every sink, and the sink is closed on its thread. One that hangs is left
    behind: its thread does not keep the process alive.

    Args:
        sink: opened, called and closed on the thread alone.
        name: what a warning calls it.
        most_waiting: deliveries it may be behind before it counts as failed.
        answer_seconds: that the run waits for it to open, however long it would wait for others: the user asked for
            something that there may not be.
    """

    def __init__(self, sink: Sink, name: str, most_waiting: int = MOST_WAITING, answer_seconds: float = 0.0) -> None:
        self.name = name
        self._answer_seconds = answer_seconds
        self._sink = sink
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(most_waiting)
        self._opened = threading.Event()
        self._left_behind = threading.Event()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self._deadline = 0.0

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Begins to open the sink."""
        work = functools.partial(self._work, run_dir, meta)
        self._thread = threading.Thread(target=work, name=f"telemetry-{self.name}", daemon=True)
        self._thread.start()

    def wait_until_open(self, deadline: float) -> None:
        """Until the sink is open or has failed to: at most until the moment `deadline` of `time.monotonic()`, or for
        its `answer_seconds`.

        Raises:
            Exception: what its `open` raised.
        """
        self._opened.wait(max(0.0, deadline - time.monotonic(), self._answer_seconds))
        self._raise_failure()

    def write(self, rows: Sequence[Row]) -> None:
        """Queues the rows of one report.

        Raises:
            Exception: what the sink raised before; TimeoutError where it is too far behind.
        """
        self._queue(functools.partial(self._sink.write, rows))

    def trace(self, spans: Sequence[Span]) -> None:
        """Queues spans, if the sink takes them. Raises as `write` does."""
        if isinstance(self._sink, SpanSink):
            self._queue(functools.partial(self._sink.trace, spans))

    def finish(self, deadline: float) -> None:
        """Says that nothing more comes; `close` waits until the moment `deadline` of `time.monotonic()`.

        Raises:
            Exception: as `write`.
        """
        self._deadline = deadline
        self._queue(None)

    def close(self) -> None:
        """Waits for what is queued as long as `finish` said; without it that is lost. Safe to call twice.

        Raises:
            Exception: what the sink raised; TimeoutError where it was not through in time.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(max(0.0, self._deadline - time.monotonic()))
        if thread.is_alive():
            behind = self._waiting.qsize()  # with the end that `finish` queued, in place of what is being written
            self._leave_behind()
            raise TimeoutError(f"{behind:,} reports could not be written in time")
        self._raise_failure()

    def _queue(self, delivery: Callable[[], None] | None) -> None:
        self._raise_failure()
        try:
            self._waiting.put_nowait(delivery)
        except queue.Full:
            self._leave_behind()
            raise TimeoutError(f"it is {self._waiting.maxsize:,} reports behind") from None

    def _leave_behind(self) -> None:
        self._left_behind.set()
        with contextlib.suppress(queue.Full):  # a thread that has something to do will see the flag
            self._waiting.put_nowait(None)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self, run_dir: Path, meta: RunMeta) -> None:
        try:
            with contextlib.closing(self._sink):
                self._sink.open(run_dir, meta)
                self._opened.set()
                while (delivery := self._waiting.get()) is not None and not self._left_behind.is_set():
                    delivery()
        except Exception as error:  # whatever it is: the next call tells it
            self._failure = error
        finally:
            self._opened.set()
