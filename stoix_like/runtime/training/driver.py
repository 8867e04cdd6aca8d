"""The host's side of a run: between chunks it logs metrics, evaluates, saves checkpoints and checks for a stop."""

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

from stoix_like.algorithms.rollout import refuse_undeclared
from stoix_like.config.checks import steps_per_update
from stoix_like.errors import INTERRUPTED, RunError
from stoix_like.runtime.console.text import Value
from stoix_like.runtime.evaluators.episode_player import play_to_end
from stoix_like.runtime.evaluators.scores import Evaluator, Scores
from stoix_like.runtime.evaluators.timing import ChunkSizer, EvaluationTimeShare
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.hardware.process_group import ProcessGroup, addressable_copy
from stoix_like.runtime.runs.checkpoint import CheckpointMeta
from stoix_like.runtime.runs.host_values import RunProgress, run_progress
from stoix_like.runtime.runs.stored_state import without_replay
from stoix_like.runtime.telemetry import Row, rows
from stoix_like.runtime.training import chunk
from stoix_like.runtime.training.profile import MOST_UPDATES, Profile
from stoix_like.runtime.training.stopping import StopRequest
from stoix_like.runtime.training.tracing import Tracing, update_span
from stoix_like.runtime.training.writer import RunWriter

_LOG = logging.getLogger(__name__)
MEMORY_HINT = "raise --num-minibatches, or start a run with a lower --num-envs or --rollout-length"
#: Metrics of the learning step: a NaN or infinity in them stops the run.
MUST_BE_FINITE = ("trainer/policy_loss", "trainer/value_loss", "trainer/global_grad_norm")


def next_stop(update: int, last: int, *intervals: int) -> int:
    """The next update at which something is due: a multiple of an interval (0 = never), or the last update."""
    due = [update - update % interval + interval for interval in intervals if interval > 0]
    return min([last, *due])


class _StoppedEvaluation(Exception):
    """The run stops before an evaluation is complete."""


class RunOutputs(NamedTuple):
    """The evaluators of a run, and what its results are written to."""

    evaluator: Evaluator
    writer: RunWriter
    note: Callable[[str], None]  # shows a note on the terminal
    profile: Profile | None = None
    extra_evaluators: tuple[Evaluator, ...] = ()  # of other modes, on the same levels


class Driver:
    """Runs a learner from a state to its last update, or until it is stopped.

    Args:
        state: the learner's state, [S, ...] for several seeds. The driver donates it.
        config: an algorithm's configuration.
        meta: metadata of the run's checkpoints; `update` is the update of the state.
        outputs: evaluators, and what results are written to.
        is_continued: whether there is a checkpoint of this state.
        group: the processes of the run. All take the same branches: decisions are broadcast by `sync`.
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
        self._writer = outputs.writer
        self._group = group
        self._pending = chunk.MetricAccumulator()
        self._chunk_sizer = ChunkSizer()
        self._tracing = Tracing()
        self._time_share = EvaluationTimeShare()
        self._began = time.monotonic()
        before = run_progress(meta)
        self._before_seconds = before.elapsed_seconds
        self._last_saved = self.update if is_continued else -1
        self._evaluated_at = self._saved_evaluated_at = before.evaluated_at
        core = config.training_core
        self._seeds = [config.architecture.seed + i for i in range(core.num_seeds)]
        self._steps_per_update = steps_per_update(config)

    def run(self, program: chunk.ChunkFunction, stop: StopRequest) -> int:
        """0 after the last update, 130 if stopped; a checkpoint is saved in both cases.

        Raises:
            RunError: a loss is not finite, a file cannot be written, or memory ran out, in any process.
        """
        last = self._config.training_core.num_updates
        evaluation, checkpointing = self._config.evaluation, self._config.checkpointing
        log_interval = self._config.logging.log_interval or 0
        self._evaluate_if_due(last, stop)  # the evaluation that an interruption skipped
        while self.update < last and not self._shall_stop(stop):
            due = next_stop(self.update, last, evaluation.eval_interval, checkpointing.save_interval, log_interval)
            with self._tracing.span("chunk", from_update=self.update):
                self._train_chunk(program, self._group.sync(self._wanted_length(due)).number)
                self._writer.check_for_errors()
                self._evaluate_if_due(last, stop)
                if _is_due(self.update, checkpointing.save_interval):
                    self.save()
            self._writer.trace(self._tracing.take())
        self.save(at_once=True)
        self._writer.wait_until_written()
        self._group.sync()  # raises what failed
        return 0 if self.update == last == self._evaluated_at else INTERRUPTED

    def _shall_stop(self, stop: StopRequest) -> bool:
        return self._group.sync(0, stop.is_set).flag

    def _wanted_length(self, due: int) -> int:
        """Number of updates of the next chunk, as estimated by this process."""
        length = self._chunk_sizer.next_length(due - self.update)
        return min(length, MOST_UPDATES) if self._wants_profile() else length

    @property
    def elapsed_seconds(self) -> float:
        """Wall-clock seconds of the run, including those before it was resumed."""
        return self._before_seconds + time.monotonic() - self._began

    @property
    def timesteps(self) -> int:
        """Environment steps of one seed."""
        return self.update * self._steps_per_update

    def save(self, *, at_once: bool = False) -> None:
        """Reports pending metrics, then saves a checkpoint of the state unless this update has one.

        It is written while training continues, or before returning if `at_once`. Raises RunError if this checkpoint or
        the one before cannot be written.
        """
        self._report()
        host = RunProgress(self.elapsed_seconds, self._evaluated_at).to_host()
        if self._last_saved == self.update:
            if self._saved_evaluated_at != self._evaluated_at:  # evaluated after the checkpoint was saved
                self._writer.rewrite_host(self.update, host)
                self._saved_evaluated_at = self._evaluated_at
            return
        keeps_replay = self._config.checkpointing.save_replay
        stored = self.state if keeps_replay else without_replay(self.state)
        saved = functools.partial(self._saved_row, self.update, self.timesteps)
        with self._tracing.span("checkpoint", update=self.update):  # the time training waits; a thread writes the rest
            self._writer.save(stored, self._meta._replace(update=self.update, host=host), saved, at_once=at_once)
        self._last_saved, self._saved_evaluated_at = self.update, self._evaluated_at

    def log_failure(self, what: str) -> None:
        """Logs the last row of a run that failed: the error message."""
        values: dict[str, Value] = {"misc/event": "failed", "misc/message": what}
        self._writer.write([Row("MISC", self.update, self.timesteps, self.elapsed_seconds, None, values)])

    def _saved_row(self, update: int, timesteps: int, path: Path) -> Row:
        values: dict[str, Value] = {"misc/event": "checkpoint_saved", "misc/path": str(Path(*path.parts[-2:]))}
        return Row("MISC", update, timesteps, self.elapsed_seconds, None, values)

    def _train_chunk(self, program: chunk.ChunkFunction, length: int) -> None:
        profile = self._outputs.profile
        began = time.time()
        if profile is None or not self._wants_profile():
            seconds = self._run_chunk(program, length)
            times = None if profile is None else profile.times
            self._tracing.add(update_span(began, seconds, length, self.update, times))
            return
        with profile.recording(length):
            seconds = self._run_chunk(program, length)
        self._tracing.add(update_span(began, seconds, length, self.update, profile.times))
        if profile.times is not None:
            row = Row("MISC", self.update, self.timesteps, self.elapsed_seconds, None, profile.values())
            self._writer.write([row])

    def _run_chunk(self, program: chunk.ChunkFunction, length: int) -> float:
        """Wall-clock seconds of a chunk of `length` updates."""
        began = time.monotonic()
        what = f"update {self.update + 1} cannot be computed"
        with reraise_device_errors(what, lambda: f"{MEMORY_HINT}{self._how_to_continue()}"):
            self.state, metrics = jax.block_until_ready(program(self.state, np.int32(length)))
        seconds = time.monotonic() - began
        _LOG.debug("updates %d to %d in %.3f s", self.update + 1, self.update + length, seconds)
        self._chunk_sizer.record(length, seconds)
        self._time_share.add_updates(length, seconds)
        self.update += length
        self._pending.add(refuse_undeclared(metrics, self._config.environment.task_id), length, seconds)
        interval = self._config.logging.log_interval
        if interval is None or _is_due(self.update, interval):
            self._report()
        return seconds

    def _wants_profile(self) -> bool:
        """True from the second chunk of this process on, until the profile is taken; the first chunk warms up."""
        profile = self._outputs.profile
        return profile is not None and not profile.is_over and self._chunk_sizer.is_known

    def _report(self) -> None:
        if self._pending.updates == 0:
            return
        totals, updates, seconds = self._pending.take()
        metrics = rows.reduce_metrics(totals, updates)
        steps = updates * self._steps_per_update
        progress = rows.Progress(self.update, self.timesteps, self.elapsed_seconds, steps, seconds)
        self._writer.write(rows.training_rows(metrics, progress, self._seeds))
        broken = [name for name in MUST_BE_FINITE if name in metrics and not np.isfinite(metrics[name]).all()]
        if broken:
            raise RunError(
                f"{broken[0]} is not finite at update {self.update}; training stopped",
                f"{self._last_good()}lower the learning rates and continue with --resume",
            )

    def _evaluate_if_due(self, last: int, stop: StopRequest) -> None:
        """Evaluates unless the run shall stop: then it is saved, and the resumed run evaluates."""
        is_due = self.update == last or _is_due(self.update, self._config.evaluation.eval_interval)
        if not is_due or self._evaluated_at == self.update or self._shall_stop(stop):
            return
        if self.update == last:  # saved first: the evaluation of a policy that searches may take long and be killed
            self.save(at_once=True)
        self._report()
        scored, began = None, time.monotonic()
        try:
            evaluating = self._tracing.span("evaluate", update=self.update)
            with contextlib.suppress(_StoppedEvaluation), self._group.deferring_errors(), evaluating:
                scored = self._scores_and_rows(functools.partial(self._agreed_steps, stop))
            self._group.sync()  # raises what failed
        except RunError as error:  # the state is intact, so it is saved
            self.save(at_once=True)
            raise RunError(error.what, f"{error.hint}{self._how_to_continue()}") from error
        note = self._time_share.note_on_evaluation(time.monotonic() - began, is_last=self.update >= last)
        if note is not None:
            self._outputs.note(note)
        if scored is not None:
            self._log_scores(*scored)
            self._evaluated_at = self.update
        if self._last_saved == self.update:
            self.save(at_once=True)  # stores in the checkpoint that this update has been evaluated

    def _agreed_steps(self, stop: StopRequest, steps: int) -> int:
        """How many steps an evaluation plays next: process 0's number, so that all processes end the round together.

        If the run shall stop the evaluation is abandoned, unless the round is complete.
        """
        decision = self._group.sync(steps, stop.is_set)
        if decision.flag and decision.number > 0:
            raise _StoppedEvaluation
        return decision.number

    def _scores_and_rows(self, agree: Callable[[int], int]) -> tuple[Scores, list[Row]]:
        """(scores of the main evaluator, rows of all evaluators). Every process plays the same episodes."""
        rows: list[Row] = []
        every: list[Scores] = []
        arguments = addressable_copy(self.state.params), addressable_copy(self.state.key), self.update
        evaluators = (self._outputs.evaluator, *self._outputs.extra_evaluators)
        for evaluator in evaluators:
            playing = evaluator.play(*arguments)
            every.append(play_to_end(playing, lambda text: _LOG.info("evaluating: %s", text), agree))
            at = self.update, self.timesteps, self.elapsed_seconds  # after the evaluation
            rows += every[-1].rows(evaluator.mode, at, self._seeds)
        return every[0], rows

    def _log_scores(self, scores: Scores, rows: list[Row]) -> None:
        self._writer.write(rows)
        meta = self._meta._replace(update=self.update)
        self._writer.update(addressable_copy(self.state.params), scores.mean_return(), meta, self._how_to_continue)

    @property
    def saved_update(self) -> int | None:
        """The update of the last complete checkpoint, or None."""
        return self._writer.last_saved_update()

    def _checkpoint_path(self) -> Path | None:
        update, folder = self.saved_update, self._writer.folder
        return None if update is None or folder is None else folder / str(update)

    def _last_good(self) -> str:
        path = self._checkpoint_path()
        return "" if path is None else f"the last good checkpoint is {path}; "

    def _how_to_continue(self) -> str:
        """The end of a hint: how to resume from the last checkpoint, if there is one."""
        path = self._checkpoint_path()
        return "" if path is None else f"; --resume {path.parents[1]} continues from checkpoint {path}"


def _is_due(update: int, interval: int) -> bool:
    return interval > 0 and update % interval == 0
