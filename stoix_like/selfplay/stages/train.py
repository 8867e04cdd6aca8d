"""The stage `train`: the run in train/ goes on from its last state with the new window, and a candidate comes out.

The run goes on from the latest candidate, promoted or not. It is an ordinary run: it is killed and resumed like any
other, and a callback puts the window, by its hash, into its state before the first update.
"""

from __future__ import annotations

import functools
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.alphazero import window_learner
from stoix_like.algorithms.alphazero.state import AlphaZeroState, Sample
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.dicts import config_from_dict
from stoix_like.config.sections.roles import Role, leaves_with
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.loading.config import LoadedConfig, loaded_config
from stoix_like.runtime.loading.flags import CommandOptions
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.runs.find import checkpoint_updates
from stoix_like.runtime.stages.damage import read_output
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.run import StageResult, run_stage
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.telemetry import Report, RunMeta
from stoix_like.runtime.training.callbacks import CONTINUE, Callback, RunClock
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.runtime.training.train import train
from stoix_like.selfplay.files import manifests
from stoix_like.selfplay.files.folders import PARAMETERS, VALIDATION_FILE, WINDOW_FILE
from stoix_like.selfplay.files.iteration import IterationFiles
from stoix_like.selfplay.files.shards import check_format
from stoix_like.selfplay.pipeline.candidates import write_candidate
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.pipeline.run_configs import run_config
from stoix_like.selfplay.stages import export
from stoix_like.selfplay.stages.export import samples_of
from stoix_like.types import NetworkParams

BEGUN = "begun"  # the hash of the window that the run is being trained on
_CONTINUE = "begin the next iteration with them, of the same games: --resume --new-iteration"
_BATCH = 256  # positions validated at once


class _Plan(NamedTuple):
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


class FollowTraining(Callback):
    """Reports the updates of this stage after every chunk, and keeps the parameters that play."""

    def __init__(self, pipeline: Pipeline, plan: _Plan) -> None:
        self._pipeline, self._first, self._total = pipeline, plan.from_update, plan.to_update - plan.from_update
        self._progress: Progress | None = None
        self._shown_at = -1
        self.params: NetworkParams | None = None  # after the last update of the stage

    def next_update(self, clock: RunClock) -> int:
        return clock.update if clock.update > self._shown_at else super().next_update(clock)

    def run(self, state: AlphaZeroState, clock: RunClock) -> AlphaZeroState:
        done, self._shown_at = clock.update - self._first, clock.update
        if self._progress is None:  # counts from where this process begins
            pipeline = self._pipeline
            self._progress = Progress(pipeline.reporter, pipeline.stop, "train", "updates", self._total, done)
        self._progress.show(done)
        if done == self._total:
            self.params = jax.tree.map(jnp.copy, state.params.average)  # the checkpoint's, without reading it
        return state


class LastLosses:
    """A sink that keeps the losses that were reported last. How many updates they are the mean of the clock decides."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Nothing is to be opened."""

    def write(self, reports: Sequence[Report]) -> None:
        for report in reports:
            found = {name: report.values.get(f"trainer/{name}") for name in ("policy_loss", "value_loss")}
            self.values |= {name: float(values[0]) for name, values in found.items() if values is not None}

    def close(self) -> None:
        """Nothing is to be closed."""


def train_stage(pipeline: Pipeline, files: IterationFiles) -> Manifest:
    """Trains on the window. Facts: the candidate's hash, updates, losses.

    Raises:
        Interrupted: a signal ended the run.
    """
    folder, exported = files.folder("train"), files.done("export")
    work = functools.partial(_train, pipeline, files.number, exported, folder)
    return run_stage(folder, pipeline.call("train", files), work)


def _train(pipeline: Pipeline, iteration: int, exported: Manifest, folder: Path) -> StageResult:
    source, run = pipeline.layout.stage(iteration, "export"), pipeline.layout.train_run
    arrays, held_out = (read_output(source, exported, name) for name in (WINDOW_FILE, VALIDATION_FILE))
    check_format(arrays, source / WINDOW_FILE, [export.format_of(pipeline.game)])
    new = _new_positions(pipeline, iteration, exported)
    first = last_update(pipeline, iteration)
    plan = _Plan(first, first + num_updates(pipeline, len(arrays["is_full"]), new))
    _prepare_run(run, folder, plan, exported.outputs[WINDOW_FILE])
    loaded = _loaded(pipeline, plan.to_update)
    losses, follow = LastLosses(), FollowTraining(pipeline, plan)
    callbacks, stop, prepared = (LoadWindow(samples_of(pipeline, arrays)), follow), pipeline.stop, pipeline.prepared
    pipeline.reporter.progress("train: compiling its program, unless it is in the cache")
    try:
        result = train("alphazero", loaded, callbacks, sinks=[losses], stop=stop, quiet=True, prepared=prepared)
    except RunError as error:
        if CONTINUE in error.hint:  # an iteration keeps the leaves that it was begun with
            raise RunError(error.what, error.hint.replace(CONTINUE, _CONTINUE)) from error
        raise
    if result.last_update < plan.to_update:
        raise Interrupted("train")
    params = follow.params or _trained_params(pipeline, plan.to_update)
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
    facts |= validation_losses(pipeline, params, held_out)
    return StageResult({PARAMETERS: candidate}, facts, losses.values)


def _new_positions(pipeline: Pipeline, iteration: int, exported: Manifest) -> int:
    """Positions in the store that no earlier candidate could learn from; of a window from elsewhere, all of it."""
    if "store_positions" not in exported.facts:
        return int(exported.facts["positions"])
    return manifests.new_positions(pipeline.layout, iteration)


def num_updates(pipeline: Pipeline, window_positions: int, new_positions: int) -> int:
    """Updates of an iteration, at least one: `training_epochs` over the window, or `max_reuse` of what is new."""
    settings, section = pipeline.settings, pipeline.config.selfplay
    samples = settings.most_gradient_steps * settings.batch_size
    if section.training_epochs is not None:
        return max(math.ceil(section.training_epochs * window_positions / samples), 1)
    return max(math.ceil(pipeline.config.alphazero.max_reuse * new_positions / samples), 1)


def last_update(pipeline: Pipeline, iteration: int) -> int:
    """Updates that the latest candidate of earlier iterations was trained for; 0 if there is none."""
    for number in pipeline.layout.newest_first(iteration - 1):
        if (trained := manifests.manifest_of(pipeline.layout, number, "train")) is not None:
            return int(trained.facts["update"])
    return 0


def _prepare_run(run: Path, folder: Path, plan: _Plan, window_hash: str) -> None:
    """Makes the run stand where the stage goes on: where it was killed, or where the latest candidate was made.

    Later checkpoints are of iterations that were left, or of another window, and earlier ones are named by nothing.
    """
    checkpoints, begun = run / "checkpoints", folder / BEGUN
    found = checkpoint_updates(checkpoints) if checkpoints.is_dir() else []
    goes_on = begun.is_file() and begun.read_bytes() == window_hash.encode()
    is_there = any(plan.from_update <= update <= plan.to_update for update in found) if goes_on else False
    if not is_there and plan.from_update not in (found or [0]):
        what = f"{checkpoints} lacks update {plan.from_update}, at which the latest candidate was made"
        raise CheckpointError(what, "put it back, or begin another pipeline in another --save-dir")
    if not found:  # killed before its first checkpoint was complete
        shutil.rmtree(run, ignore_errors=True)
    kept = range(plan.from_update, plan.to_update + 1) if goes_on else (plan.from_update,)
    for update in [update for update in found if update not in kept]:
        CheckpointStore(checkpoints).remove(update)
    atomic_write_text(begun, window_hash)


def check_fixed_leaves(pipeline: Pipeline) -> None:
    """Raises ConfigError if a leaf differs that cannot change while the run in train/ goes on."""
    checkpoints = pipeline.layout.train_run / "checkpoints"
    if not (checkpoints.is_dir() and checkpoint_updates(checkpoints)):
        return
    config = run_config(pipeline.config, pipeline.layout, 1)
    before = config_from_dict(AlphaZeroConfig, CheckpointStore(checkpoints).load_meta().config)
    fixed = leaves_with(AlphaZeroConfig, Role.FIXED) - leaves_with(AlphaZeroConfig, Role.FOLDER)
    problems = [
        f"{leaf}: it is {get_leaf(config, leaf)!r}, and the run in train/ was begun with {get_leaf(before, leaf)!r}"
        for leaf in sorted(fixed)
        if get_leaf(config, leaf) != get_leaf(before, leaf)
    ]
    if problems:
        raise ConfigError(problems, "begin another pipeline in another --save-dir, or use the former value")


def _loaded(pipeline: Pipeline, last_update: int) -> LoadedConfig:
    run = pipeline.layout.train_run
    resume = str(run) if run.is_dir() else None
    options = CommandOptions(resume=resume, config=None)
    return loaded_config(run_config(pipeline.config, pipeline.layout, last_update), options)


def _trained_params(pipeline: Pipeline, update: int) -> NetworkParams:
    store = CheckpointStore(pipeline.layout.train_run / "checkpoints")
    return store.load_part("params", pipeline.params_template, update).average


def validation_losses(pipeline: Pipeline, params: NetworkParams, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """{name: mean loss} over the games that are not learned from; empty if there are none."""
    if not len(arrays["is_full"]):
        return {}
    found = position_losses(pipeline, params, arrays)
    return {f"validation_{name}": float(np.mean(values)) for name, values in found.items()}


def position_losses(pipeline: Pipeline, params: NetworkParams, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{policy_loss, value_loss: [M]} of each position of a window, of which there is one at least."""
    samples, rows = samples_of(pipeline, arrays), list[dict[str, np.ndarray]]()
    count = len(samples.is_full)
    for first in range(0, count, _BATCH):
        chosen = np.minimum(np.arange(first, first + _BATCH), count - 1)  # the last batch is filled up
        found = jax.device_get(pipeline.losses(params, jax.tree.map(lambda x, chosen=chosen: x[chosen], samples)))
        rows.append({name: values[: count - first] for name, values in found.items()})
    return {name: np.concatenate([row[f"trainer/{name}"] for row in rows]) for name in ("policy_loss", "value_loss")}
