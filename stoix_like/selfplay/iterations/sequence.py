"""Iterations one after the other, in one process, and what is shown of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax

from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import INTERRUPTED, ConfigError, LockedError
from stoix_like.runtime.console import signals
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.stages.manifest import FILE
from stoix_like.runtime.training.stopping import Interrupted, stopping_on_signals
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.iterations.begin import IterationOptions, begin_iteration, check_iteration, next_iteration
from stoix_like.selfplay.iterations.due import Needs, Step, due_step
from stoix_like.selfplay.iterations.report import report_lines
from stoix_like.selfplay.iterations.steps import run_iteration, run_step
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.pipeline.programs import Pipeline

_KEPT = {
    "selfplay": "finished shards are kept, and the games of the unfinished one are played again",
    "evaluate": "finished pieces of the match are kept, and the games of the unfinished one are played again",
}


class LoopOptions(NamedTuple):
    """What a call of the command does.

    Attributes:
        first: of the first iteration, which may be one that was interrupted.
        later: of those after it.
        max_iterations: how many are finished.
        dry_run: only say what would be done.
        stage: run this one alone, of the iteration that is worked on.
        argv: the command line, without what begins another iteration: typed again, it goes on.
    """

    first: IterationOptions = IterationOptions()
    later: IterationOptions = IterationOptions()
    max_iterations: int = 1
    dry_run: bool = False
    stage: str | None = None
    argv: tuple[str, ...] = ()


def run(config: SelfPlayConfig, options: LoopOptions, reporter: Reporter) -> int:
    """Runs the iterations; returns the exit code. Raises StoixError as `run_iteration`."""
    with stopping_on_signals() as stop:
        pipeline = Pipeline(config, reporter, stop)
        reporter.info(header_line(pipeline))
        if options.dry_run:
            check_iteration(pipeline, options.first)
            for line in plan_lines(pipeline.layout, options):
                reporter.info(line)
            return 0
        try:
            with signals.closing_lines(lambda: [_next_line(pipeline, options)]):
                if options.stage is not None:
                    reporter.info(_run_one(pipeline, options.first, options.stage))
                else:
                    _run_iterations(pipeline, options)
        except Interrupted as stopped:
            kept = _KEPT.get(str(stopped), "what is finished is kept")
            reporter.info(f"interrupted in {stopped}; {kept}\n{_next_line(pipeline, options)}")
            return INTERRUPTED
        reporter.info(_next_line(pipeline, options._replace(argv=_without_stage(options.argv))))
        return 0


def _run_iterations(pipeline: Pipeline, options: LoopOptions) -> None:
    each = options.first
    for _ in range(options.max_iterations):
        for line in report_lines(pipeline, run_iteration(pipeline, each)):
            pipeline.reporter.info(line)
        each = options.later._replace(new_iteration=False)


def _run_one(pipeline: Pipeline, options: IterationOptions, stage: str) -> str:
    """What was done: one stage of the iteration that is worked on. Raises ConfigError if another one is due."""
    number = next_iteration(pipeline.layout, new=options.new_iteration)
    _due_stage(pipeline, number, stage)  # asked before an iteration is begun, and of the begun one again
    number = begin_iteration(pipeline, options)
    if run_step(pipeline, number, _due_stage(pipeline, number, stage), options.data_path) is None:
        what = f"--stage {stage}: another process has worked on iteration {number} meanwhile"
        raise LockedError(what, "type the same command again")
    return f"iteration {number}: {stage} is done"


def _due_stage(pipeline: Pipeline, number: int, stage: str) -> Step:
    """The stage of an iteration. Raises ConfigError if another one is due."""
    step = due_step(pipeline.layout, number, Needs(pipeline.config.selfplay.min_samples))
    if step is None or step.stage != stage:
        due = "nothing" if step is None else f"the stage {step.stage}"
        raise ConfigError(f"--stage {stage}: {due} of iteration {number} is due", "run the stages in their order")
    return step


def _without_stage(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line that goes on with all stages."""
    words = list(argv)
    for index, word in enumerate(words):
        if word == "--stage":
            del words[index : index + 2]
        elif word.startswith("--stage="):
            del words[index]
    return tuple(words)


def header_line(pipeline: Pipeline) -> str:
    """The version, the device, the folder, its seed and its champion."""
    layout = pipeline.layout
    champion = "a new pipeline"
    if layout.champion.is_file():
        record = records.read_record(layout.champion)
        champion = f"champion {record.hash[:12]} of iteration {record.iteration}"
    parts = f"stoix_like {versions()['stoix_like']}", devices.describe_devices(jax.devices()[:1])
    return " · ".join((*parts, str(layout.root), f"seed {pipeline.config.architecture.seed}", champion))


def _next_line(pipeline: Pipeline, options: LoopOptions) -> str:
    """What goes on, and what shows the candidates: a line each."""
    again = f"next: {command_line('run-training-loop', *options.argv)}"
    layout = pipeline.layout
    if not any((layout.stage(number, "evaluate") / FILE).is_file() for number in layout.newest_first()):
        return again  # nobody can be rated yet
    return f"{again}\n      {command_line('ratings', '--lineage', str(layout.root))}"


def plan_lines(layout: Layout, options: LoopOptions) -> Iterator[str]:
    """What a call would do, a line for each stage of its first iteration. Writes nothing."""
    each = options.first
    number = next_iteration(layout, new=each.new_iteration)
    yield f"iteration {number} in {layout.root}"
    skipped = {"selfplay": each.skip_selfplay or each.data_path is not None}
    skipped |= {"sync": each.data_path is not None, "evaluate": each.skip_evaluation}
    for name, manifest in files_of(layout, number).manifests.items():
        is_done = manifest is not None
        yield f"  {name}: " + ("skipped" if skipped.get(name) else "done" if is_done else "to do")
    if options.max_iterations > 1:
        yield f"then {options.max_iterations - 1} more"
