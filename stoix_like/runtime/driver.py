"""The host's side of a run: between chunks it reports, evaluates, saves, and looks whether it should stop."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np

from stoix_like.errors import RunError
from stoix_like.runtime import loop, report
from stoix_like.runtime.best import BestKeeper
from stoix_like.runtime.checkpoint import CheckpointStore, Meta
from stoix_like.runtime.scoring import Evaluator, Scores
from stoix_like.runtime.telemetry import Row, Telemetry

INTERRUPTED = 130


def next_stop(update: int, last: int, *intervals: int) -> int:
    """The next update after `update` at which something is due: a multiple of an interval (0 = never), or the last."""
    due = [update - update % interval + interval for interval in intervals if interval > 0]
    return min([last, *due])


class Driver:
    """One run from a state to its last update, or to where it is stopped.

    Args:
        program: the compiled chunk.
        state: the learner's state, [S, ...] for several seeds; owned by the driver from now on.
        config: sections `training_core`, `evaluation`, `logging`, `checkpointing`, `environment`, `architecture`.
        meta: what checkpoints say of the run; `update` is the update the state is at.
        evaluator, best, store, telemetry: where scores come from and results go.
    """

    def __init__(
        self,
        program: loop.Program,
        state: Any,
        config: Any,
        meta: Meta,
        evaluator: Evaluator,
        best: BestKeeper,
        store: CheckpointStore,
        telemetry: Telemetry,
    ) -> None:
        self.state = state
        self.update = meta.update
        self._program = program
        self._config = config
        self._meta = meta
        self._evaluator = evaluator
        self._best = best
        self._store = store
        self._telemetry = telemetry
        self._pending = loop.Pending()
        self._pace = loop.Pace()
        self._began = time.monotonic()
        self._before_seconds = float(meta.host.get("elapsed_seconds", 0.0))
        self._last_saved = self.update if store.updates() else -1
        self._stop_signal: int | None = None
        core = config.training_core
        self._seeds = [config.architecture.seed + i for i in range(core.num_seeds)]
        self._steps_per_update = config.environment.num_envs * core.rollout_length

    def run(self) -> int:
        """0 when the last update is done, 130 when stopped by a signal; either way everything is saved.

        Raises:
            RunError: a loss is not finite, or the disk cannot be written.
        """
        last = self._config.training_core.num_updates
        evaluation, checkpointing = self._config.evaluation, self._config.checkpointing
        with self._stopping_on_signals():
            if self._last_saved < 0:
                self._save()
            while self.update < last and self._stop_signal is None:
                stop = next_stop(
                    self.update,
                    last,
                    evaluation.eval_interval,
                    checkpointing.save_interval,
                    self._config.logging.log_interval or 0,
                )
                self._advance(min(self._pace.length(stop - self.update), stop - self.update))
                if self.update == last or _is_due(self.update, evaluation.eval_interval):
                    self._report()
                    self._evaluate()
                if _is_due(self.update, checkpointing.save_interval):
                    self._save()
            self._report()
            self._save()
        return 0 if self.update == last else INTERRUPTED

    @property
    def elapsed_seconds(self) -> float:
        """Wall-clock seconds of the run, those before an interruption included."""
        return self._before_seconds + time.monotonic() - self._began

    @property
    def timesteps(self) -> int:
        """Environment steps of one seed."""
        return self.update * self._steps_per_update

    def _advance(self, length: int) -> None:
        began = time.monotonic()
        self.state, metrics = self._program.run(self.state, np.int32(length))
        metrics = jax.block_until_ready(metrics)
        seconds = time.monotonic() - began
        self._pace.learn(length, seconds)
        self.update += length
        self._pending.add(metrics, length, seconds)
        interval = self._config.logging.log_interval
        if interval is None or _is_due(self.update, interval):
            self._report()

    def _report(self) -> None:
        if self._pending.updates == 0:
            return
        totals, updates, seconds = self._pending.take()
        metrics = report.reduce_metrics(totals, updates)
        progress = report.Progress(
            self.update, self.timesteps, self.elapsed_seconds, updates * self._steps_per_update, seconds
        )
        self._telemetry.write(report.training_rows(metrics, progress, self._seeds))
        broken = sorted(n for n, v in metrics.items() if n.startswith("trainer/") and not np.isfinite(v).all())
        if broken:
            good = f"the last good checkpoint is {self._store.folder / str(self._last_saved)}"
            raise RunError(
                f"{broken[0]} is not finite at update {self.update}; training stopped",
                f"{good}; lower the learning rates and continue with --resume",
            )

    def _evaluate(self) -> None:
        scores = self._evaluator(self.state.params, self.state.key, self.update)
        self._telemetry.write(self._evaluation_rows(scores))
        meta = self._meta._replace(update=self.update)
        self._best.offer(self.state.params, scores.mean_return(), meta)

    def _evaluation_rows(self, scores: Scores) -> list[Row]:
        rows = []
        for index, seed in enumerate(self._seeds):
            of_seed = {name: values[index] for name, values in scores.results.items()}
            values: dict[str, Any] = dict(report.evaluator_rows(of_seed, self._evaluator.mode, scores.seconds))
            if scores.level_hash:
                values["evaluator/level_hash"] = scores.level_hash
            rows.append(Row("EVALUATOR", self.update, self.timesteps, self.elapsed_seconds, seed, values))
        return rows

    def _save(self) -> None:
        if self._last_saved == self.update:
            return
        host = {"elapsed_seconds": round(self.elapsed_seconds, 3)}
        path = self._store.save(self.state, self._meta._replace(update=self.update, host=host))
        self._last_saved = self.update
        values: dict[str, Any] = {"misc/event": "checkpoint_saved", "misc/path": str(_relative(path))}
        self._telemetry.write([Row("MISC", self.update, self.timesteps, self.elapsed_seconds, None, values)])

    @contextlib.contextmanager
    def _stopping_on_signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM ends the chunk; a second one ends the program at once."""

        def stop(number: int, _: FrameType | None) -> None:
            if self._stop_signal is not None:
                raise KeyboardInterrupt
            self._stop_signal = number

        previous = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                previous[number] = signal.signal(number, stop)
        except ValueError:  # not the main thread: signals belong to whoever runs it
            pass
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _is_due(update: int, interval: int) -> bool:
    return interval > 0 and update % interval == 0


def _relative(path: Path) -> Path:
    """The path inside the run folder, so that a moved run still tells the truth."""
    return Path(*path.parts[-2:])
