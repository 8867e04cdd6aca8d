"""Everything that a run writes: rows, checkpoints, the best parameters. Only process 0 writes.

All processes take part in gathering a sharded state. A thread writes one checkpoint at a time, from a copy of the
state, while training continues. `wait_until_written` blocks until every pending checkpoint is on disk. With several
processes, an error while writing is raised in all of them by the next `ProcessGroup.sync`.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoix_like.errors import StoixError
from stoix_like.runtime.console import messages
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.telemetry import Row, Span, TelemetryHub
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.types import Params


class RunFiles(NamedTuple):
    """What process 0 writes to."""

    store: CheckpointStore
    best: BestCheckpoint
    telemetry: TelemetryHub


#: Makes the row that reports a checkpoint, from its folder, once it is written.
SavedRow = Callable[[Path], Row]


class _PendingCheckpoint(NamedTuple):
    path: Future[Path]
    saved_row: SavedRow


class RunWriter:
    """Writes the results of a run.

    Args:
        group: the processes of the run.
        files: on process 0; None on the others, which write nothing.
    """

    def __init__(self, group: ProcessGroup, files: RunFiles | None) -> None:
        self._group, self._files = group, files
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: _PendingCheckpoint | None = None

    def write(self, rows: Sequence[Row]) -> None:
        """Writes the rows of one report."""
        if self._files is not None:
            with self._group.deferring_errors():
                self._files.telemetry.write(rows)

    def trace(self, spans: Sequence[Span]) -> None:
        """Passes completed spans to the sinks."""
        if self._files is not None and spans:
            self._files.telemetry.trace(spans)

    def save(self, state: Any, meta: CheckpointMeta, saved_row: SavedRow, *, at_once: bool = False) -> None:
        """Starts to write a checkpoint; its row is logged once it is complete. The state may be donated afterwards.

        Args:
            state, meta: contents of the checkpoint.
            saved_row: makes its row.
            at_once: write it before returning, not in the thread.

        Raises:
            RunError: the checkpoint before could not be written, or this state not be copied.
        """
        self.wait_until_written()
        with reraise_device_errors(
            "the state cannot be copied for a checkpoint", "free some memory of device and host"
        ):
            copied = self._group.fetch_to_host(state)
        if self._files is None:
            return
        if at_once:
            with self._group.deferring_errors():
                self._finish(self._files, self._files.store.save(copied, meta), saved_row)
        else:
            self._pending = _PendingCheckpoint(self._thread.submit(self._files.store.save, copied, meta), saved_row)

    def check_for_errors(self) -> None:
        """`wait_until_written` if the pending checkpoint is on disk or has failed; otherwise returns at once."""
        if self._pending is not None and self._pending.path.done():
            self.wait_until_written()

    def wait_until_written(self) -> None:
        """Blocks until the pending checkpoint is on disk, and logs its row. Raises RunError if it was not written."""
        if self._files is None or self._pending is None:
            return
        concurrent.futures.wait([self._pending.path])  # an interruption is raised here and leaves it pending
        pending, self._pending = self._pending, None
        with self._group.deferring_errors():
            self._finish(self._files, pending.path.result(), pending.saved_row)

    def _finish(self, files: RunFiles, path: Path, saved_row: SavedRow) -> None:
        self._prune(files)
        self.write([saved_row(path)])

    def _prune(self, files: RunFiles) -> None:
        """Removes best parameters that no checkpoint needs, counted from the oldest: newer ones may be moved away."""
        if updates := files.store.updates():
            files.best.prune(updates[0])

    def close(self) -> None:
        """Waits for the pending checkpoint, however the run ended, and prints its error as a warning.

        Called before the run's lock is released and before the interpreter exits: nothing is written afterwards.
        """
        failures: list[Exception] = []
        try:
            self.wait_until_written()
        except (StoixError, OSError) as error:
            failures.append(error)
        finally:
            self._thread.shutdown()
        failures += self._group.take_deferred_errors()  # no `sync` follows that could raise them
        for failure in failures:
            messages.print_to_stderr(f"warning: {failure.what if isinstance(failure, StoixError) else failure}")

    def rewrite_host(self, update: int, host: dict[str, Any]) -> None:
        """Replaces the host values of a checkpoint; its arrays stay."""
        self.wait_until_written()
        if self._files is not None:
            with self._group.deferring_errors():
                self._files.store.rewrite_host(update, host)
                self._prune(self._files)

    def update(
        self, params: Params, scores: np.ndarray, meta: CheckpointMeta, how_to_continue: Callable[[], str]
    ) -> None:
        """Saves the parameters as the best if they scored best.

        Args:
            params: on this process's own device, [S, ...] for several seeds.
            scores: mean returns [S].
            meta: of this update.
            how_to_continue: the end of the hint if saving fails.
        """
        if self._files is None:
            return
        what = "the best parameters cannot be saved"
        with (
            self._group.deferring_errors(),
            reraise_device_errors(what, lambda: f"free some memory{how_to_continue()}"),
        ):
            self._files.best.update(params, scores, meta)

    @property
    def folder(self) -> Path | None:
        """The folder of the checkpoints on process 0, else None."""
        return None if self._files is None else self._files.store.folder

    def last_saved_update(self) -> int | None:
        """The update of the last complete checkpoint, or None. Waits for a pending one and ignores its error."""
        if self._files is None:
            return None
        if self._pending is not None:
            self._pending.path.exception()
        return max(self._files.store.updates(), default=None)
