"""Runs a sweep: trains its trials one after the other, each as an ordinary run in a folder of its own.

A sweep may end at any time, and the same command resumes it: the study stores its trials, and an unfinished trial is
resumed. Only one process may work on a study. A second one could not distinguish a running trial from one whose process
was killed, and both would share a device that one process fills.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from stoix_like.config.checks.combinations import RUN_NAME_RULE, is_run_name
from stoix_like.errors import INTERRUPTED, ConfigError, RunError, StorageError
from stoix_like.runtime.console.spelling import command_line, training_command
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.runtime.storage.os_errors import words_of
from stoix_like.runtime.storage.sqlite_files import sqlite_url
from stoix_like.runtime.sweeps import study as sweep_study
from stoix_like.runtime.sweeps import table
from stoix_like.runtime.sweeps.plan import SweepPlan, check_metric, pace_note
from stoix_like.runtime.sweeps.study import Study, Trial
from stoix_like.runtime.training.stopping import StopRequest, stopping_on_signals


def run_sweep(plan: SweepPlan, folder: Path, argv: list[str]) -> int:
    """Runs or resumes the sweep whose study is in `folder`; returns the exit code. A hint names `argv` to resume it.

    Raises ConfigError if the study was started with another plan, and RunError if another process works on it, a file
    cannot be written, or no trial is complete.
    """
    with contextlib.ExitStack() as closing:
        closing.callback(_lock(folder).close)
        study = Study(folder, plan)
        closing.callback(study.close)
        stop = closing.enter_context(stopping_on_signals())
        sweep = _SweepRun(plan, study, folder)
        sweep.print_header()
        is_complete = sweep.run_trials(stop)
        sweep.finish(argv, is_complete)
        if is_complete and study.best() is None:
            raise RunError(f"no trial of {folder} is complete", "the table lists the state of each trial")
    return 0 if is_complete else INTERRUPTED


def study_folder(save_dir: Path, name: str) -> Path:
    """The folder of a study, which may exist already.

    Raises ConfigError if the name is not valid, if no study can be there, or if the folder contains something else.
    """
    if not is_run_name(name):
        raise ConfigError(f"--study: {name!r} cannot name a study", RUN_NAME_RULE)
    folder = save_dir / name
    sqlite_url(folder / sweep_study.FILE_NAME)
    held = {entry.name for entry in folder.iterdir()} - {".lock"} if folder.is_dir() else set()
    if held and sweep_study.FILE_NAME not in held:
        raise ConfigError(f"--study: {folder} holds something else", "choose another --study or --save-dir")
    return folder


def _lock(folder: Path) -> RunLock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {folder}: {words_of(error)}", "choose another --save-dir") from error
    try:
        return RunLock(folder)
    except RunError as error:
        hint = "wait for it to end, or start another study with --study NAME"
        raise RunError(error.what, hint if isinstance(error.__cause__, BlockingIOError) else error.hint) from error


def check_task(plan: SweepPlan, save_dir: Path) -> None:
    """Checks device, task, metric and first parameters before the first trial, whose study is in `save_dir`.

    Raises the StoixError that every trial would raise.
    """
    import jax

    from stoix_like.runtime.hardware import devices

    devices.select(plan.example.hardware, plan.example.logging)
    from stoix_like.runtime.evaluators.items import metrics_of_items  # starts the backend, as do the others: only now
    from stoix_like.runtime.runs import build
    from stoix_like.runtime.sweeps.trial import initial_params
    from stoix_like.runtime.telemetry.metrics import EVALUATION_METRICS

    initial_params(plan, save_dir)
    env, _, learner = build.build(plan.settings.algorithm, plan.example)
    if learner.score is not None:
        own = metrics_of_items(learner)
    else:
        own = list(jax.eval_shape(env.episode_metrics, *jax.eval_shape(env.reset, jax.random.key(0))))
    check_metric(plan, [*EVALUATION_METRICS, *own])


class _SweepRun:
    """Runs the trials of one study in this process, and prints and writes their results."""

    def __init__(self, plan: SweepPlan, study: Study, folder: Path) -> None:
        from stoix_like.runtime.telemetry.terminal import TerminalView

        self._plan, self._study, self._folder = plan, study, folder
        self._view = TerminalView(progress=False)

    def print_header(self) -> None:
        """Prints the lines before the first trial, and copies the sweep file into the study's folder."""
        settings, space = self._plan.settings, self._plan.space
        done = sum(trial.state != "running" for trial in self._study.trials())
        seeds = "1 seed" if settings.num_seeds == 1 else f"{settings.num_seeds} seeds side by side"
        lines = [
            f"sweep {settings.preset} over {', '.join(space)}",
            f"plan  {settings.num_trials} trials of {seeds}, {settings.direction} {settings.metric}",
            f"study {self._folder}" + (f", {done} of its trials are done" if done else ""),
        ]
        self._view.lines(lines)
        if note := pace_note(self._plan):
            self._view.note(note)
        atomic_write_text(self._folder / "sweep.yaml", self._plan.path.read_text(encoding="utf-8-sig"))

    def run_trials(self, stop: StopRequest) -> bool:
        """Runs every remaining trial; False if a signal interrupted the sweep."""
        from stoix_like.runtime.sweeps import trial as sweep_trial

        for trial in self._remaining_trials(stop):
            path = self._folder / f"trial-{trial.number:04d}"
            self._view.lines([f"trial {trial.number} is running; its output: {path}.log"])
            if sweep_trial.run_trial(self._plan, self._study, trial, path, stop):
                finished = next(each for each in self._study.trials() if each.number == trial.number)
                self._view.lines([table.trial_text(finished, self._study.best())])
                self._write_tables()
        return not stop.is_set

    def _remaining_trials(self, stop: StopRequest) -> Iterator[Trial]:
        """The interrupted trials, then new ones until the study has enough."""
        for trial in self._study.trials():
            if trial.state == "running" and not stop.is_set:
                yield trial
        while not stop.is_set and len(self._study.trials()) < self._plan.settings.num_trials:
            yield self._study.ask()

    def _write_tables(self) -> None:
        trials, best, importances = self._study.trials(), self._study.best(), self._study.importances()
        atomic_write_text(self._folder / "trials.json", table.json_text(self._plan, trials, best, importances))
        atomic_write_text(self._folder / "trials.csv", table.csv_text(self._plan, trials))

    def finish(self, argv: list[str], is_complete: bool) -> None:
        """Prints the results and draws the figure; for an interrupted sweep, prints how to resume it."""
        trials, best = self._study.trials(), self._study.best()
        if not is_complete:
            done = sum(trial.state != "running" for trial in trials)
            again = f"next: {command_line('sweep', *argv)}"
            self._view.lines([f"interrupted, saved: {done} of {self._plan.settings.num_trials} trials are done", again])
            return
        self._write_tables()
        self._view.lines(["", *table.rows_text(self._plan, trials).splitlines(), ""])
        if best is None:
            return
        self._view.lines([f"best: trial {best.number}, {self._plan.settings.metric} {table.value_text(best)}"])
        self._plot_importances()
        path = self._folder / f"trial-{best.number:04d}"
        new_run = ("--save-dir", str(self._folder.parent), "--run-name", f"{self._folder.name}-best")
        command = training_command(self._plan.settings.algorithm)
        again = command_line(*command, "--config", f"{path}/config.yaml", *new_run)
        self._view.lines([f"next: {again}", f"      {command_line('evaluate', str(path))}"])

    def _plot_importances(self) -> None:
        from stoix_like.runtime.figures.importances import plot_importances

        importances = self._study.importances()
        if not importances:
            self._view.lines([f"importances need {sweep_study.MIN_TRIALS_FOR_IMPORTANCES} complete trials"])
            return
        title = f"{self._folder.name}: {self._plan.settings.metric}"
        figure = plot_importances(importances, self._folder / "importances.png", title)
        shares = ", ".join(f"{name} {share:.2f}" for name, share in importances.items())
        self._view.lines([f"importances: {shares}", f"figure {figure}, tables {self._folder}/trials.json and .csv"])
