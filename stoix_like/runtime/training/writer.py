"""Everything that a run writes: rows, checkpoints, the best parameters. Only process 0 writes.

All processes take part in gathering a sharded state. A thread writes one checkpoint at a time, from a copy of the
state, while training continues. `wait_until_written` blocks until every pending checkpoint is on disk. Writing raises
nothing: after an error nothing more is written, and `collect` returns it to the next meeting of the processes, which
raises it in all of them.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoix_like.errors import StoixError
from stoix_like.runtime.console import messages
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.host_values import RunProgress
from stoix_like.runtime.telemetry import Report, TelemetryHub
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.tracing import Tracing
from stoix_like.types import Params


class RunFiles(NamedTuple):
    """What process 0 writes to."""

    store: CheckpointStore
    best: BestCheckpoint
    telemetry: TelemetryHub


#: Makes the report of a checkpoint, from its folder, once it is written.
SavedReport = Callable[[Path], Report]


class _PendingCheckpoint(NamedTuple):
    path: Future[Path]
    saved: SavedReport


class RunWriter:
    """Writes the results of a run: to its files on process 0; the others have none. `meta` is that of checkpoints."""

    def __init__(self, group: ProcessGroup, files: RunFiles | None, meta: CheckpointMeta) -> None:
        self._group, self._files, self._meta = group, files, meta
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: _PendingCheckpoint | None = None
        self._error: Exception | None = None  # the first; nothing is written after it
        self._is_collected = False
        self.tracing = Tracing()

    def collect(self) -> Exception | None:
        """The error of writing, once; else None. Reports the pending checkpoint if it is on disk."""
        if self._pending is not None and self._pending.path.done():
            self.wait_until_written()
        error = None if self._is_collected else self._error
        self._is_collected = error is not None or self._is_collected
        return error

    @contextlib.contextmanager
    def _collecting(self) -> Iterator[None]:
        try:
            yield
        except (StoixError, OSError) as error:
            self._error = self._error or error

    def write(self, reports: Sequence[Report]) -> None:
        """Writes the reports of one moment."""
        if self._files is not None and self._error is None:
            with self._collecting():
                self._files.telemetry.write(reports)

    def log_failure(self, report: Report) -> None:
        """Writes the report of the error that ends the run, if that is possible."""
        if self._files is not None:
            with contextlib.suppress(StoixError):
                self._files.telemetry.write([report])

    def trace(self) -> None:
        """Passes the completed spans of `tracing` to the sinks."""
        spans = self.tracing.take()
        if self._files is not None and spans:
            self._files.telemetry.trace(spans)

    def save(
        self, state: Any, update: int, progress: RunProgress, saved: SavedReport, *, at_once: bool = False
    ) -> None:
        """Starts to write a checkpoint, which is reported once it is complete; with `at_once`, it is then.

        The state may be donated afterwards. Raises RunError if it could not be copied.
        """
        with self.tracing.span("checkpoint", update=update):  # the time training waits; a thread writes the rest
            self.wait_until_written()
            with reraise_device_errors(
                "the state cannot be copied for a checkpoint", "free some memory of device and host"
            ):
                copied = self._group.fetch_to_host(state)
            if self._files is None or self._error is not None:
                return
            meta = self._meta._replace(update=update, host=progress.to_host())
            write = functools.partial(self._files.store.save, copied, meta, replace=True)
            if at_once:  # on this thread, so that an interruption ends it
                with self._collecting():
                    self._finish(self._files, write(), saved)
            else:
                self._pending = _PendingCheckpoint(self._thread.submit(write), saved)

    def wait_until_written(self) -> None:
        """Blocks until the pending checkpoint is on disk, and reports it."""
        if self._files is None or self._pending is None:
            return
        concurrent.futures.wait([self._pending.path])  # an interruption is raised here and leaves it pending
        pending, self._pending = self._pending, None
        with self._collecting():
            self._finish(self._files, pending.path.result(), pending.saved)

    def _finish(self, files: RunFiles, path: Path, saved: SavedReport) -> None:
        self._prune(files)
        self.write([saved(path)])

    def _prune(self, files: RunFiles) -> None:
        """Removes best parameters that no checkpoint needs, counted from the oldest: newer ones may be moved away."""
        if updates := files.store.updates():
            files.best.prune(updates[0])

    def rewrite_progress(self, update: int, progress: RunProgress) -> None:
        """Replaces the progress in a checkpoint; its arrays stay."""
        self.wait_until_written()
        if self._files is not None and self._error is None:
            with self._collecting():
                self._files.store.rewrite_host(update, progress.to_host())
                self._prune(self._files)

    def update_best(self, params: Params, scores: np.ndarray, update: int) -> None:
        """Saves the parameters, on this process's own device, as the best if their mean returns [S] are."""
        if self._files is None or self._error is not None:
            return
        what = "the best parameters cannot be saved"
        with (
            self._collecting(),
            reraise_device_errors(what, lambda: f"free some memory{self.how_to_continue()}"),
        ):
            self._files.best.update(params, scores, self._meta._replace(update=update))

    def close(self) -> None:
        """Waits for the pending checkpoint, however the run ended, and prints an error that was not collected.

        Called before the run's lock is released and before the interpreter exits: nothing is written afterwards.
        """
        try:
            self.wait_until_written()
        finally:
            self._thread.shutdown()
        if (error := self.collect()) is not None:
            messages.print_to_stderr(f"warning: {error.what if isinstance(error, StoixError) else error}")

    def last_checkpoint(self) -> Path | None:
        """The last complete checkpoint, or None. Waits for a pending one and ignores its error."""
        if self._files is None:
            return None
        if self._pending is not None:
            self._pending.path.exception()
        update = max(self._files.store.updates(), default=None)
        return None if update is None else self._files.store.folder / str(update)

    def how_to_continue(self) -> str:
        """The end of a hint: how to resume from the last checkpoint; empty without one, or if writing has failed."""
        path = self.last_checkpoint() if self._error is None else None
        return "" if path is None else f"; --resume {path.parents[1]} continues from checkpoint {path}"
