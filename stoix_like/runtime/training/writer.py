"""Everything that a run writes: rows, checkpoints, the best parameters. Process 0 writes; the others help to gather.

A thread writes checkpoints from a copy of the state while training goes on, one at a time: a second one waits for the
first. `wait_until_written` blocks until every pending checkpoint is on disk. With several processes, an error while
writing is raised in all of them by the next `ProcessGroup.sync`.
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
    """What the lead writes to."""

    store: CheckpointStore
    best: BestCheckpoint
    telemetry: TelemetryHub


#: Makes the row that says a checkpoint was written, from its folder, when it was.
Finished = Callable[[Path], Row]


class _Writing(NamedTuple):
    path: Future[Path]
    finished: Finished


class RunWriter:
    """Where the results of a run go.

    Args:
        group: of the run's processes.
        files: in the lead; None in the others, where nothing is written.
    """

    def __init__(self, group: ProcessGroup, files: RunFiles | None) -> None:
        self._group, self._files = group, files
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: _Writing | None = None

    def write(self, rows: Sequence[Row]) -> None:
        """Rows of one report.

        Raises:
            RunError: they cannot be written.
        """
        if self._files is not None:
            with self._group.deferring_errors():
                self._files.telemetry.write(rows)

    def trace(self, spans: Sequence[Span]) -> None:
        """Spans of what has ended."""
        if self._files is not None and spans:
            self._files.telemetry.trace(spans)

    def save(self, state: Any, meta: CheckpointMeta, finished: Finished, *, at_once: bool = False) -> None:
        """Begins to write a checkpoint; its row follows when it is complete. The state may be donated afterwards.

        Args:
            state, meta: what it holds.
            finished: makes its row.
            at_once: write it here and now, and not in the thread.

        Raises:
            RunError: the one before, or the copy of the state, failed; at once, also what `wait_until_written` raises.
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
                self._note(self._files, self._files.store.save(copied, meta), finished)
        else:
            self._writing = _Writing(self._thread.submit(self._files.store.save, copied, meta), finished)

    def wait_until_written(self, *, wait: bool = True) -> None:
        """Takes note of what was written; with `wait` also of what still is.

        Raises:
            RunError: it could not be written.
        """
        if self._files is None or self._writing is None or not (wait or self._writing.path.done()):
            return
        concurrent.futures.wait([self._writing.path])  # an interruption comes through here, and leaves it pending
        writing, self._writing = self._writing, None
        with self._group.deferring_errors():
            self._note(self._files, writing.path.result(), writing.finished)

    def _note(self, files: RunFiles, path: Path, finished: Finished) -> None:
        self._prune(files)
        self.write([finished(path)])

    def _prune(self, files: RunFiles) -> None:
        """A person may move damaged checkpoints away: the best belongs to the oldest that is left, too."""
        if there := files.store.updates():
            files.best.prune(there[0])

    def close(self) -> None:
        """Waits for what is being written, however the run ends; that it failed is told beside what ended the run.

        Before the run's lock is given back, and before the interpreter ends: nothing can be written afterwards.
        """
        failures: list[Exception] = []
        try:
            self.wait_until_written()
        except (StoixError, OSError) as error:
            failures.append(error)
        finally:
            self._thread.shutdown()
        for failure in [
            *failures,
            *self._group.take_deferred_errors(),
        ]:  # of several processes, what no `sync` will raise any more
            messages.print_to_stderr(f"warning: {failure.what if isinstance(failure, StoixError) else failure}")

    def rewrite_host(self, update: int, host: dict[str, Any]) -> None:
        """Replaces what the host notes beside the arrays of a checkpoint.

        Raises:
            RunError: it, or the checkpoint, cannot be written.
        """
        self.wait_until_written()
        if self._files is not None:
            with self._group.deferring_errors():
                self._files.store.rewrite_host(update, host)
                self._prune(self._files)

    def update(
        self, params: Params, scores: np.ndarray, meta: CheckpointMeta, how_to_continue: Callable[[], str]
    ) -> None:
        """Keeps the parameters if they scored best: of this process's own device, [S, ...] for several seeds.

        Raises:
            RunError: they cannot be kept.
        """
        if self._files is None:
            return
        what = "the best parameters cannot be kept"
        with (
            self._group.deferring_errors(),
            reraise_device_errors(what, lambda: f"free some memory{how_to_continue()}"),
        ):
            self._files.best.update(params, scores, meta)

    @property
    def folder(self) -> Path | None:
        """Of the checkpoints, in the lead."""
        return None if self._files is None else self._files.store.folder

    def complete(self) -> int | None:
        """The update of the last checkpoint that a run can be continued from; None if there is none.

        What is being written is waited for, and whether it failed does not matter here.
        """
        if self._files is None:
            return None
        if self._writing is not None:
            self._writing.path.exception()
        return max(self._files.store.updates(), default=None)
