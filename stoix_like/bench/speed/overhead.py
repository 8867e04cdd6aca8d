"""The time that a training spends on checkpoints and evaluations, with the intervals of its preset."""

from __future__ import annotations

import contextlib
import functools
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.bench.timing.measure import Measurement, time_interleaved
from stoix_like.bench.timing.updates import preset_config
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.dicts import config_to_dict
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.evaluators.scores import Evaluator, make_levels
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.host_values import RunProgress
from stoix_like.runtime.telemetry import Clock, RunMeta, event, open_telemetry
from stoix_like.runtime.training import chunk
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.writer import RunFiles, RunWriter

#: Without spo/binpack, whose update takes a minute on a core.
PRESETS = ("ppo/quick", "ppo/binpack", "ppo/maze", "spo/maze", "spo/quick")
#: {preset: updates before} of presets whose evaluations alone are measured. An untrained snake dies at once.
EVALUATED = {"ppo/snake": 100, "ppo/maze_mlp": 0, "spo/maze_mlp": 0}
SECONDS = 4.0  # of training per checkpoint


def overhead_suite() -> Iterator[Measurement]:
    """The shares of a preset's time that checkpoints and evaluations take."""
    for preset in PRESETS:
        training = _Training(preset)
        yield training.evaluation_share()  # measured first: training changes the length of episodes
        yield training.checkpoint_share()
    for preset, updates in EVALUATED.items():
        training = _Training(preset)
        if updates:
            training.advance(updates)
        yield training.evaluation_share()


class _Training:
    """A training in this process that is advanced by some updates at a time, as the driver does."""

    def __init__(self, preset: str) -> None:
        self.preset, self.config = preset, preset_config(preset)
        algorithm = preset.partition("/")[0]
        built = build.build(algorithm, self.config)
        self.learner, self.env = built.learner, built.env
        self.state = jax.jit(built.learner.init)(jax.random.key(0))
        self.program = chunk.compile_chunk(built.learner, 1, self.state)
        self.meta = CheckpointMeta(algorithm, self.config.environment.task_id, 0, config_to_dict(self.config), {})

    @functools.cached_property
    def seconds(self) -> float:
        """The time of an update, measured on a few."""
        return time_interleaved({"update": lambda: self.advance(1)}, repetitions=3)["update"].seconds

    def advance(self, updates: int) -> Any:
        """Trains for that number of updates; returns their metrics."""
        self.state, metrics = self.program(self.state, np.int32(updates))
        return jax.block_until_ready(metrics)

    def checkpoint_share(self) -> Measurement:
        """The cost of a checkpoint: updates with and without a checkpoint written at the same time, alternately."""
        updates = max(1, round(SECONDS / self.seconds))
        numbers = itertools.count(1)
        with tempfile.TemporaryDirectory() as folder, _run_writer(Path(folder), self) as writer:

            def advance_and_save() -> Any:
                number = next(numbers)
                saved = event(Clock(number, 0, 0.0), "checkpoint_saved")
                writer.save(self.state, number, RunProgress(), lambda _: saved)
                metrics = self.advance(updates)
                writer.wait_until_written()
                return metrics

            functions = {"without": lambda: self.advance(updates), "with": advance_and_save}
            timings = time_interleaved(functions, repetitions=7 if self.seconds < SECONDS else 3)
            size = last_checkpoint_megabytes(Path(folder) / "checkpoints")
        alone, both = timings["without"], timings["with"]
        interval = self.config.checkpointing.save_interval
        cost, update = both.seconds - alone.seconds, alone.seconds / updates
        noise = (both.spread * both.seconds + alone.spread * alone.seconds) / (interval * update)
        note = (
            f"{cost * 1e3:.0f} ms of every {interval * update:.1f} s ({interval} updates); {size:.1f} MB; ± {noise:.1%}"
        )
        return Measurement(
            f"checkpoints/{self.preset}", 100.0 * cost / (interval * update + cost), "% of the time", note=note
        )

    def evaluation_share(self) -> Measurement:
        """The cost of an evaluation with the preset's settings: with search and of the network alone if the run
        searches, and with the best parameters saved each time, as if every score were the best so far.
        """
        evaluation, updates = self.config.evaluation, int(self.state.step)
        policies = dict.fromkeys(self.learner.policies)
        levels = make_levels(self.env, evaluation.level_set, evaluation.num_eval_episodes)
        evaluators = [Evaluator(self.env, policy, levels, evaluation.num_eval_envs) for policy in policies]
        for evaluator in evaluators:
            evaluator.compile(self.state.params, self.state.key)
        params, key = jax.tree.map(jnp.copy, (self.state.params, self.state.key))
        numbers = itertools.count(1)
        with tempfile.TemporaryDirectory() as folder:
            best = BestCheckpoint(CheckpointStore(Path(folder), create=True), 1)

            def evaluate() -> list[Any]:
                scores = [evaluator(params, key, 0).mean_return() for evaluator in evaluators]
                number = next(numbers)
                best.update(params, np.full(1, float(number)), self.meta._replace(update=number))
                return scores

            taken = time_interleaved({"evaluation": evaluate}, repetitions=3)["evaluation"]
        interval = evaluation.eval_interval
        training = interval * self.seconds
        network = f"a network of {updates} updates" if updates else "a new network"
        note = (
            f"{taken.seconds:.1f} s of every {training + taken.seconds:.0f} s ({interval} updates), of {network}"
            " that is kept as the best"
        )
        share = 100.0 * taken.seconds / (taken.seconds + training)
        return Measurement(f"evaluations/{self.preset}", share, "% of the time", taken.spread, note=note)


def last_checkpoint_megabytes(folder: Path) -> float:
    """The size of the last checkpoint's files. orbax compresses them: a nearly empty replay takes almost no space."""
    newest = folder / str(max(CheckpointStore(folder).updates()))
    return sum(file.stat().st_size for file in newest.rglob("*") if file.is_file()) / 1e6


@contextlib.contextmanager
def _run_writer(folder: Path, training: _Training) -> Iterator[RunWriter]:
    algorithm = training.meta.algorithm
    meta = RunMeta(algorithm, algorithm_title(algorithm), "", {}, training.config, steps_per_update(training.config))
    best = BestCheckpoint(CheckpointStore(folder / "checkpoints" / "best", create=True), 1)
    store = CheckpointStore(folder / "checkpoints", training.config.checkpointing.keep_last_n, create=True)
    with (
        contextlib.closing(open_telemetry(folder, meta)) as telemetry,
        contextlib.closing(RunWriter(ProcessGroup(), RunFiles(store, best, telemetry), training.meta)) as writer,
    ):
        yield writer
