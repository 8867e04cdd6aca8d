"""Callbacks: what a run does between chunks of updates, in the order of a list.

The driver ends each chunk at the next update at which a callback is due. In a run of several processes, a callback that
changes the state, raises, or takes part in a collective must do so in all of them. What one process alone may fail at,
writing files, is collected by the writer and raised at the next meeting of the processes.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stoix_like.errors import RunError
from stoix_like.ops import trees
from stoix_like.runtime.runs.host_values import RunProgress
from stoix_like.runtime.telemetry import Clock, Report, event
from stoix_like.runtime.telemetry.metrics import training_report
from stoix_like.runtime.training.chunk import MetricAccumulator
from stoix_like.runtime.training.writer import RunWriter

CONTINUE = "continue with --resume"  # what a hint says, where another command does not go on by its own way
#: {metric of the learning step that must be finite, or the run stops: what helps}. Rewards and observations are checked
#: before (`ops/breaches`), so that a loss is not finite because of what is learned from them.
_LOSS = "lower the learning rates, or scale the rewards"
MUST_BE_FINITE = {
    "trainer/policy_loss": _LOSS,
    "trainer/value_loss": _LOSS,
    "trainer/global_grad_norm": "the losses are finite, so lower --max-grad-norm or the learning rates",
}


class StopTraining(Exception):
    """Raised by `Callback.run` to end the run as a signal does: others that are due run, and a checkpoint is saved.

    The reason, such as "pruned", is the status of the run; an error is raised instead, once the checkpoint is saved.
    """

    def __init__(self, reason: str = "stopped", error: Exception | None = None) -> None:
        super().__init__(reason)
        self.reason, self.error = reason, error


class RunClock:
    """The progress of a run. The driver counts `update`, an evaluation sets `evaluated_at`.

    `is_ending` is True after the last update and once the run is stopped: then callbacks run for the last time.
    """

    def __init__(
        self, update: int, last_update: int, steps_per_update: int, seconds_before: float = 0.0, evaluated_at: int = 0
    ) -> None:
        self.update, self.last_update = update, last_update  # done, and of the whole run
        self.evaluated_at, self.is_ending = evaluated_at, False
        self.started_at, self.training_seconds = update, 0.0  # of this process, in its chunks
        self.steps_per_update = steps_per_update  # environment steps of one seed
        self._began = time.monotonic() - seconds_before

    def now(self, update: int | None = None) -> Clock:
        """This moment, as reports have it; or the present time of a report on an earlier update."""
        update = self.update if update is None else update
        return Clock(update, update * self.steps_per_update, time.monotonic() - self._began)

    @property
    def is_last(self) -> bool:
        """Whether all updates are done."""
        return self.update >= self.last_update

    def next_due(self, interval: int, after: int) -> int:
        """The next multiple of the interval (0: none), or the last update; not before now, and later than `after`.

        If the last update is not later than `after` it is an update that never comes.
        """
        first = max(self.update, after + 1)
        multiple = -(-first // interval) * interval if interval > 0 else self.last_update
        return max(first, min(multiple, self.last_update))


class Callback:
    """Acts between chunks of updates. A subclass overrides `next_update` and `run`.

    Attributes:
        ran_at, due_at: set by the driver: the update of the last call of `run`, or that from which the run starts or
            is resumed, and the update at which it is due next.
    """

    ran_at, due_at = 0, 0

    def next_update(self, clock: RunClock) -> int:
        """The update at which `run` is due: the current one, or a later one, at which the next chunk then ends.

        By default it is never due. It is called often, and must depend on nothing but the clock and earlier calls.
        """
        return clock.last_update + 1

    def run(self, state: Any, clock: RunClock) -> Any:  # noqa: ARG002 - for subclasses
        """Acts, and returns the state: the given one, or one with other values of the same shapes.

        The next chunk donates the state: copy what you keep of it.

        Raises:
            StopTraining: the run shall end.
            StoixError: the run cannot go on, and nothing more is saved.
        """
        return state


class LogMetrics(Callback):
    """Logs the metrics that the driver accumulates, at its own interval (None: after every chunk), and at the other
    intervals, so that they are logged before an evaluation or a checkpoint.
    """

    def __init__(
        self,
        metrics: MetricAccumulator,
        interval: int | None,
        other_intervals: Sequence[int],
        seeds: Sequence[int],
        writer: RunWriter,
    ) -> None:
        self._metrics, self._writer = metrics, writer
        self._intervals = None if interval is None else (interval, *other_intervals)
        self._seeds = seeds

    def next_update(self, clock: RunClock) -> int:
        if self._intervals is None or clock.is_ending:
            return clock.update if self._metrics.updates else super().next_update(clock)
        reported_at = clock.update - self._metrics.updates
        return min(clock.next_due(interval, after=reported_at) for interval in self._intervals)

    def run(self, state: Any, clock: RunClock) -> Any:
        """Logs the metrics. Raises RunError if a loss is not finite: then no checkpoint of this update is saved."""
        steps, seconds = self._metrics.updates * clock.steps_per_update, self._metrics.seconds
        metrics = self._metrics.take()
        rate = steps / seconds if seconds > 0 else math.nan
        self._writer.write([training_report(metrics, clock.now(), rate, self._seeds)])
        broken = [name for name in MUST_BE_FINITE if name in metrics and not np.isfinite(metrics[name]).all()]
        if broken:
            path = self._writer.last_checkpoint()
            last_good = "" if path is None else f"the last good checkpoint is {path}; "
            raise RunError(
                f"{broken[0]} is not finite at update {clock.update}; training stopped",
                f"{last_good}{MUST_BE_FINITE[broken[0]]}, and {CONTINUE}",
            )
        return state


class SaveCheckpoint(Callback):
    """Saves the state and which update has been evaluated, while training continues.

    What stands at the paths `left_out` is not saved. With interval 0 only the last state is saved. `resumed` is the
    clock of a run that has a checkpoint of its update.
    """

    def __init__(self, interval: int, writer: RunWriter, left_out: tuple[str, ...], resumed: RunClock | None) -> None:
        self._interval, self._writer, self._left_out = interval, writer, left_out
        self._saved_at = -1 if resumed is None else resumed.update
        self._saved_evaluated_at = 0 if resumed is None else resumed.evaluated_at
        self._saved_state: Any = None

    def next_update(self, clock: RunClock) -> int:
        return clock.update if clock.is_ending else clock.next_due(self._interval, after=self._saved_at)

    def run(self, state: Any, clock: RunClock) -> Any:
        """Saves the state. Raises RunError as `RunWriter.save`."""
        self.save(state, clock, at_once=clock.is_ending)
        if self._saved_evaluated_at != clock.evaluated_at:
            self._writer.rewrite_progress(clock.update, _progress(clock))  # saved before it was evaluated
        return state

    def save(self, state: Any, clock: RunClock, *, at_once: bool = False) -> None:
        """Saves the state unless it is saved; with `at_once`, it is on disk when the call returns."""
        has_changed = self._saved_state is not None and state is not self._saved_state  # by a callback, after a save
        if self._saved_at == clock.update and not has_changed:
            return
        stored = trees.with_paths(state, dict.fromkeys(self._left_out))
        saved = functools.partial(_saved, clock, clock.update)
        self._writer.save(stored, clock.update, _progress(clock), saved, at_once=at_once)
        self._saved_at, self._saved_evaluated_at, self._saved_state = clock.update, clock.evaluated_at, state


def _progress(clock: RunClock) -> RunProgress:
    return RunProgress(clock.now().elapsed_seconds, clock.evaluated_at)


def _saved(clock: RunClock, update: int, path: Path) -> Report:
    return event(clock.now(update), "checkpoint_saved", path=str(Path(*path.parts[-2:])))
