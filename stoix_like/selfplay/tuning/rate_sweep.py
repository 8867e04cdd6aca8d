"""A sweep of learning rate and weight decay by CMA-ES, for a pipeline whose champions no longer gain.

Every trial goes on from the last state of the run, with the newest window and the same draws. It is judged by its loss
on those games of the window that nothing learns from. Trial 0 has the present settings. The best takes their place if
it is better by more than chance: three standard errors of the difference, games counted as independent.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.alphazero import window_learner
from stoix_like.algorithms.alphazero.state import AlphaZeroHyper, AlphaZeroState
from stoix_like.errors import RunError
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.runs.saved import state_template
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.storage.signed_json import json_digest
from stoix_like.runtime.sweeps.cma_es import CmaEsSearch
from stoix_like.runtime.sweeps.space import Range
from stoix_like.selfplay.files import stage_leaves
from stoix_like.selfplay.files.folders import VALIDATION_FILE, WINDOW_FILE
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages import export, train
from stoix_like.selfplay.tuning.context import PlateauContext
from stoix_like.types import NetworkParams

TRIALS = "trials.json"
RATE_FACTOR = 8.0  # rates from an eighth to eight times the configured one
WEIGHT_DECAYS = (1e-6, 0.1)  # that are searched
STANDARD_ERRORS = 3.0
LEAST_GAMES = 20  # that are held out; with fewer a standard error says little


class Trial(NamedTuple):
    """A trial that is done."""

    parameters: dict[str, float]  # actor_lr, weight_decay
    loss: float | None  # on the games that nothing learns from; None if it was not finite


class NewestWindow(NamedTuple):
    """The positions of the last iteration's window, and those of it that nothing learns from."""

    learned: dict[str, np.ndarray]
    held_out: dict[str, np.ndarray]
    games: np.ndarray  # [M] int, the game of each position that is held out


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
    before, after = (runs.losses_of(index, trials[index].parameters) for index in (0, best))
    if best == 0 or not is_better(before, after, runs.games):
        return {}
    found = trials[best].parameters
    return {**found, "critic_lr": runs.critic_rate(found)}


def is_better(before: np.ndarray, after: np.ndarray, games: np.ndarray) -> bool:
    """Whether the losses `after` [M] are finite, and lower than those `before` by more than chance."""
    gain, error = paired_gain(before, after, games)
    return bool(np.isfinite(after).all()) and not gain <= STANDARD_ERRORS * error  # nan: those before are not finite


def _all_trials(context: PlateauContext, runs: _TrialRuns) -> list[Trial]:
    """The trials. Those that a process made before it ended are not made again."""
    seed = np.random.SeedSequence([context.pipeline.config.architecture.seed, context.iteration]).generate_state(1)[0]
    configured = context.configured.optimization.actor_lr
    rates = Range(configured / RATE_FACTOR, configured * RATE_FACTOR, log=True)
    search = CmaEsSearch({"actor_lr": rates, "weight_decay": Range(*WEIGHT_DECAYS, log=True)}, int(seed))
    known, trials = _read_trials(context.folder / TRIALS, runs.digest), list[Trial]()
    end = time.monotonic() + context.options.max_seconds
    while len(trials) < context.options.num_trials and (len(trials) < 2 or time.monotonic() < end):
        number = len(trials)
        asked = search.ask() if number else context.pipeline.leaves(("actor_lr", "weight_decay"))
        if number < len(known) and known[number].parameters == asked:
            trials.append(known[number])
        else:
            known, loss = [], float(runs.losses_of(number, asked).mean())
            trials.append(Trial(asked, loss if math.isfinite(loss) else None))
            rows = [trial._asdict() for trial in trials]
            atomic_write_json(context.folder / TRIALS, {"digest": runs.digest, "trials": rows})
        if number:
            search.tell(math.nan if trials[-1].loss is None else trials[-1].loss)
    return trials


def _read_trials(path: Path, digest: str) -> list[Trial]:
    """The trials of a process that was killed or stopped; none if they are of others, or the file cannot be read."""
    try:
        stored = json.loads(path.read_bytes())
        return [Trial(**one) for one in stored["trials"]] if stored["digest"] == digest else []
    except (OSError, ValueError, TypeError, KeyError):
        return []


def read_window(context: PlateauContext) -> NewestWindow:
    """The window of the last iteration. Raises RunError if too few of its games are held out."""
    last = context.iteration
    folder = context.pipeline.layout.stage(last, "export")
    held_out, learned = (read_arrays(folder / name) for name in (VALIDATION_FILE, WINDOW_FILE))
    games = np.unique(held_out["game_id"], return_inverse=True)[1]
    if (count := len({*games.tolist()})) < LEAST_GAMES:
        what = f"iteration {last} has {count} games that are validated on"
        raise RunError(what, f"a sweep needs {LEAST_GAMES}: raise validation_share, or select another function")
    return NewestWindow(learned, held_out, games)


def held_out_losses(pipeline: Pipeline, params: NetworkParams, window: NewestWindow) -> np.ndarray:
    """[M] losses of the positions that are held out, for the network of this pipeline."""
    found = train.position_losses(pipeline, params, window.held_out)
    full_share = max(float(window.held_out["is_full"].mean()), 1.0 / len(window.games))  # others teach no policy
    return found["policy_loss"] / full_share + pipeline.config.optimization.vf_coef * found["value_loss"]


def num_updates(context: PlateauContext, window: NewestWindow) -> int:
    """The updates of a trial: `trial_epochs` passes over the window."""
    settings = context.pipeline.settings
    samples = settings.most_gradient_steps * settings.batch_size
    return max(math.ceil(context.options.trial_epochs * len(window.learned["is_full"]) / samples), 1)


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
    """Trains with the settings of trials, each once in this process.

    Args:
        context: of the function.
        data: what all trials share.
    """

    def __init__(self, context: PlateauContext, data: _Data) -> None:
        pipeline, section = context.pipeline, context.pipeline.config.optimization
        self._pipeline, self._data, self.games, self.digest = pipeline, data, data.window.games, data.digest
        self._critic_share = section.critic_lr / section.actor_lr
        total = context.options.num_trials * data.num_updates
        self._progress = Progress(pipeline.reporter, pipeline.stop, "plateau", "updates", total)
        self._losses = dict[int, np.ndarray]()
        self._update = jax.jit(self._one_update)

    def critic_rate(self, parameters: dict[str, float]) -> float:
        """The rate of the critic, which keeps its ratio to the actor's."""
        return parameters["actor_lr"] * self._critic_share

    def losses_of(self, number: int, parameters: dict[str, float]) -> np.ndarray:
        """[M] losses of the positions that are held out, after the trial. Raises Interrupted."""
        if number not in self._losses:
            self._losses[number] = self._trained_losses(number, parameters)
        return self._losses[number]

    def _trained_losses(self, number: int, parameters: dict[str, float]) -> np.ndarray:
        pipeline, data = self._pipeline, self._data
        values = parameters | {"critic_lr": self.critic_rate(parameters), "num_updates": data.num_updates}
        values["num_updates"] += int(data.start.step)
        hyper = data.start.hyper._replace(**{name: jnp.float32(value) for name, value in values.items()})
        learned = data.start.params, data.start.optimizer, data.start.step
        for done in range(data.num_updates):
            self._progress.update(number * data.num_updates + done)
            learned = self._update(data.start, hyper, *learned)
        return held_out_losses(pipeline, learned[0].average, data.window)

    def _one_update(self, start: AlphaZeroState, hyper: AlphaZeroHyper, params: Any, optimizer: Any, step: Any) -> Any:
        state = start._replace(hyper=hyper, params=params, optimizer=optimizer, step=step)
        after = self._pipeline.learner.update(state)[0]
        return after.params, after.optimizer, after.step


def paired_gain(before: np.ndarray, after: np.ndarray, games: np.ndarray) -> tuple[float, float]:
    """(mean of `before` - `after`, its standard error) over positions [M], which are independent between games only."""
    difference = before - after
    mean = float(difference.mean())
    by_game = np.bincount(games, weights=difference - mean)  # [G], sums to 0
    count = len(by_game)
    return mean, float(np.sqrt(np.sum(by_game**2) * count / max(count - 1, 1)) / len(difference))
