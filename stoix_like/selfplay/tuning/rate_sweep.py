"""A sweep of learning rate and weight decay by CMA-ES, for a pipeline whose champions no longer gain.

Every trial goes on from the last state of the run, with the newest window and the same draws. Trial 0 has the present
settings. The best takes their place if it is better by more than chance, as `window_training` says.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.alphazero import window_learner
from stoix_like.algorithms.alphazero.state import AlphaZeroState
from stoix_like.errors import RunError
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.runs.saved import state_template
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.storage.signed_json import json_digest
from stoix_like.runtime.sweeps.cma_es import CmaEsSearch
from stoix_like.runtime.sweeps.space import Range
from stoix_like.selfplay.files import stage_leaves
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages import export
from stoix_like.selfplay.tuning.context import PlateauContext
from stoix_like.selfplay.tuning.window_training import (
    NewestWindow,
    compiled_chunk,
    held_out_losses,
    is_better,
    num_updates,
    read_window,
    train_on_window,
)

TRIALS = "trials.json"
RATE_FACTOR = 8.0  # rates from an eighth to eight times the configured one
WEIGHT_DECAYS = (1e-6, 0.1)  # that are searched
AT_ONCE = 4  # trials side by side on the device: CMA-ES samples so many before it is told what came of them
_OF_TRIALS = ("params", "optimizer", "hyper")  # fields of the state of which each trial has its own


class Trial(NamedTuple):
    """A trial that is done."""

    parameters: dict[str, float]  # actor_lr, weight_decay
    loss: float | None  # on the games that nothing learns from; None if it was not finite


class _Data(NamedTuple):
    """What all trials share."""

    start: AlphaZeroState  # of the run, with the window
    window: NewestWindow
    num_updates: int
    digest: str  # of all that makes trials comparable


def sweep_rates(context: PlateauContext) -> dict[str, float]:
    """{leaf: value} of the best trial; empty if none is better than the present settings by more than chance.

    Raises:
        MissingExtraError: Optuna or cmaes is not installed.
        RunError: the last iteration has too few games that are validated on.
        CheckpointError: its files are missing or damaged.
        Interrupted: it is stopped; the trials that are done are not made again.
    """
    runs = _TrialRuns(context, _read_data(context))
    trials = _all_trials(context, runs)
    losses = [math.inf if trial.loss is None else trial.loss for trial in trials]
    best = losses.index(min(losses))
    game = context.pipeline.layout.root.name
    context.pipeline.reporter.info(
        f"{game}: loss {losses[0]:.4f} as it is, {losses[best]:.4f} in the best of {len(trials)} trials"
    )
    found = runs.losses_of({index: trials[index].parameters for index in {0, best}})
    if best == 0 or not is_better(found[0], found[best], runs.games):
        return {}
    leaves = trials[best].parameters
    return {**leaves, "critic_lr": runs.critic_rate(leaves)}


def _all_trials(context: PlateauContext, runs: _TrialRuns) -> list[Trial]:
    """The trials. Those that a process made before it ended are not made again."""
    seed = np.random.SeedSequence([context.pipeline.config.architecture.seed, context.iteration]).generate_state(1)[0]
    configured = context.configured.optimization.actor_lr
    rates = Range(configured / RATE_FACTOR, configured * RATE_FACTOR, log=True)
    search = CmaEsSearch({"actor_lr": rates, "weight_decay": Range(*WEIGHT_DECAYS, log=True)}, int(seed))
    known, trials = _read_trials(context.folder / TRIALS, runs.digest), list[Trial]()
    end, most = time.monotonic() + context.options.plateau_seconds, context.options.plateau_trials
    while len(trials) < most and (not trials or time.monotonic() < end):
        numbers = range(len(trials), min(len(trials) + AT_ONCE, most))
        present = context.pipeline.leaves(("actor_lr", "weight_decay"))
        asked = {number: search.ask() if number else present for number in numbers}
        if [trial.parameters for trial in known[numbers.start : numbers.stop]] == [*asked.values()]:
            trials += known[numbers.start : numbers.stop]
        else:
            known, losses = [], runs.losses_of(asked)
            trials += [_trial(asked[number], losses[number]) for number in numbers]
            rows = [trial._asdict() for trial in trials]
            atomic_write_json(context.folder / TRIALS, {"digest": runs.digest, "trials": rows})
        for number in numbers:
            if number:
                search.tell(math.nan if (loss := trials[number].loss) is None else loss)
    return trials


def _trial(parameters: dict[str, float], losses: np.ndarray) -> Trial:
    loss = float(losses.mean())
    return Trial(parameters, loss if math.isfinite(loss) else None)


def _read_trials(path: Path, digest: str) -> list[Trial]:
    """The trials of a process that was killed or stopped; none if they are of others, or the file cannot be read."""
    try:
        stored = json.loads(path.read_bytes())
        return [Trial(**one) for one in stored["trials"]] if stored["digest"] == digest else []
    except (OSError, ValueError, TypeError, KeyError):
        return []


def _read_data(context: PlateauContext) -> _Data:
    """The window of the last iteration, and the run's state after it."""
    pipeline, last = context.pipeline, context.iteration
    window, trained = read_window(context), read_manifest(pipeline.layout.stage(last, "train"))
    if trained is None:
        raise RunError(f"iteration {last} has not trained", "select another function")
    store, template = CheckpointStore(pipeline.layout.train_run / "checkpoints"), state_template(pipeline.learner, 1)
    update = int(trained.facts["update"])
    stored = {name: store.load_part(name, getattr(template, name), update) for name in ("params", "optimizer", "step")}
    start: AlphaZeroState = jax.jit(pipeline.learner.init)(pipeline.root)
    start = window_learner.window_of(start._replace(**stored), export.samples_of(pipeline, window.learned))
    updates = num_updates(context, window)
    settings = pipeline.leaves(stage_leaves.TRAIN) | {"iteration": last, "updates": updates, "at": update}
    return _Data(start, window, updates, json_digest(settings))


class _TrialRuns:
    """Trains with the settings of trials, some side by side, each once in this process.

    Args:
        context: of the function.
        data: what all trials share.
    """

    def __init__(self, context: PlateauContext, data: _Data) -> None:
        pipeline, section = context.pipeline, context.pipeline.config.optimization
        self._pipeline, self._data, self.games, self.digest = pipeline, data, data.window.games, data.digest
        self._critic_share = section.critic_lr / section.actor_lr
        total = context.options.plateau_trials * data.num_updates
        self._progress = Progress(pipeline.reporter, pipeline.stop, "plateau", "updates", total)
        shared = tuple(name for name in AlphaZeroState._fields if name not in _OF_TRIALS)
        self._chunk = compiled_chunk(pipeline.learner._replace(shared=shared), AT_ONCE)
        self._losses = dict[int, np.ndarray]()

    def critic_rate(self, parameters: Mapping[str, float]) -> float:
        """The rate of the critic, which keeps its ratio to the actor's."""
        return parameters["actor_lr"] * self._critic_share

    def losses_of(self, trials: Mapping[int, Mapping[str, float]]) -> dict[int, np.ndarray]:
        """{trial: [M] losses of the positions that are held out, after it} of some trials. Raises Interrupted."""
        new = {number: parameters for number, parameters in trials.items() if number not in self._losses}
        for first in range(0, len(new), AT_ONCE):
            numbers = list(new)[first : first + AT_ONCE]
            found = self._trained_losses(numbers[0], [new[number] for number in numbers])
            self._losses |= dict(zip(numbers, found, strict=True))
        return {number: self._losses[number] for number in trials}

    def _trained_losses(self, first: int, trials: Sequence[Mapping[str, float]]) -> list[np.ndarray]:
        """The losses of each. There are always as many states: what a trial comes to does not depend on the others."""
        filled = [*trials, *[trials[-1]] * (AT_ONCE - len(trials))]
        before = first * self._data.num_updates

        def show(done: int) -> None:
            self._progress.update(before + done * len(trials))

        state = train_on_window(self._chunk, self._first_state(filled), self._data.num_updates, show)
        params = state.params.average
        each = [jax.tree.map(lambda leaf, index=index: leaf[index], params) for index in range(len(trials))]
        return [held_out_losses(self._pipeline, one, self._data.window) for one in each]

    def _first_state(self, trials: Sequence[Mapping[str, float]]) -> AlphaZeroState:
        """The state of the run, with the hyperparameters of each trial; `_OF_TRIALS` are stacked."""
        start, leaves = self._data.start, dict[str, Any]()
        for name in ("actor_lr", "weight_decay"):
            leaves[name] = jnp.asarray([trial[name] for trial in trials], jnp.float32)  # [B]
        leaves["critic_lr"] = jnp.asarray([self.critic_rate(trial) for trial in trials], jnp.float32)  # [B]
        last = jnp.float32(self._data.num_updates + int(start.step))
        stacked = {
            name: jax.tree.map(lambda leaf: jnp.stack([leaf] * len(trials)), getattr(start, name))
            for name in _OF_TRIALS
        }
        hyper = stacked["hyper"]._replace(**leaves, num_updates=jnp.full(len(trials), last))
        return start._replace(**stacked | {"hyper": hyper})
