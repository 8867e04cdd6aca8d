"""What a training spends beside its updates: checkpoints and evaluations, as its preset asks for them."""

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

from stoix_like.bench.measure import Measurement, interleaved
from stoix_like.bench.updates import preset_config
from stoix_like.config.dicts import config_to_dict
from stoix_like.runtime.evaluators.scores import Evaluator
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.telemetry import Row as Told
from stoix_like.runtime.telemetry import RunMeta, open_telemetry
from stoix_like.runtime.training import chunk
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.writer import RunFiles, RunWriter

#: Without spo/binpack, whose update alone takes a minute on a core.
PRESETS = ("ppo/quick", "ppo/binpack", "ppo/maze", "spo/maze", "spo/quick")
#: Presets of which evaluations alone are measured, and after how many updates: a new snake dies at once.
EVALUATED = {"ppo/snake": 100, "ppo/maze_mlp": 0, "spo/maze_mlp": 0}
SECONDS = 4.0  # of training around each checkpoint


def overhead_suite() -> Iterator[Measurement]:
    """The shares of a preset's time that go into its checkpoints, and into its evaluations."""
    for preset in PRESETS:
        training = _Training(preset)
        yield training.evaluation_share()  # first: how long episodes are depends on what was learned
        yield training.checkpoint_share()
    for preset, updates in EVALUATED.items():
        training = _Training(preset)
        if updates:
            training.advance(updates)
        yield training.evaluation_share()


class _Training:
    """A training that goes on by some updates with each call, as the driver makes it go on."""

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
        """Of an update; some are made to find out."""
        return interleaved({"update": lambda: self.advance(1)}, repetitions=3)["update"].seconds

    def advance(self, updates: int) -> Any:
        """Trains by so many updates; gives their metrics."""
        self.state, metrics = self.program(self.state, np.int32(updates))
        return jax.block_until_ready(metrics)

    def checkpoint_share(self) -> Measurement:
        """Some updates with and without a checkpoint that is written beside them, in turns."""
        updates = max(1, round(SECONDS / self.seconds))
        numbers = itertools.count(1)
        with tempfile.TemporaryDirectory() as folder, _recorder(Path(folder), self) as recorder:

            def saved() -> Any:
                number = next(numbers)
                written = Told("MISC", number, 0, 0.0, None, {"misc/event": "checkpoint_saved"})
                recorder.save(self.state, self.meta._replace(update=number), lambda _: written)
                metrics = self.advance(updates)
                recorder.wait_until_written()
                return metrics

            contestants = {"without": lambda: self.advance(updates), "with": saved}
            timings = interleaved(contestants, repetitions=7 if self.seconds < SECONDS else 3)
            size = newest_megabytes(Path(folder) / "checkpoints")
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
        """An evaluation as the preset makes it, of the network beside the search where there is one, and the keeping of
        the parameters as the best so far: of a run that gets better each time.
        """
        evaluation, updates = self.config.evaluation, int(self.state.step)
        policies = dict.fromkeys((self.learner.policy, self.learner.network_policy))
        evaluators = [Evaluator(self.env, policy, evaluation, 1) for policy in policies]
        for evaluator in evaluators:
            evaluator.compile(self.state.params, self.state.key)
        params, key = jax.tree.map(jnp.copy, (self.state.params, self.state.key))
        numbers = itertools.count(1)
        with tempfile.TemporaryDirectory() as folder:
            best = BestCheckpoint(Path(folder), 1)

            def evaluate() -> list[Any]:
                scores = [evaluator(params, key, 0).mean_return() for evaluator in evaluators]
                number = next(numbers)
                best.update(params, np.full(1, float(number)), self.meta._replace(update=number))
                return scores

            taken = interleaved({"evaluation": evaluate}, repetitions=3)["evaluation"]
        interval = evaluation.eval_interval
        between = interval * self.seconds
        learned = f"a network of {updates} updates" if updates else "a new network"
        note = (
            f"{taken.seconds:.1f} s of every {between + taken.seconds:.0f} s ({interval} updates), of {learned}"
            " that is kept as the best"
        )
        share = 100.0 * taken.seconds / (taken.seconds + between)
        return Measurement(f"evaluations/{self.preset}", share, "% of the time", taken.spread, note=note)


def newest_megabytes(folder: Path) -> float:
    """Of the files of the last checkpoint there, which orbax packs: a nearly empty replay takes nearly nothing."""
    newest = folder / str(max(CheckpointStore(folder).updates()))
    return sum(file.stat().st_size for file in newest.rglob("*") if file.is_file()) / 1e6


@contextlib.contextmanager
def _recorder(folder: Path, training: _Training) -> Iterator[RunWriter]:
    config = training.config
    core = config.training_core
    about = RunMeta(
        algorithm=training.meta.algorithm,
        task_id=training.meta.task_id,
        device="",
        seed=0,
        num_seeds=1,
        num_envs=config.environment.num_envs,
        rollout_length=core.rollout_length,
        num_updates=core.num_updates,
        eval_interval=0,
        versions={},
        config={},
    )
    best = BestCheckpoint(folder / "checkpoints" / "best", 1)
    store = CheckpointStore(folder / "checkpoints", config.checkpointing.keep_last_n, create=True)
    with (
        contextlib.closing(open_telemetry(folder, about)) as telemetry,
        contextlib.closing(RunWriter(ProcessGroup(), RunFiles(store, best, telemetry))) as recorder,
    ):
        yield recorder
