"""The trials of a sweep and what chooses their parameters: the one door to optuna.

A study is one SQLite file beside the folders of its trials. Whoever opens it holds the study's lock, so a trial that
the file shows as running is one whose process ended: it stays the same trial, with its number and parameters, until it
is told how it went. The sampler of trial N is seeded by (sampler_seed, N), so a continued study draws what an unbroken
one draws; optuna's own seed would begin anew with every process and propose the first trials again.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.console import installation
from stoix_like.runtime.runs import folder as run_folder
from stoix_like.runtime.sweeps.plan import SweepPlan, fingerprint_differences
from stoix_like.runtime.sweeps.space import Choices, Dimension

FILE_NAME = run_folder.STUDY_FILE
ENOUGH_TO_COMPARE = 4  # complete trials; of fewer, importances say nothing
_NAME = "sweep"  # of the study in its file, whatever the folder is called
_IDENTITY = "identity"

State = Literal["running", "complete", "pruned", "failed"]


class Trial(NamedTuple):
    """One trial as it stands.

    Attributes:
        number: from 0 on, in the order of drawing.
        state: `running` also where its process ended before it did.
        parameters: {leaf: value}.
        value: the metric at its end, of a pruned one where it was pruned; None before, or if it failed.
        notes: what was noted of its run: updates, seconds, message.
    """

    number: int
    state: State
    parameters: dict[str, Any]
    value: float | None
    notes: dict[str, Any]


def require() -> None:
    """Nothing, if optuna is installed.

    Raises:
        MissingExtraError: it is not.
    """
    _optuna()


def _optuna() -> Any:
    installation.require_extra("a sweep", "sweep", "optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Study:
    """The study of a plan: opened, or begun if there is none. Its lock must be held.

    Raises:
        ConfigError: it was begun with another plan.
        RunError: its file cannot be read.
    """

    def __init__(self, folder: Path, plan: SweepPlan) -> None:
        self._plan = plan
        optuna = _optuna()
        self.path = (folder / FILE_NAME).absolute()
        self._distributions = {name: _distribution(dimension) for name, dimension in plan.space.items()}
        with _plain_errors(self.path):
            self._storage = optuna.storages.RDBStorage(f"sqlite:///{self.path}")
            self._study = optuna.create_study(
                storage=self._storage, study_name=_NAME, direction=plan.settings.direction, load_if_exists=True
            )
            self._id = self._storage.get_study_id_from_name(_NAME)
            before = self._study.user_attrs.get(_IDENTITY)
        if before is None:
            self._study.set_user_attr(_IDENTITY, plan.fingerprint())
        elif changed := fingerprint_differences(before, plan.fingerprint()):
            self.close()
            raise ConfigError(
                [f"{plan.path}: {line}" for line in changed],
                "values of such trials cannot be compared: undo the changes, or begin another study with --study NAME",
            )

    def close(self) -> None:
        """Closes the file."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def trials(self) -> list[Trial]:
        """Every trial by number, without those that were killed before all their parameters were drawn."""
        found = [_as_trial(trial) for trial in self._study.get_trials(deepcopy=False)]
        return [trial for trial in found if trial.parameters.keys() == self._plan.space.keys()]

    def ask(self) -> Trial:
        """A new trial with parameters from the sampler."""
        self._fail_half_drawn()
        number = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = self._sampler(number)
        asked = self._study.ask(fixed_distributions=self._distributions)
        return next(trial for trial in self.trials() if trial.number == asked.number)

    def _fail_half_drawn(self) -> None:
        """Ends the trials that were killed while their parameters were drawn."""
        whole = {trial.number for trial in self.trials()}
        states = _optuna().trial.TrialState
        for trial in self._study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            if trial.number not in whole:
                self._study.tell(trial.number, state=states.FAIL)

    def _sampler(self, number: int) -> Any:
        samplers = _optuna().samplers
        seed = int(np.random.SeedSequence([self._plan.settings.sampler_seed, number]).generate_state(1)[0])
        return samplers.TPESampler(seed=seed) if self._plan.settings.sampler == "tpe" else samplers.RandomSampler(seed)

    def report(self, number: int, values: Mapping[int, float]) -> None:
        """Notes evaluations of a running trial, as {update: value}; one that is there is written over."""
        for update, value in values.items():
            self._storage.set_trial_intermediate_value(self._trial_id(number), update, value)

    def should_prune(self, number: int, eval_interval: int) -> bool:
        """Whether the pruner gives a running trial up: its best value so far is worse than the median of what the
        complete ones had at the same update.
        """
        settings = self._plan.settings
        if settings.pruner == "none":
            return False
        warmup = settings.pruner_warmup_evaluations * eval_interval + 1  # updates: the last of the warm-up is spared
        pruner = _optuna().pruners.MedianPruner(settings.pruner_startup_trials, n_warmup_steps=warmup)
        return bool(pruner.prune(self._study, self._storage.get_trial(self._trial_id(number))))

    def note(self, number: int, **notes: Any) -> None:
        """Adds to the notes of a running trial: plain JSON values."""
        for name, value in notes.items():
            self._storage.set_trial_user_attr(self._trial_id(number), name, value)

    def complete(self, number: int, value: float) -> None:
        """Ends a trial with its value, which is finite."""
        self._study.tell(number, value)

    def prune(self, number: int) -> None:
        """Ends a trial that was given up; its value is the last one reported."""
        self._study.tell(number, state=_optuna().trial.TrialState.PRUNED)

    def fail(self, number: int, message: str) -> None:
        """Ends a trial that could not be run, or gave no value."""
        self.note(number, message=message)
        self._study.tell(number, state=_optuna().trial.TrialState.FAIL)

    def best(self) -> Trial | None:
        """The complete trial with the best value, the first of equals; None if none is complete."""
        sign = 1.0 if self._plan.settings.direction == "maximize" else -1.0
        complete = [trial for trial in self.trials() if trial.state == "complete"]
        return max(complete, key=lambda trial: sign * (trial.value or 0.0), default=None)

    def importances(self) -> dict[str, float]:
        """Share of each parameter in how the best tenth of the complete trials differs from all of them, the largest
        first; empty if too few are complete. PED-ANOVA (Watanabe et al., 2023, arXiv:2304.10255), the evaluator of
        optuna's that needs no scikit-learn.
        """
        if sum(trial.state == "complete" for trial in self.trials()) < ENOUGH_TO_COMPARE:
            return {}
        importance = _optuna().importance
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # optuna calls it experimental
            evaluator = importance.PedAnovaImportanceEvaluator()
            found = importance.get_param_importances(self._study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    def _trial_id(self, number: int) -> int:
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._id, number))


def _as_trial(trial: Any) -> Trial:
    states: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    value = trial.value if trial.value is not None and math.isfinite(trial.value) else None
    state = states.get(trial.state.name, "running")
    return Trial(trial.number, state, dict(trial.params), value, dict(trial.user_attrs))


def _distribution(dimension: Dimension) -> Any:
    kinds = _optuna().distributions
    if isinstance(dimension, Choices):
        return kinds.CategoricalDistribution(dimension.values)
    if dimension.is_whole:
        return kinds.IntDistribution(int(dimension.low), int(dimension.high), dimension.log, int(dimension.step or 1))
    return kinds.FloatDistribution(dimension.low, dimension.high, dimension.log, dimension.step)


@contextlib.contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """Around opening the file: what is not one of ours, or of another version of optuna."""
    import sqlalchemy.exc  # comes with optuna, and says what SQLite says

    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, _optuna().exceptions.OptunaError, RuntimeError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise RunError(
            f"{path} cannot be read: {reason}", "it is damaged or of another version of optuna; use another --study"
        ) from error
