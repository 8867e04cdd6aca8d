"""The host's side of a run: between chunks it reports, evaluates, saves, and looks whether it should stop."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.config_checks import steps_per_update
from stoix_like.errors import INTERRUPTED, RunError
from stoix_like.runtime import loop, report
from stoix_like.runtime.best import BestKeeper
from stoix_like.runtime.checkpoint import CheckpointStore, Meta, without_replay
from stoix_like.runtime.devices import plain_errors
from stoix_like.runtime.messages import SignOfLife
from stoix_like.runtime.profile import MOST_UPDATES, Profile
from stoix_like.runtime.scoring import Evaluator, Scores
from stoix_like.runtime.stopping import StopRequest
from stoix_like.runtime.telemetry import Row, Telemetry
from stoix_like.runtime.telemetry.sink import Value

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


class _Watch:
    """Says now and then how far a long evaluation is, and ends it when the run shall stop."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        self._sign = SignOfLife(lambda text: _LOG.info("evaluating: %s", text))

    def __call__(self, finished: int, episodes: int, step: int) -> None:
        if self._stop.is_set and finished < episodes:
            raise _StoppedEvaluation
        self._sign(finished, episodes, step)


class Outputs(NamedTuple):
    """Where the results of a run go."""

    evaluator: Evaluator
    best: BestKeeper
    store: CheckpointStore
    telemetry: Telemetry
    profile: Profile | None = None
    beside: tuple[Evaluator, ...] = ()  # what else is scored, on the same levels


class Driver:
    """One run from a state to its last update, or to where it is stopped.

    Args:
        state: the learner's state, [S, ...] for several seeds; owned by the driver from now on.
        config: an algorithm's configuration.
        meta: what checkpoints say of the run; `update` is the update the state is at.
        outputs: where results go.
    """

    def __init__(self, state: Any, config: Any, meta: Meta, outputs: Outputs) -> None:
        self.state = state
        self.update = meta.update
        self._config = config
        self._meta = meta
        self._outputs = outputs
        self._pending = loop.Pending()
        self._pace = loop.Pace()
        self._began = time.monotonic()
        self._before_seconds = float(meta.host.get("elapsed_seconds", 0.0))
        self._last_saved = self.update if outputs.store.updates() else -1
        self._evaluated_at = self._noted_evaluation = int(meta.host.get("evaluated_at", self.update))
        core = config.training_core
        self._seeds = [config.architecture.seed + i for i in range(core.num_seeds)]
        self._steps_per_update = steps_per_update(config)

    def run(self, program: loop.Program, stop: StopRequest) -> int:
        """0 when the last update is done, 130 when stopped; either way everything is saved.

        Raises:
            RunError: a loss is not finite, the disk cannot be written, or memory ran out.
        """
        last = self._config.training_core.num_updates
        evaluation, checkpointing = self._config.evaluation, self._config.checkpointing
        log_interval = self._config.logging.log_interval or 0
        self._evaluate_if_due(last, stop)  # what an interruption left out
        while self.update < last and not stop.is_set:
            due = next_stop(self.update, last, evaluation.eval_interval, checkpointing.save_interval, log_interval)
            length = self._pace.length(due - self.update)
            if self._wants_profile():
                self._advance_profiled(program, min(length, MOST_UPDATES))
            else:
                self._advance(program, length)
            self._evaluate_if_due(last, stop)
            if _is_due(self.update, checkpointing.save_interval):
                self.save()
        self.save()
        return 0 if self.update == last == self._evaluated_at else INTERRUPTED

    @property
    def elapsed_seconds(self) -> float:
        """Wall-clock seconds of the run, those before an interruption included."""
        return self._before_seconds + time.monotonic() - self._began

    @property
    def timesteps(self) -> int:
        """Environment steps of one seed."""
        return self.update * self._steps_per_update

    def save(self) -> None:
        """A checkpoint of the state as it is, unless there is one; what was played before it is reported first."""
        self._report()
        host = {"elapsed_seconds": round(self.elapsed_seconds, 3), "evaluated_at": self._evaluated_at}
        if self._last_saved == self.update:
            if self._noted_evaluation != self._evaluated_at:  # made after it, or made up for after a stop
                self._outputs.store.rewrite_host(self.update, host)
                self._noted_evaluation = self._evaluated_at
                self._outputs.best.prune()
            return
        keeps_replay = self._config.checkpointing.save_replay
        stored = self.state if keeps_replay else without_replay(self.state)
        path = self._outputs.store.save(stored, self._meta._replace(update=self.update, host=host))
        self._last_saved, self._noted_evaluation = self.update, self._evaluated_at
        self._outputs.best.prune()
        values: dict[str, Value] = {"misc/event": "checkpoint_saved", "misc/path": str(Path(*path.parts[-2:]))}
        self._write([Row("MISC", self.update, self.timesteps, self.elapsed_seconds, None, values)])

    def _write(self, rows: list[Row]) -> None:
        self._outputs.telemetry.write(rows)

    def _advance(self, program: loop.Program, length: int) -> None:
        began = time.monotonic()
        with plain_errors(f"update {self.update + 1} cannot be computed", f"{LESS_MEMORY}{self._how_to_continue()}"):
            self.state, metrics = jax.block_until_ready(program(self.state, np.int32(length)))
        seconds = time.monotonic() - began
        _LOG.debug("updates %d to %d in %.3f s", self.update + 1, self.update + length, seconds)
        self._pace.learn(length, seconds)
        self.update += length
        self._pending.add(metrics, length, seconds)
        interval = self._config.logging.log_interval
        if interval is None or _is_due(self.update, interval):
            self._report()

    def _wants_profile(self) -> bool:
        """From the second chunk of this process on: the first warms up."""
        profile = self._outputs.profile
        return profile is not None and not profile.is_over and self._pace.is_known

    def _advance_profiled(self, program: loop.Program, length: int) -> None:
        profile = self._outputs.profile
        assert profile is not None  # narrows the type
        with profile.recording(length):
            self._advance(program, length)
        if profile.times is not None:
            self._write([Row("MISC", self.update, self.timesteps, self.elapsed_seconds, None, profile.values())])

    def _report(self) -> None:
        if self._pending.updates == 0:
            return
        totals, updates, seconds = self._pending.take()
        metrics = report.reduce_metrics(totals, updates)
        steps = updates * self._steps_per_update
        progress = report.Progress(self.update, self.timesteps, self.elapsed_seconds, steps, seconds)
        self._write(report.training_rows(metrics, progress, self._seeds))
        broken = [name for name in MUST_BE_FINITE if name in metrics and not np.isfinite(metrics[name]).all()]
        if broken:
            raise RunError(
                f"{broken[0]} is not finite at update {self.update}; training stopped",
                f"the last good checkpoint is {self._last_checkpoint()}; lower the learning rates and continue with"
                " --resume",
            )

    def _evaluate_if_due(self, last: int, stop: StopRequest) -> None:
        """A run that shall stop is saved instead; the continued one evaluates then."""
        is_due = self.update == last or _is_due(self.update, self._config.evaluation.eval_interval)
        if is_due and self._evaluated_at != self.update and not stop.is_set:
            if self.update == last:  # the last one may take as long as a policy that searches likes, and be cut off
                self.save()
            self._report()
            with contextlib.suppress(_StoppedEvaluation):
                self._evaluate(_Watch(stop))
                self._evaluated_at = self.update

    def _evaluate(self, watch: _Watch) -> None:
        evaluator, best = self._outputs.evaluator, self._outputs.best
        asked = self.state.params, self.state.key, self.update
        try:
            scores = evaluator(*asked, watch=watch)
            rows = self._evaluation_rows(scores, evaluator)
            for beside in self._outputs.beside:
                rows += self._evaluation_rows(beside(*asked, watch=watch), beside)
        except RunError as error:  # the state is as it was: nothing that was learned need be lost
            self.save()
            raise RunError(error.what, f"{error.hint}{self._how_to_continue()}") from error
        self._write(rows)
        with plain_errors("the best parameters cannot be kept", f"free some memory{self._how_to_continue()}"):
            best.offer(self.state.params, scores.mean_return(), self._meta._replace(update=self.update))

    def _last_checkpoint(self) -> Path:
        return self._outputs.store.folder / str(self._last_saved)

    @property
    def saved_update(self) -> int | None:
        """The update of the last checkpoint, which the run can be continued from; None if there is none."""
        return self._last_saved if self._last_saved >= 0 else None

    def _how_to_continue(self) -> str:
        """The end of a hint: the checkpoint that the run can be continued from, if there is one."""
        if self._last_saved < 0:
            return ""
        return f"; --resume {self._outputs.store.folder.parent} goes on from checkpoint {self._last_checkpoint()}"

    def _evaluation_rows(self, scores: Scores, evaluator: Evaluator) -> list[Row]:
        rows = []
        for index, seed in enumerate(self._seeds):
            of_seed = {name: values[index] for name, values in scores.results.items()}
            values: dict[str, Value] = dict(report.evaluator_rows(of_seed, evaluator.mode, scores.seconds))
            if scores.level_hash:
                values[f"{report.EVALUATION_PREFIXES[evaluator.mode]}/level_hash"] = scores.level_hash
            rows.append(Row("EVALUATOR", self.update, self.timesteps, self.elapsed_seconds, seed, values))
        return rows


def _is_due(update: int, interval: int) -> bool:
    return interval > 0 and update % interval == 0
