"""One iteration: the six stages in turn, each unless its manifest says that it is done.

The state of a pipeline is what its folder says. The same call again goes on where the last one stopped, in a new
process too; when all stages are done, the next iteration begins. A lock is held while a stage runs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from stoix_like.runtime.stages.damage import DamagedOutputError
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.iterations import table
from stoix_like.selfplay.iterations.begin import NORMAL, IterationOptions, begin_iteration, work_lock
from stoix_like.selfplay.iterations.due import Needs, Step, due_step, is_still_due
from stoix_like.selfplay.iterations.table import StageOptions, files_of
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages import restoring


class IterationReport(NamedTuple):
    """What an iteration has done. Manifests of stages that were skipped are None."""

    iteration: int
    played: Manifest | None
    synced: Manifest | None
    exported: Manifest
    trained: Manifest
    evaluated: Manifest | None
    promoted: Manifest
    seconds: float  # of this call


def run_iteration(pipeline: Pipeline, options: IterationOptions = NORMAL) -> IterationReport:
    """Runs what is left of the present iteration, or the next one.

    Raises:
        ConfigError: it was begun with another configuration.
        MissingExtraError: a sink that is selected needs a package that is not installed.
        RunError: another process works on this game, or the store has too little to learn from.
        CheckpointError: a file is missing, damaged or was changed.
        Interrupted: a signal ended a stage.
    """
    layout, began = pipeline.layout, time.monotonic()
    number = begin_iteration(pipeline, options)
    needs = Needs(pipeline.config.selfplay.min_samples)
    for name, manifest in files_of(layout, number).manifests.items():
        if manifest is not None:
            pipeline.reporter.info(f"{name}: done before")
    while (step := due_step(layout, number, needs)) is not None:
        run_step(pipeline, number, step, options.data_path)
    return report_of(layout, number, time.monotonic() - began)


def run_step(pipeline: Pipeline, number: int, step: Step, data_path: Path | None = None) -> Manifest | None:
    """The manifest of a stage of a begun iteration, which runs under the lock of the game. The ones before it are done.

    None if it is no longer due: another process has had the lock since this one has looked. If what an earlier stage
    has made is damaged, that one runs again instead. Raises as `run_iteration`.
    """
    if pipeline.stop.is_set:
        raise Interrupted(step.stage)
    with work_lock(pipeline.layout):
        if not is_still_due(pipeline.layout, number, step):
            return None
        options = StageOptions(step.batches, data_path)
        try:
            return _run_stage(pipeline, number, step.stage, options)
        except DamagedOutputError as damage:
            restoring.set_aside(pipeline, damage)
            return _run_stage(pipeline, number, damage.stage, options)


def _run_stage(pipeline: Pipeline, number: int, name: str, options: StageOptions) -> Manifest:
    return table.BY_NAME[name].work(pipeline, files_of(pipeline.layout, number), options)


def report_of(layout: Layout, number: int, seconds: float) -> IterationReport:
    """What a finished iteration has done."""
    files = files_of(layout, number)
    played, synced, evaluated = map(files.find, ("selfplay", "sync", "evaluate"))
    exported, trained, promoted = map(files.done, ("export", "train", "promote"))
    return IterationReport(number, played, synced, exported, trained, evaluated, promoted, seconds)
