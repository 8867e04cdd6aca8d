"""The stage `train`: the run in train/ goes on from its last state with the new window, and a candidate comes out.

The run goes on from the latest candidate, promoted or not. It is an ordinary run: it is killed and resumed like any
other, and a callback puts the window, by its hash, into its state before the first update.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.algorithms.alphazero import window_learner
from stoix_like.algorithms.alphazero.state import AlphaZeroState, Sample
from stoix_like.errors import CheckpointError
from stoix_like.runtime.loading.config import LoadedConfig, loaded_config
from stoix_like.runtime.loading.flags import CommandOptions
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.runs.find import checkpoint_updates
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.stages.run import StageCall, StageResult, run_stage
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.training.callbacks import Callback, RunClock
from stoix_like.runtime.training.train import train
from stoix_like.selfplay.candidates import write_candidate
from stoix_like.selfplay.export import VALIDATION, WINDOW, samples_of
from stoix_like.selfplay.folders import PARAMETERS
from stoix_like.selfplay.pipeline import Pipeline, run_config
from stoix_like.selfplay.progress import Interrupted, Progress
from stoix_like.types import NetworkParams

SETTINGS = (
    "task_id",
    "seed",
    "hidden_dim",
    "num_layers",
    "shared_torso",
    "compute_dtype",
    "observation_adapter",
    "actor_lr",
    "critic_lr",
    "max_grad_norm",
    "vf_coef",
    "tau",
    "decay_learning_rates",
    "num_envs",
    "rollout_length",
    "batch_size",
    "max_reuse",
    "use_symmetries",
    "root_value_weight",
    "replay_buffer_size",
    "training_epochs",
)
PLAN = "plan.json"  # from which update to which, while the stage is not done
_BATCH = 256  # positions validated at once


class _Plan(NamedTuple):
    window: str  # hash
    from_update: int
    to_update: int


class LoadWindow(Callback):
    """Puts the window into the state, before the first update of this process."""

    def __init__(self, samples: Sample) -> None:
        self._samples: Sample | None = samples

    def next_update(self, clock: RunClock) -> int:
        return super().next_update(clock) if self._samples is None or clock.is_ending else clock.update

    def run(self, state: AlphaZeroState, clock: RunClock) -> AlphaZeroState:  # noqa: ARG002 - as `Callback`
        assert self._samples is not None  # narrows the type
        state, self._samples = window_learner.window_of(state, self._samples), None
        return state


class ShowProgress(Callback):
    """Reports the updates of this stage after every chunk."""

    def __init__(self, pipeline: Pipeline, plan: _Plan) -> None:
        self._pipeline, self._first, self._total = pipeline, plan.from_update, plan.to_update - plan.from_update
        self._progress: Progress | None = None
        self._shown_at = -1

    def next_update(self, clock: RunClock) -> int:
        return clock.update if clock.update > self._shown_at else super().next_update(clock)

    def run(self, state: AlphaZeroState, clock: RunClock) -> AlphaZeroState:
        done, self._shown_at = clock.update - self._first, clock.update
        if self._progress is None:  # counts from where this process begins
            pipeline = self._pipeline
            self._progress = Progress(pipeline.reporter, pipeline.stop, "train", "updates", self._total, done)
        self._progress.show(done)
        return state


def train_stage(pipeline: Pipeline, iteration: int, exported: Manifest) -> tuple[Manifest, bool]:
    """(the manifest, whether it was done before). Facts: the candidate's hash, updates, losses.

    Raises:
        Interrupted: a signal ended the run.
    """
    folder = pipeline.layout.stage(iteration, "train")
    call = StageCall("train", {"window": exported.outputs[WINDOW]}, pipeline.leaves(SETTINGS))
    return run_stage(folder, call, lambda: _train(pipeline, iteration, exported, folder))


def _train(pipeline: Pipeline, iteration: int, exported: Manifest, folder: Path) -> StageResult:
    source = pipeline.layout.stage(iteration, "export")
    arrays = read_arrays(source / WINDOW, exported.outputs[WINDOW])
    new = _new_positions(pipeline, iteration, exported)
    plan = _read_or_make_plan(pipeline, folder, exported, len(arrays["is_full"]), new)
    loaded = _loaded(pipeline, plan.to_update)
    callbacks = [LoadWindow(samples_of(arrays)), ShowProgress(pipeline, plan)]
    result = train("alphazero", loaded, callbacks, stop=pipeline.stop, quiet=True, prepared=pipeline.prepared)
    if result.last_update < plan.to_update:
        raise Interrupted
    params = _trained_params(pipeline, plan.to_update)
    candidate = write_candidate(pipeline, folder, params, plan.to_update)
    updates = plan.to_update - plan.from_update
    steps = updates * pipeline.settings.most_gradient_steps
    facts: dict[str, Any] = {
        "candidate": candidate,
        "update": plan.to_update,
        "updates": updates,
        "gradient_steps": steps,
        "samples": steps * pipeline.settings.batch_size,
        "new_positions": new,
    }
    held_out = read_arrays(source / VALIDATION, exported.outputs[VALIDATION])
    return StageResult({PARAMETERS: candidate}, facts | validation_losses(pipeline, params, held_out))


def _new_positions(pipeline: Pipeline, iteration: int, exported: Manifest) -> int:
    """Positions in the store that no earlier candidate could learn from; of a window from elsewhere, all of it."""
    now = exported.facts.get("store_positions")
    if now is None:
        return int(exported.facts["positions"])
    before = 0
    for number in pipeline.layout.iterations():
        if number < iteration and read_manifest(pipeline.layout.stage(number, "train")) is not None:
            found = read_manifest(pipeline.layout.stage(number, "export"))
            before = max(before, 0 if found is None else int(found.facts.get("store_positions", 0)))
    return max(int(now) - before, 0)


def num_updates(pipeline: Pipeline, window_positions: int, new_positions: int) -> int:
    """Updates of an iteration, at least one: `training_epochs` over the window, or `max_reuse` of what is new."""
    settings, section = pipeline.settings, pipeline.config.selfplay
    samples = settings.most_gradient_steps * settings.batch_size
    if section.training_epochs is not None:
        return max(math.ceil(section.training_epochs * window_positions / samples), 1)
    return max(math.ceil(pipeline.config.alphazero.max_reuse * new_positions / samples), 1)


def _read_or_make_plan(
    pipeline: Pipeline, folder: Path, exported: Manifest, window_positions: int, new_positions: int
) -> _Plan:
    """The plan of a stage that was killed, or a new one from the run's last checkpoint."""
    path, found = folder / PLAN, exported.outputs[WINDOW]
    if path.is_file():
        try:
            plan = _Plan(**json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{path} cannot be read", "remove it: the stage then begins again") from error
        if plan.window == found:
            return plan
    checkpoints = pipeline.layout.train_run / "checkpoints"
    done = max(checkpoint_updates(checkpoints), default=0) if checkpoints.is_dir() else 0
    plan = _Plan(found, done, done + num_updates(pipeline, window_positions, new_positions))
    atomic_write_json(path, plan._asdict())
    return plan


def _loaded(pipeline: Pipeline, last_update: int) -> LoadedConfig:
    run = pipeline.layout.train_run
    resume = str(run) if (run / "config.yaml").is_file() else None
    options = CommandOptions(resume=resume, config=None)
    return loaded_config(run_config(pipeline.config, pipeline.layout, last_update), options)


def _trained_params(pipeline: Pipeline, update: int) -> NetworkParams:
    store = CheckpointStore(pipeline.layout.train_run / "checkpoints")
    return store.load_part("params", pipeline.params_template, update).average


def validation_losses(pipeline: Pipeline, params: NetworkParams, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """{name: mean loss} over the games that are not learned from; empty if these have too few positions."""
    samples = samples_of(arrays)
    count = len(samples.is_full) // _BATCH
    rows = [
        jax.device_get(
            pipeline.losses(params, jax.tree.map(lambda x, first=index * _BATCH: x[first : first + _BATCH], samples))
        )
        for index in range(count)
    ]
    names = ("policy_loss", "value_loss")
    return {f"validation_{name}": float(np.mean([row[f"trainer/{name}"] for row in rows])) for name in names if rows}
