"""The host's side of a run: between chunks it reports, evaluates, saves, and looks whether it should stop."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.config.checks import steps_per_update
from stoix_like.errors import INTERRUPTED, RunError
from stoix_like.runtime.console.text import Value
from stoix_like.runtime.evaluators.episode_player import StepBudget, report_progress
from stoix_like.runtime.evaluators.pace import ChunkSizer
from stoix_like.runtime.evaluators.scores import Evaluator, Scores
from stoix_like.runtime.evaluators.time_share import EvaluationTimeShare
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.hardware.process_group import ProcessGroup, addressable_copy
from stoix_like.runtime.runs.checkpoint import CheckpointMeta
from stoix_like.runtime.runs.trees import without_replay
from stoix_like.runtime.telemetry import Row
from stoix_like.runtime.telemetry import rows as report
from stoix_like.runtime.training import chunk
from stoix_like.runtime.training.profile import MOST_UPDATES, Profile
from stoix_like.runtime.training.stopping import StopRequest
from stoix_like.runtime.training.tracing import Tracing, update_span
from stoix_like.runtime.training.writer import RunWriter

_LOG = logging.getLogger(__name__)
LESS_MEMORY = "raise --num-minibatches, or start a run with a lower --num-envs or --rollout-length"
#: Metrics whose NaN or infinity stops the run: what is learned from, not what only describes it.
MUST_BE_FINITE = ("trainer/policy_loss", "trainer/value_loss", "trainer/global_grad_norm")


def next_stop(update: int, last: int, *intervals: int) -> int:
    """The next update after `update` at which something is due: a multiple of an interval (0 = never), or the last."""
    due = [update - update % interval + interval for interval in intervals if interval > 0]
    return min([last, *due])


class _StoppedEvaluation(Exception):
    """The run shall stop before an evaluation is through."""


class RunOutputs(NamedTuple):
    """What scores a run, and where its results go."""

    evaluator: Evaluator
    recorder: RunWriter
    note: Callable[[str], None]  # tells a person
    profile: Profile | None = None
    beside: tuple[Evaluator, ...] = ()  # what else is scored, on the same levels


class Driver:
    """One run from a state to its last update, or to where it is stopped.

    Args:
        state: the learner's state, [S, ...] for several seeds; owned by the driver from now on.
        config: an algorithm's configuration.
        meta: what checkpoints say of the run; `update` is the update the state is at.
        outputs: what scores it, and where results go.
        is_continued: whether there is a checkpoint of this state.
        group: the processes that run it. All take the same branches: what one alone knows is agreed upon.
    """

    def __init__(
        self,
        state: Any,
        config: Any,
        meta: CheckpointMeta,
        outputs: RunOutputs,
        *,
        is_continued: bool,
        group: ProcessGroup,
    ) -> None:
        self.state = state
        self.update = meta.update
        self._config = config
        self._meta = meta
        self._outputs = outputs
        self._recorder = outputs.recorder
        self._group = group
        self._pending = chunk.MetricAccumulator()
        self._pace = ChunkSizer()
        self._tracing = Tracing()
        self._share = EvaluationTimeShare()
        self._began = time.monotonic()
        self._before_seconds = float(meta.host.get("elapsed_seconds", 0.0))
        self._last_saved = self.update if is_continued else -1
        self._evaluated_at = self._noted_evaluation = int(meta.host.get("evaluated_at", self.update))
        core = config.training_core
        self._seeds = [config.architecture.seed + i for i in range(core.num_seeds)]
        self._steps_per_update = steps_per_update(config)

    def run(self, program: chunk.ChunkFunction, stop: StopRequest) -> int:
        """0 when the last update is done, 130 when stopped; either way everything is saved.

        Raises:
            RunError: a loss is not finite, the disk cannot be written, or memory ran out, in any process.
        """
        last = self._config.training_core.num_updates
        evaluation, checkpointing = self._config.evaluation, self._config.checkpointing
        log_interval = self._config.logging.log_interval or 0
        self._evaluate_if_due(last, stop)  # what an interruption left out
        while self.update < last and not self._shall_stop(stop):
            due = next_stop(self.update, last, evaluation.eval_interval, checkpointing.save_interval, log_interval)
            with self._tracing.span("chunk", from_update=self.update):
                self._advance(program, self._group.sync(self._wanted_length(due)).number)
                self._recorder.wait_until_written(wait=False)
                self._evaluate_if_due(last, stop)
                if _is_due(self.update, checkpointing.save_interval):
                    self.save()
            self._recorder.trace(self._tracing.take())
        self.save(at_once=True)
        self._recorder.wait_until_written()
        self._group.sync()  # that nothing failed
        return 0 if self.update == last == self._evaluated_at else INTERRUPTED

    def _shall_stop(self, stop: StopRequest) -> bool:
        return self._group.sync(0, stop.is_set).flag

    def _wanted_length(self, due: int) -> int:
        """Updates of the next chunk, as far as this process can tell."""
        length = self._pace.length(due - self.update)
        return min(length, MOST_UPDATES) if self._wants_profile() else length

    @property
    def elapsed_seconds(self) -> float:
        """Wall-clock seconds of the run, those before an interruption included."""
        return self._before_seconds + time.monotonic() - self._began

    @property
    def timesteps(self) -> int:
        """Environment steps of one seed."""
        return self.update * self._steps_per_update

    def save(self, *, at_once: bool = False) -> None:
        """A checkpoint of the state as it is, unless there is one; what was played before it is reported first.

        It is written while the run goes on, or `at_once`.

        Raises:
            RunError: it, or the one before, cannot be written.
        """
        self._report()
        host = {"elapsed_seconds": round(self.elapsed_seconds, 3), "evaluated_at": self._evaluated_at}
        if self._last_saved == self.update:
            if self._noted_evaluation != self._evaluated_at:  # made after it, or made up for after a stop
                self._recorder.rewrite_host(self.update, host)
                self._noted_evaluation = self._evaluated_at
            return
        keeps_replay = self._config.checkpointing.save_replay
        stored = self.state if keeps_replay else without_replay(self.state)
        saved = functools.partial(self._saved_row, self.update, self.timesteps)
        with self._tracing.span("checkpoint", update=self.update):  # what training waits for: the rest has a thread
            self._recorder.save(stored, self._meta._replace(update=self.update, host=host), saved, at_once=at_once)
        self._last_saved, self._noted_evaluation = self.update, self._evaluated_at

    def log_failure(self, what: str) -> None:
        """The last row of a run that ends by an error: whoever looks at its metrics sees that it did, and why."""
        values: dict[str, Value] = {"misc/event": "failed", "misc/message": what}
        self._recorder.write([Row("MISC", self.update, self.timesteps, self.elapsed_seconds, None, values)])

    def _saved_row(self, update: int, timesteps: int, path: Path) -> Row:
        values: dict[str, Value] = {"misc/event": "checkpoint_saved", "misc/path": str(Path(*path.parts[-2:]))}
        return Row("MISC", update, timesteps, self.elapsed_seconds, None, values)

    def _advance(self, program: chunk.ChunkFunction, length: int) -> None:
        profile = self._outputs.profile
        began = time.time()
        if profile is None or not self._wants_profile():
            seconds = self._play(program, length)
            times = None if profile is None else profile.times
            self._tracing.add(update_span(began, seconds, length, self.update, times))
            return
        with profile.recording(length):
            seconds = self._play(program, length)
        self._tracing.add(update_span(began, seconds, length, self.update, profile.times))
        if profile.times is not None:
            row = Row("MISC", self.update, self.timesteps, self.elapsed_seconds, None, profile.values())
            self._recorder.write([row])

    def _play(self, program: chunk.ChunkFunction, length: int) -> float:
        """The seconds that took."""
        began = time.monotonic()
        what = f"update {self.update + 1} cannot be computed"
        with reraise_device_errors(what, lambda: f"{LESS_MEMORY}{self._how_to_continue()}"):
            self.state, metrics = jax.block_until_ready(program(self.state, np.int32(length)))
        seconds = time.monotonic() - began
        _LOG.debug("updates %d to %d in %.3f s", self.update + 1, self.update + length, seconds)
        self._pace.update(length, seconds)
        self._share.train(length, seconds)
        self.update += length
        self._pending.add(metrics, length, seconds)
        interval = self._config.logging.log_interval
        if interval is None or _is_due(self.update, interval):
            self._report()
        return seconds

    def _wants_profile(self) -> bool:
        """From the second chunk of this process on: the first warms up."""
        profile = self._outputs.profile
        return profile is not None and not profile.is_over and self._pace.is_known

    def _report(self) -> None:
        if self._pending.updates == 0:
            return
        totals, updates, seconds = self._pending.take()
        metrics = report.reduce_metrics(totals, updates)
        steps = updates * self._steps_per_update
        progress = report.Progress(self.update, self.timesteps, self.elapsed_seconds, steps, seconds)
        self._recorder.write(report.training_rows(metrics, progress, self._seeds))
        broken = [name for name in MUST_BE_FINITE if name in metrics and not np.isfinite(metrics[name]).all()]
        if broken:
            raise RunError(
                f"{broken[0]} is not finite at update {self.update}; training stopped",
                f"{self._last_good()}lower the learning rates and continue with --resume",
            )

    def _evaluate_if_due(self, last: int, stop: StopRequest) -> None:
        """A run that shall stop is saved instead; the continued one evaluates then."""
        is_due = self.update == last or _is_due(self.update, self._config.evaluation.eval_interval)
        if not is_due or self._evaluated_at == self.update or self._shall_stop(stop):
            return
        if self.update == last:  # the last one may take as long as a policy that searches likes, and be cut off
            self.save(at_once=True)
        self._report()
        scored, began = None, time.monotonic()
        try:
            evaluating = self._tracing.span("evaluate", update=self.update)
            with contextlib.suppress(_StoppedEvaluation), self._group.deferring_errors(), evaluating:
                scored = self._scored(functools.partial(self._allow, stop))
            self._group.sync()  # that nothing failed
        except RunError as error:  # the state is as it was: nothing that was learned need be lost
            self.save(at_once=True)
            raise RunError(error.what, f"{error.hint}{self._how_to_continue()}") from error
        if (note := self._share.evaluate(time.monotonic() - began, is_last=self.update >= last)) is not None:
            self._outputs.note(note)
        if scored is not None:
            self._keep(*scored)
            self._evaluated_at = self.update
        if self._last_saved == self.update:
            self.save(at_once=True)  # whoever continues from it shall not evaluate it again

    def _allow(self, stop: StopRequest, steps: int) -> int:
        """How many steps an evaluation plays next, the lead's number in all processes, so that all end it together.

        When the run shall stop it is given up, unless the lead is through with the round.
        """
        agreed = self._group.sync(steps, stop.is_set)
        if agreed.flag and agreed.number > 0:
            raise _StoppedEvaluation
        return agreed.number

    def _scored(self, allow: StepBudget) -> tuple[Scores, list[Row]]:
        """(the scores that decide what is best, rows of all). In several processes each plays the same episodes."""
        evaluator, rows, at = self._outputs.evaluator, [], (self.update, self.timesteps, self.elapsed_seconds)
        asked = addressable_copy(self.state.params), addressable_copy(self.state.key), self.update
        watch = report_progress(lambda text: _LOG.info("evaluating: %s", text))
        scores = evaluator(*asked, watch=watch, allow=allow)
        rows += scores.rows(evaluator.mode, at, self._seeds)
        for beside in self._outputs.beside:
            rows += beside(*asked, watch=watch, allow=allow).rows(beside.mode, at, self._seeds)
        return scores, rows

    def _keep(self, scores: Scores, rows: list[Row]) -> None:
        self._recorder.write(rows)
        meta = self._meta._replace(update=self.update)
        self._recorder.update(addressable_copy(self.state.params), scores.mean_return(), meta, self._how_to_continue)

    @property
    def saved_update(self) -> int | None:
        """The update of the last whole checkpoint, which the run can be continued from; None if there is none."""
        return self._recorder.complete()

    def _checkpoint_path(self) -> Path | None:
        update, folder = self.saved_update, self._recorder.folder
        return None if update is None or folder is None else folder / str(update)

    def _last_good(self) -> str:
        path = self._checkpoint_path()
        return "" if path is None else f"the last good checkpoint is {path}; "

    def _how_to_continue(self) -> str:
        """The end of a hint: the checkpoint that the run can be continued from, if there is one."""
        path = self._checkpoint_path()
        return "" if path is None else f"; --resume {path.parents[1]} goes on from checkpoint {path}"


def _is_due(update: int, interval: int) -> bool:
    return interval > 0 and update % interval == 0
