"""One trial of a sweep: an ordinary run in a folder of its own, which the study's pruner may end.

An unfinished trial is resumed from the last checkpoint of its run, as `--resume` does. Its value is read from the run's
metrics.jsonl, so that the study stores what the run has logged.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import INTERRUPTED, StoixError
from stoix_like.runtime.console.messages import Heartbeat, print_to_stderr
from stoix_like.runtime.console.text import number_text
from stoix_like.runtime.loading.config import LoadedConfig, loaded_config
from stoix_like.runtime.loading.flags import CommandOptions
from stoix_like.runtime.results.series import read_started_run
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.sweeps.plan import SweepPlan
from stoix_like.runtime.sweeps.study import Study, Trial
from stoix_like.runtime.telemetry import Row, RunMeta
from stoix_like.runtime.training.stopping import StopRequest
from stoix_like.runtime.training.train import train

TRIAL_HEARTBEAT_SECONDS = 30.0


class TrialMetrics(NamedTuple):
    """The metrics of a trial, from its run's metrics.jsonl."""

    values: dict[int, float]  # {update: mean of the metric over seeds}
    notes: dict[str, Any]  # updates, seconds, and compile_seconds of the last start


def read_trial_metrics(run_dir: Path, metric: str) -> TrialMetrics:
    """The evaluations of a run, and its last update and time. Raises RunError if it has no metrics."""
    run = read_started_run(run_dir)
    evaluations = [(update, scores) for update, by_seed in run.evaluations.items() for scores in by_seed.values()]
    values = _means((update, scores[metric]) for update, scores in evaluations if metric in scores)
    notes = {"updates": run.last.get("update"), "seconds": run.last.get("elapsed_seconds")}
    notes["compile_seconds"] = run.latest("compile_seconds")
    return TrialMetrics(values, {name: value for name, value in notes.items() if value is not None})


def _means(scores: Iterable[tuple[int, Any]]) -> dict[int, float]:
    """{update: mean of its scores, one per seed}; NaN if a score is missing."""
    found: dict[int, list[float]] = {}
    for update, score in scores:
        found.setdefault(update, []).append(math.nan if score is None else float(score))
    return {update: math.fsum(each) / len(each) for update, each in found.items()}


class TrialSink:
    """A sink of a trial's run: reports evaluations to the study, and stops the run if the trial is pruned.

    Args:
        study, number: the trial.
        metric: the metric to report.
        stop: stops the run; signals set it too.
    """

    def __init__(self, study: Study, number: int, metric: str, stop: StopRequest) -> None:
        self.was_pruned = False
        self._study, self._number, self._metric, self._stop = study, number, metric, stop
        self._eval_interval, self._last_update = 0, 0
        self._heartbeat = Heartbeat(print_to_stderr, TRIAL_HEARTBEAT_SECONDS)

    @property
    def is_signalled(self) -> bool:
        """Whether a signal stopped the run."""
        return self._stop.is_set and not self.was_pruned

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        self._eval_interval, self._last_update = meta.config.evaluation.eval_interval, meta.num_updates
        if meta.resumed_update is not None:  # logged before, but perhaps not reported before the process ended
            self._report(read_trial_metrics(run_dir, self._metric).values)

    def write(self, rows: Sequence[Row]) -> None:
        self._report(_means((row.update, row.values[self._metric]) for row in rows if self._metric in row.values))

    def close(self) -> None:
        """Does nothing: the sweep closes the study."""

    def _report(self, values: dict[int, float]) -> None:
        if not values:
            return
        self._study.report(self._number, values)
        update = max(values)
        at = f"update {update:,}/{self._last_update:,}"
        self._heartbeat(f"trial {self._number}: {at} · {self._metric} {number_text(values[update], 4)}")
        if self._stop.is_set or update >= self._last_update:  # a signal came first, or the run ends anyway
            return
        if self._study.should_prune(self._number, self._eval_interval):
            self.was_pruned = self._stop.is_set = True


class TrialOutcome(NamedTuple):
    """The outcome of a trial in this process."""

    is_finished: bool  # its result is stored in the study; else it must be resumed
    is_signalled: bool  # a signal stopped the sweep


def run_trial(plan: SweepPlan, study: Study, trial: Trial, path: Path, outer: StopRequest) -> TrialOutcome:
    """Trains a trial in the run folder `path`, and stores its result in the study.

    An error of this trial alone (an invalid combination of leaves, a loss that is not finite) fails the trial.

    Args:
        plan, study, trial: the trial to run.
        path: its run folder.
        outer: the sweep's stop request, which signals set while no run handles them.

    Raises:
        RunError: files cannot be written, which would end every trial.
        Exception: a bug, for example in a user's environment. The trial is marked as failed, and the next start of the
            sweep continues with the next trial.
    """
    sinks: list[TrialSink] = []

    def make_sink(stop: StopRequest) -> TrialSink:
        sinks.append(TrialSink(study, trial.number, plan.settings.metric, stop))
        return sinks[-1]

    try:
        loaded = _load_trial_config(plan, trial, path)
        with _redirect_stdout(path.with_name(f"{path.name}.log")):
            code = train(plan.settings.algorithm, loaded, make_sink, outer)
    except StoixError as error:
        if isinstance(error.__cause__, OSError):
            raise
        study.fail(trial.number, " ".join(error.what.split()))
        return TrialOutcome(True, any(sink.is_signalled for sink in sinks))
    except OSError:
        raise
    except Exception as error:
        study.fail(trial.number, " ".join(f"{type(error).__name__}: {error}".split()))
        raise
    is_signalled = any(sink.is_signalled for sink in sinks)
    if code == INTERRUPTED and is_signalled:
        return TrialOutcome(False, True)
    _store_result(study, trial.number, read_trial_metrics(path, plan.settings.metric), is_pruned=code == INTERRUPTED)
    return TrialOutcome(True, is_signalled)


def _store_result(study: Study, number: int, metrics: TrialMetrics, *, is_pruned: bool) -> None:
    study.report(number, metrics.values)
    study.note(number, **metrics.notes)
    value = metrics.values[max(metrics.values)]
    if is_pruned:
        study.prune(number)
    elif math.isfinite(value):
        study.complete(number, value)
    else:
        study.fail(number, "the final value of the metric is not finite")


def _load_trial_config(plan: SweepPlan, trial: Trial, path: Path) -> LoadedConfig:
    """The configuration of a trial's run: to resume it from its last checkpoint, or to start it."""
    name = plan.settings.config or f"{plan.settings.algorithm}/quick"
    if _is_resumable(path):
        return load_config(plan.config_type, plan.settings.algorithm, ["--resume", str(path)], default_config=name)
    if path.exists():
        shutil.rmtree(path)  # killed before its first checkpoint
    config = plan.config_of(trial.parameters, save_dir=str(path.parent), run_name=path.name)
    return loaded_config(config, CommandOptions(config=name))


def _is_resumable(path: Path) -> bool:
    has_checkpoint = any(folder.name.isdecimal() for folder in (path / "checkpoints").glob("*"))
    return has_checkpoint and (path / "config.yaml").is_file()


@contextlib.contextmanager
def _redirect_stdout(path: Path) -> Iterator[None]:
    """Appends what the run prints to that file. Warnings stay on stderr."""
    with path.open("a", encoding="utf-8", buffering=1) as log, contextlib.redirect_stdout(log):
        yield
