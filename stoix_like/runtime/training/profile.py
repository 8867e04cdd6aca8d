"""The profile of a run: a trace of a few updates, from which the time of each phase is read."""

from __future__ import annotations

import contextlib
import functools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from jax.stages import Compiled

from stoix_like.runtime.console.text import Value
from stoix_like.runtime.profiling.operations import Operations, count_operations
from stoix_like.runtime.profiling.phase_times import PhaseTimes, module_name, phase_times, scopes_of, scopes_of_events
from stoix_like.runtime.profiling.traces import read_events, self_times
from stoix_like.runtime.telemetry import event
from stoix_like.runtime.training.callbacks import Callback, RunClock
from stoix_like.runtime.training.chunk import TimedChunk, timed
from stoix_like.runtime.training.writer import RunWriter
from stoix_like.types import Metrics

MOST_UPDATES = 2
_TRACES = "*.xplane.pb"


class Profile(Callback):
    """The profile of a run, taken of the second chunk, which is kept short; the first one warms up.

    Its trace, about ten megabytes, stays in the folder if `is_kept`. The writer receives the times.
    """

    def __init__(self, folder: Path, writer: RunWriter | None = None, *, is_kept: bool = True) -> None:
        self.folder, self._writer, self._is_kept = folder, writer, is_kept
        self.times: PhaseTimes | None = None  # until it is taken
        self.problem: str | None = None  # why it has failed
        self._program_text, self._chunks, self._is_reported = "", 0, False

    def wrap(self, program: Compiled) -> TimedChunk:
        """The program, which traces its second call; the time of tracing is not its time."""
        self._program_text, run = program.as_text() or "", timed(program)

        def traced(state: Any, length: int) -> tuple[Any, Metrics, float]:
            self._chunks += 1
            with self.recording(length) if self._chunks == 2 else contextlib.nullcontext():
                return run(state, length)

        return traced

    def next_update(self, clock: RunClock) -> int:
        if self._chunks == 1:
            return clock.update + MOST_UPDATES
        return clock.update if self.times is not None and not self._is_reported else super().next_update(clock)

    def run(self, state: Any, clock: RunClock) -> Any:
        if self._writer is not None and self.times is not None:
            self._writer.write([event(clock.now(), "profiled", **self.values())])
            self._writer.tracing.times = self.times
            self._is_reported = True
        return state

    @contextlib.contextmanager
    def recording(self, updates: int) -> Iterator[None]:
        """Traces the block and sets `times`, or `problem`. The block must wait for its results.

        A failed profile does not stop the training.
        """
        before = set(self.folder.rglob(_TRACES))
        try:
            jax.profiler.start_trace(str(self.folder))
        except RuntimeError as error:  # another profiler is active, or the GPU driver forbids it
            self.problem = str(error)
            yield
            return
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            try:
                jax.profiler.stop_trace()
            except (RuntimeError, OSError) as error:
                self.problem = str(error)
        new = sorted(set(self.folder.rglob(_TRACES)) - before)
        if self.problem is None:
            self._read(new, updates, seconds / updates)
        if not self._is_kept:
            self._remove(new)

    def _read(self, traces: list[Path], updates: int, seconds: float) -> None:
        nanoseconds = self_times(read_events(traces[-1], module_name(self._program_text))) if traces else {}
        if nanoseconds:
            scopes = scopes_of_events(nanoseconds, scopes_of(self._program_text))
            self.times = phase_times(nanoseconds, scopes, updates, seconds)
        else:
            self.problem = "the trace holds no instruction of the update"

    def _remove(self, traces: list[Path]) -> None:
        """Removes the traces and the profiler's other files, but not those of earlier starts."""
        for trace in traces:
            shutil.rmtree(trace.parent, ignore_errors=True)
        for folder in [*sorted(self.folder.rglob("*"), reverse=True), self.folder]:
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()

    def values(self) -> dict[str, Value]:
        """What is reported: the share of each phase in one update's wall-clock time, in milliseconds."""
        times = self._taken()
        milliseconds = times.seconds * 1e3
        values: dict[str, Value] = {"path": self.folder.name} if self._is_kept else {}
        values |= {f"{name}_ms": share * milliseconds for name, share in times.shares.items()}
        values["rollout_duration_ms"] = times.playing * milliseconds
        if times.searching > 0.0:
            values["search_duration_ms"] = times.searching * milliseconds
        values["optimization_duration_ms"] = times.optimising * milliseconds
        values["operations"] = sum(self._operations.of_phases.values())
        return values

    def _taken(self) -> PhaseTimes:
        if self.times is None:
            raise RuntimeError("the profile has not been taken yet")
        return self.times

    @functools.cached_property
    def _operations(self) -> Operations:
        """Of one update: the loop over updates does not tell its trips."""
        return count_operations(self._program_text, scopes_of(self._program_text), of_one_trip=True)

    def table(self) -> list[str]:
        """Lines for the terminal: the phases, longest first, with the operations that one update executes."""
        times = self._taken()
        what = f"{times.updates} updates, {times.seconds * 1e3:,.1f} ms each" if times.updates > 1 else "one update"
        head = f"profile of {what} · {self.folder}"
        rows = sorted((row for row in times.shares.items() if row[1] > 0.0), key=lambda row: -row[1])
        counts, unknown = self._operations
        body = [
            f"  {name:<10}{share * times.seconds * 1e3:>12,.2f} ms{share:>7.1%}{counts.get(name, 0):>12,} operations"
            for name, share in rows
        ]
        loops = [f"loops of unknown length, counted as one trip: {', '.join(unknown)}"] * bool(unknown)
        return [head, *body, *loops, "open the .trace.json.gz in ui.perfetto.dev, or the folder in TensorBoard (XProf)"]
