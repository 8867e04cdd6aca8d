"""The study of a sweep: its trials, their sampler and their pruner. It and `cma_es.py` are the users of Optuna.

A study is one SQLite file next to the folders of its trials. The process that opens it holds the study's lock, so a
trial with state running is one whose process ended. It keeps its number and parameters until its result is recorded
with `study.tell`. The sampler of trial N is seeded by (sampler_seed, N), so a resumed study samples what an
uninterrupted one does. Optuna's own seed would restart with every process and sample the first trials again.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np

from stoix_like.errors import ConfigError, StorageError
from stoix_like.runtime.console import installation
from stoix_like.runtime.runs import folder as run_folder
from stoix_like.runtime.storage.sqlite_files import sqlite_url
from stoix_like.runtime.sweeps.plan import SweepPlan, fingerprint_differences
from stoix_like.runtime.sweeps.space import Choices, Dimension

FILE_NAME = run_folder.STUDY_FILE
MIN_TRIALS_FOR_IMPORTANCES = 4  # complete trials; importances of fewer are meaningless
_NAME = "sweep"  # of the study in its file; it does not depend on the folder
_FINGERPRINT = "identity"  # the attribute of the study in its file
_LOCKED_SECONDS = 60.0  # another program may hold the file so long: a backup, a dashboard

State = Literal["running", "complete", "pruned", "failed"]


class Trial(NamedTuple):
    """One trial of a study."""

    number: int  # from 0, in the order of sampling
    state: State  # `running` also if its process ended before the trial was finished
    parameters: dict[str, Any]  # {leaf: value}
    value: float | None  # the last value of the metric; None while it is running, or if it failed
    notes: dict[str, Any]  # attributes of its run: updates, seconds, message


def require_optuna() -> Any:
    """The module of Optuna. Raises MissingExtraError if it is not installed."""
    installation.require_extra("a sweep", "sweep", "optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


#: {part of SQLite's message: what to do}. Anything else is a file that is no study.
_HINTS = {
    "locked": "another program holds it, such as a backup or a dashboard: when it is done, type the same command again",
    "full": "free some space, then type the same command again",
    "readonly": "make it writable, then type the same command again",
    "disk I/O": "see that its disk works, then type the same command again",
    "unable to open": "see that its folder is there and can be written, then type the same command again",
}
_DAMAGED = "it is damaged or of another version of optuna; use another --study"
_REMOVED = "put it back, then type the same command again; or start another --study"


@contextlib.contextmanager
def _file_errors(path: Path, inode: int | None) -> Iterator[None]:
    """Raises StorageError in place of the errors of SQLite and Optuna about the file, which had this inode."""
    import sqlalchemy.exc  # a dependency of Optuna; its errors contain those of SQLite

    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, require_optuna().exceptions.OptunaError, RuntimeError) as error:
        chain = [error, error.__cause__, error.__context__]  # Optuna wraps the error of SQLAlchemy, and that SQLite's
        found = next((e.orig for e in chain if isinstance(e, sqlalchemy.exc.DBAPIError) and e.orig), error)
        reason = str(found).strip().splitlines()[0]
        hint = next((hint for part, hint in _HINTS.items() if part in reason), _DAMAGED)
        if inode is not None and inode_of(path) != inode:
            reason, hint = "it was removed or replaced while the sweep ran", _REMOVED
        raise StorageError(f"{path} cannot be used: {reason}", hint) from error


def inode_of(path: Path) -> int | None:
    """The number of the file on its disk; None if it is not there."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _with_file_errors(method: _Method) -> _Method:
    """A method of the study that raises StorageError, see `_file_errors`."""

    @functools.wraps(method)
    def call(self: Study, *args: Any, **kwargs: Any) -> Any:
        with _file_errors(self.path, self._inode):
            return method(self, *args, **kwargs)

    return cast("_Method", call)


class Study:
    """The study of a plan, created if its file does not exist. The caller must hold its lock.

    Raises ConfigError if it was started with another plan. Every method raises StorageError if the file cannot be read
    or written: what was stored is intact, and the same command goes on.
    """

    def __init__(self, folder: Path, plan: SweepPlan) -> None:
        self._plan = plan
        optuna = require_optuna()
        self.path = (folder / FILE_NAME).absolute()
        self._distributions = {name: distribution(dimension) for name, dimension in plan.space.items()}
        with _file_errors(self.path, None):
            waits = {"connect_args": {"timeout": _LOCKED_SECONDS}}
            self._storage = optuna.storages.RDBStorage(sqlite_url(self.path), engine_kwargs=waits)
            self._study = optuna.create_study(
                storage=self._storage, study_name=_NAME, direction=plan.settings.direction, load_if_exists=True
            )
            self._id = self._storage.get_study_id_from_name(_NAME)
            before = self._study.user_attrs.get(_FINGERPRINT)
            if before is None:
                self._study.set_user_attr(_FINGERPRINT, plan.fingerprint())
        self._inode = inode_of(self.path)
        if before is not None and (changed := fingerprint_differences(before, plan.fingerprint())):
            self.close()
            raise ConfigError(
                [f"{plan.path}: {line}" for line in changed],
                "their trials cannot be compared: undo the changes, or start another study with --study NAME",
            )

    def close(self) -> None:
        """Closes the file."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    @_with_file_errors
    def trials(self) -> list[Trial]:
        """All trials by number, without those that were killed before all their parameters were sampled."""
        found = [_make_trial(trial) for trial in self._study.get_trials(deepcopy=False)]
        return [trial for trial in found if trial.parameters.keys() == self._plan.space.keys()]

    @_with_file_errors
    def ask(self) -> Trial:
        """A new trial with parameters from the sampler."""
        self._fail_half_sampled()
        number = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = self._sampler(number)
        new = self._study.ask(fixed_distributions=self._distributions)
        return next(trial for trial in self.trials() if trial.number == new.number)

    def _fail_half_sampled(self) -> None:
        """Fails the trials that were killed while their parameters were sampled."""
        sampled = {trial.number for trial in self.trials()}
        states = require_optuna().trial.TrialState
        for trial in self._study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            if trial.number not in sampled:
                self._study.tell(trial.number, state=states.FAIL)

    def _sampler(self, number: int) -> Any:
        samplers = require_optuna().samplers
        seed = int(np.random.SeedSequence([self._plan.settings.sampler_seed, number]).generate_state(1)[0])
        return samplers.TPESampler(seed=seed) if self._plan.settings.sampler == "tpe" else samplers.RandomSampler(seed)

    @_with_file_errors
    def report(self, number: int, values: Mapping[int, float]) -> None:
        """Stores evaluations of a running trial as {update: value}. An existing value of an update is replaced."""
        for update, value in values.items():
            self._storage.set_trial_intermediate_value(self._trial_id(number), update, value)

    @_with_file_errors
    def should_prune(self, number: int, eval_interval: int) -> bool:
        """Whether the best value of a running trial is worse than the median of the complete trials at its update."""
        settings = self._plan.settings
        if settings.pruner == "none":
            return False
        warmup = settings.pruner_warmup_evaluations * eval_interval + 1  # updates; the last of the warm-up included
        pruner = require_optuna().pruners.MedianPruner(settings.pruner_startup_trials, n_warmup_steps=warmup)
        return bool(pruner.prune(self._study, self._storage.get_trial(self._trial_id(number))))

    @_with_file_errors
    def note(self, number: int, **notes: Any) -> None:
        """Adds plain JSON values to the notes of a running trial."""
        for name, value in notes.items():
            self._storage.set_trial_user_attr(self._trial_id(number), name, value)

    @_with_file_errors
    def complete(self, number: int, value: float) -> None:
        """Completes a trial with its value, which is finite."""
        self._study.tell(number, value)

    @_with_file_errors
    def prune(self, number: int) -> None:
        """Marks a trial as pruned. Its value is the last one reported."""
        self._study.tell(number, state=require_optuna().trial.TrialState.PRUNED)

    @_with_file_errors
    def fail(self, number: int, message: str) -> None:
        """Marks a trial as failed: it could not be run, or has no value."""
        self.note(number, message=message)
        self._study.tell(number, state=require_optuna().trial.TrialState.FAIL)

    def best(self) -> Trial | None:
        """The complete trial with the best value, the first of equal ones; None if no trial is complete."""
        sign = 1.0 if self._plan.settings.direction == "maximize" else -1.0
        complete = [trial for trial in self.trials() if trial.state == "complete"]
        return max(complete, key=lambda trial: sign * (trial.value or 0.0), default=None)

    @_with_file_errors
    def importances(self) -> dict[str, float]:
        """{parameter: its share in how the best tenth of the complete trials differs from all}, the largest first.

        Empty if too few trials are complete. PED-ANOVA (Watanabe et al., 2023, arXiv:2304.10255), the evaluator of
        Optuna that does not need scikit-learn.
        """
        if sum(trial.state == "complete" for trial in self.trials()) < MIN_TRIALS_FOR_IMPORTANCES:
            return {}
        importance = require_optuna().importance
        with warnings.catch_warnings(action="ignore"):  # Optuna marks the evaluator as experimental
            evaluator = importance.PedAnovaImportanceEvaluator()
            found = importance.get_param_importances(self._study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    def _trial_id(self, number: int) -> int:
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._id, number))


def _make_trial(trial: Any) -> Trial:
    states: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    value = trial.value if trial.value is not None and math.isfinite(trial.value) else None
    state = states.get(trial.state.name, "running")
    return Trial(trial.number, state, dict(trial.params), value, dict(trial.user_attrs))


def distribution(dimension: Dimension) -> Any:
    """The dimension as Optuna states it."""
    kinds = require_optuna().distributions
    if isinstance(dimension, Choices):
        return kinds.CategoricalDistribution(dimension.values)
    if dimension.is_whole:
        return kinds.IntDistribution(int(dimension.low), int(dimension.high), dimension.log, int(dimension.step or 1))
    return kinds.FloatDistribution(dimension.low, dimension.high, dimension.log, dimension.step)
