"""One trial of a sweep: an ordinary run in a folder of its own, which the study's pruner may end.

An unfinished trial is resumed from the last checkpoint of its run, as `--resume` does. Its value is read from the run's
metrics.jsonl, so that the study stores what the run has logged.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from stoix_like.config.checks.access import replace_leaves
from stoix_like.errors import RunError, StoixError, StorageError
from stoix_like.runtime.console.messages import Heartbeat, print_to_stderr
from stoix_like.runtime.console.text import number_text
from stoix_like.runtime.loading.config import LoadedConfig, loaded_config
from stoix_like.runtime.loading.flags import CommandOptions
from stoix_like.runtime.results.series import RunRecord, read_started_run
from stoix_like.runtime.runs.initial_params import find_initial_params
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.sweeps.plan import SweepPlan
from stoix_like.runtime.sweeps.study import Study, Trial
from stoix_like.runtime.telemetry import Report, RunMeta
from stoix_like.runtime.training.callbacks import Callback, RunClock, StopTraining
from stoix_like.runtime.training.driver import INTERRUPTED
from stoix_like.runtime.training.stopping import StopRequest
from stoix_like.runtime.training.train import train

TRIAL_HEARTBEAT_SECONDS = 30.0
PRUNED = "pruned"  # status of a run that the pruner has ended


def trial_values(run: RunRecord, metric: str) -> dict[int, float]:
    """{update: mean of the metric over the seeds of a trial's run}; NaN if the value of a seed was not finite."""
    values = {}
    for update, by_seed in run.evaluations.items():
        if scores := [scores[metric] for scores in by_seed.values() if metric in scores]:
            values[update] = math.nan if None in scores else math.fsum(scores) / len(scores)
    return values


class TrialSink:
    """A sink of a trial's run: reports a metric of evaluations to the study."""

    def __init__(self, study: Study, number: int, metric: str) -> None:
        self._study, self._number, self._metric = study, number, metric
        self._last_update = 0
        self._heartbeat = Heartbeat(print_to_stderr, TRIAL_HEARTBEAT_SECONDS)

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        self._last_update = meta.num_updates
        if meta.resumed_update is not None:  # logged before, but perhaps not reported before the process ended
            self._report(trial_values(read_started_run(run_dir), self._metric))

    def write(self, reports: Sequence[Report]) -> None:
        for report in reports:
            if (scores := report.values.get(self._metric)) is not None:
                self._report({report.clock.update: math.fsum(scores) / len(scores)})

    def close(self) -> None:
        """Does nothing: the sweep closes the study."""

    def _report(self, values: dict[int, float]) -> None:
        if not values:
            return
        self._study.report(self._number, values)
        update = max(values)
        at = f"update {update:,}/{self._last_update:,}"
        self._heartbeat(f"trial {self._number}: {at} · {self._metric} {number_text(values[update], 4)}")


class PruneTrial(Callback):
    """Ends a trial's run after an evaluation, which a `TrialSink` has reported, if the study's pruner says so."""

    def __init__(self, study: Study, number: int, eval_interval: int) -> None:
        self._study, self._number, self._eval_interval = study, number, eval_interval
        self._asked_at = 0

    def next_update(self, clock: RunClock) -> int:
        evaluated = clock.evaluated_at > self._asked_at and not clock.is_last
        return clock.update if evaluated else super().next_update(clock)

    def run(self, state: Any, clock: RunClock) -> Any:
        """The state. Raises StopTraining if the trial is pruned."""
        self._asked_at = clock.evaluated_at
        try:
            is_hopeless = self._study.should_prune(self._number, self._eval_interval)
        except RunError as error:  # such as a locked file
            print_to_stderr(f"warning: trial {self._number} is not pruned: {error.what}")
            return state
        if is_hopeless:
            raise StopTraining(PRUNED)
        return state


def run_trial(plan: SweepPlan, study: Study, trial: Trial, path: Path, stop: StopRequest) -> bool:
    """Whether the result of a trial, trained in the run folder `path`, is stored in the study.

    Else the trial was interrupted by `stop`, and must be resumed. An error of this trial alone (an invalid combination
    of leaves, a loss that is not finite) fails the trial.

    Raises RunError if files cannot be written, which would end every trial. A bug, for example in a user's environment,
    is raised too; the trial is marked as failed, and the next start of the sweep continues with the next trial.
    """
    try:
        loaded = _load_trial_config(plan, trial, path)
        prune = PruneTrial(study, trial.number, loaded.config.evaluation.eval_interval)
        sink = TrialSink(study, trial.number, plan.settings.metric)
        # what the run prints; its warnings stay on stderr
        with path.with_name(f"{path.name}.log").open("a", encoding="utf-8", buffering=1) as log, redirect_stdout(log):
            result = train(plan.settings.algorithm, loaded, [prune], sinks=[sink], stop=stop)
    except StorageError:
        raise
    except StoixError as error:
        study.fail(trial.number, " ".join(error.what.split()))
        return True
    except OSError:
        raise
    except Exception as error:
        study.fail(trial.number, " ".join(f"{type(error).__name__}: {error}".split()))
        raise
    if result.status != INTERRUPTED:
        _store_result(study, trial.number, path, plan.settings.metric, is_pruned=result.status == PRUNED)
    return result.status != INTERRUPTED


def _store_result(study: Study, number: int, path: Path, metric: str, *, is_pruned: bool) -> None:
    run = read_started_run(path)
    values = trial_values(run, metric)
    study.report(number, values)
    notes = {"updates": run.last.get("update"), "seconds": run.last.get("elapsed_seconds")}
    notes["compile_seconds"] = run.latest("compile_seconds")  # of the last start
    study.note(number, **{name: note for name, note in notes.items() if note is not None})
    value = values[max(values)]
    if is_pruned:
        study.prune(number)
    elif math.isfinite(value):
        study.complete(number, value)
    else:
        study.fail(number, "the final value of the metric is not finite")


def _load_trial_config(plan: SweepPlan, trial: Trial, path: Path) -> LoadedConfig:
    """The configuration of a trial's run: to resume it from its last checkpoint, or to start it."""
    name = plan.settings.preset
    has_checkpoint = any(folder.name.isdecimal() for folder in (path / "checkpoints").glob("*"))
    if has_checkpoint and (path / "config.yaml").is_file():
        return load_config(plan.config_type, plan.settings.algorithm, ["--resume", str(path)], default_config=name)
    if path.exists():
        shutil.rmtree(path)  # killed before its first checkpoint
    leaves = {"save_dir": str(path.parent), "run_name": path.name}
    if (begins_with := initial_params(plan, path.parents[1])) is not None:
        leaves["load_path"] = str(begins_with)
    return loaded_config(plan.config_of(trial.parameters, **leaves), CommandOptions(config=name))


def initial_params(plan: SweepPlan, save_dir: Path) -> Path | None:
    """What `load_path` names, with which all trials begin: a name is that of a run in `save_dir`. None if not set.

    Raises CheckpointError as `find_initial_params`.
    """
    return find_initial_params(replace_leaves(plan.example, {"save_dir": str(save_dir)}))
