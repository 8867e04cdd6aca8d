"""The loop of a run: chunks of updates on the device, and between them the callbacks that are due."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled

from stoix_like.errors import RunError, StorageError
from stoix_like.ops import trees
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.evaluators.text_episodes import text_player
from stoix_like.runtime.evaluators.timing import ChunkSizer
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.training.callbacks import Callback, LogMetrics, RunClock, SaveCheckpoint, StopTraining
from stoix_like.runtime.training.chunk import MetricAccumulator, TimedChunk, timed
from stoix_like.runtime.training.evaluate import Evaluate, Meet, WriteSamples
from stoix_like.runtime.training.parts import RunParts
from stoix_like.runtime.training.profile import Profile
from stoix_like.runtime.training.tracing import update_span
from stoix_like.runtime.training.writer import RunWriter

_LOG = logging.getLogger(__name__)
MEMORY_HINT = "raise --num-minibatches, or start a run with a lower --num-envs or --rollout-length"
DONE, INTERRUPTED = "done", "interrupted"


class Driver:
    """Runs a learner from a state to its last update, or until it is stopped.

    Where several callbacks are due, they run in the order of the list. The processes meet once per chunk, and take the
    same branches. The metrics of the chunks are accumulated for a callback that logs them.
    """

    def __init__(
        self,
        program: TimedChunk,
        clock: RunClock,
        callbacks: Sequence[Callback],
        metrics: MetricAccumulator,
        meet: Meet,
        writer: RunWriter,
    ) -> None:
        self._program, self._clock, self._callbacks, self._metrics = program, clock, callbacks, metrics
        self._meet, self._writer = meet, writer
        self._chunk_sizer, self._have_run = ChunkSizer(), set[Callback]()  # at the present update

    def run(self, state: Any) -> str:
        """The status of the run: done, interrupted, or the reason of a `StopTraining`. The state is donated.

        Raises:
            StoixError: a loss is not finite, a file cannot be written, or memory ran out, in any process.
        """
        clock, tracing = self._clock, self._writer.tracing
        for callback in self._callbacks:
            callback.ran_at, callback.due_at = clock.update, clock.last_update + 1
        state, stop = self._run_callbacks(state)  # such as the evaluation that an interruption skipped
        while True:
            decision = self._meet(self._wanted_length(), stop=stop is not None)
            if decision.stop or clock.is_last:
                break
            with tracing.span("chunk", from_update=clock.update):
                state = self._train_chunk(state, decision.length)
                state, stop = self._run_callbacks(state)
            self._writer.trace()
        clock.is_ending = True
        self._run_callbacks(state)
        self._writer.wait_until_written()
        self._meet()  # raises what could not be written
        if stop is not None and stop.error is not None:
            raise self._with_checkpoint(stop.error)
        if clock.is_last and clock.evaluated_at == clock.update:
            return DONE
        return INTERRUPTED if stop is None else stop.reason

    def _with_checkpoint(self, error: Exception) -> Exception:
        """The error, with a hint that says how to continue."""
        if not isinstance(error, RunError):
            return error
        kind = StorageError if isinstance(error, StorageError) else RunError
        continued = kind(error.what, f"{error.hint}{self._writer.how_to_continue()}")
        continued.__cause__ = error.__cause__ or error
        return continued

    def _wanted_length(self) -> int:
        """Number of updates of the next chunk, as estimated by this process."""
        for callback in self._callbacks:
            due_at = next_update(callback, self._clock)
            callback.due_at = min(due_at, callback.due_at) if callback.due_at > self._clock.update else due_at
        due = min([self._clock.last_update, *(callback.due_at for callback in self._callbacks)])
        return self._chunk_sizer.next_length(max(1, due - self._clock.update))

    def _run_callbacks(self, state: Any) -> tuple[Any, StopTraining | None]:
        """(state, the first request of a callback to stop). Runs the callbacks that are due, once at each update."""
        stop = None
        for callback in self._callbacks:
            now, due_at = self._clock.update, next_update(callback, self._clock)
            is_due = due_at <= now or (callback.due_at <= now and not self._clock.is_ending)
            if not is_due or callback in self._have_run:
                continue
            self._have_run.add(callback)
            try:
                returned = callback.run(state, self._clock)
                state = returned if returned is state else replaced_state(callback, state, returned)
            except StopTraining as request:
                stop = stop or request
            callback.ran_at, callback.due_at = now, self._clock.last_update + 1
        return state, stop

    def _train_chunk(self, state: Any, length: int) -> Any:
        """The state after `length` updates."""
        clock, began = self._clock, time.time()
        what = f"update {clock.update + 1} cannot be computed"
        with reraise_device_errors(what, lambda: f"{MEMORY_HINT}{self._writer.how_to_continue()}"):
            state, metrics, seconds = self._program(state, length)
        _LOG.debug("updates %d to %d in %.3f s", clock.update + 1, clock.update + length, seconds)
        self._chunk_sizer.record(length, seconds)
        clock.update += length
        clock.training_seconds += seconds
        self._have_run.clear()
        self._metrics.add(metrics, length, seconds)
        tracing = self._writer.tracing
        tracing.add(update_span(began, seconds, length, clock.update, tracing.times))
        return state


def next_update(callback: Callback, clock: RunClock) -> int:
    """The update at which a callback is due. Raises RunError if it returned something else."""
    if not isinstance(due_at := callback.next_update(clock), (int, np.integer)):
        what = f"{type(callback).__name__}.next_update returned {due_at!r}"
        raise RunError(what, "return the number of an update, such as clock.next_due(10, after=self.ran_at)")
    return int(due_at)


def replaced_state(callback: Callback, before: Any, after: Any) -> Any:
    """The state that a callback returned, in the types and the placement of the one before; RunError if none fits."""
    hint = "return the state, or state._replace(...) with values of the same shapes"
    if type(after) is not type(before):
        raise RunError(f"{type(callback).__name__}.run returned no state, but {type(after).__name__}", hint)
    old, new = ({name: np.shape(x) for name, x in trees.named_leaves(state).items()} for state in (before, after))
    for name in (name for name in old | new if old.get(name) != new.get(name)):
        shapes = f"{name} of shape {new.get(name)}, not {old.get(name)}"
        raise RunError(f"{type(callback).__name__}.run returned a state with {shapes}", hint)
    seen: set[int] = set()

    def place(old: Any, new: Any) -> Any:
        is_repeated = id(new) in seen  # a buffer cannot be donated twice
        seen.add(id(new))
        if new is old and not is_repeated:
            return new
        new = new if isinstance(new, jax.Array) and new.dtype == old.dtype else np.asarray(new, old.dtype)
        return jax.device_put(jnp.copy(new) if is_repeated else new, old.sharding)

    return jax.tree.map(place, before, after)


def make_driver(
    parts: RunParts, program: Compiled, writer: RunWriter, save: SaveCheckpoint, meet: Meet, reporter: Reporter
) -> tuple[Driver, Profile | None]:
    """(the driver with its callbacks in order, the profile that the command asks for)."""
    plan, config, clock = parts.plan, parts.config, parts.clock
    evaluation, core = config.evaluation, config.training_core
    intervals = evaluation.eval_interval, config.checkpointing.save_interval
    seeds = [config.architecture.seed + index for index in range(core.num_seeds)]
    metrics = MetricAccumulator(config.environment.task_id)
    log = LogMetrics(metrics, config.logging.log_interval, intervals, seeds, writer)
    evaluate = Evaluate(parts.evaluators, evaluation.eval_interval, seeds, writer, meet, save, reporter)
    every: list[Callback] = [log, evaluate, *_samples(parts), *parts.callbacks, save]
    is_kept = parts.loaded.options.profile
    profile, chunks = None, timed(program)
    if parts.group.is_primary and (is_kept or config.logging.otlp_endpoint is not None):  # spans report the phases
        profile = Profile(plan.path / "profile", writer, is_kept=is_kept)
        every.insert(1, profile)
        chunks = profile.wrap(program)
    return Driver(chunks, clock, every, metrics, meet, writer), profile if is_kept else None


def _samples(parts: RunParts) -> list[Callback]:
    """What shows the episodes of a language agent, if they are asked for."""
    if not (parts.algorithm.speaks and parts.evaluators and parts.group.is_primary):
        return []
    if (count := parts.config.agent.num_shown_episodes) == 0:
        return []
    num_seeds = parts.config.training_core.num_seeds
    return [WriteSamples(text_player(parts.config, count), parts.plan.path / "samples", num_seeds)]
