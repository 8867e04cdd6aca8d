"""Runs a pipeline, or one of its stages, under the lock of its folder, until all is done or a signal comes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import jax

from stoix_like.config.sections.spa import SPAConfig
from stoix_like.errors import INTERRUPTED, ConfigError, RunError
from stoix_like.runtime.console import signals
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.runs.agents import LEAST_FORMAT
from stoix_like.runtime.runs.pipeline_files import RUN
from stoix_like.runtime.stages.manifest import FILE, Manifest
from stoix_like.runtime.storage.atomic import atomic_write_text, write_output_text
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.runtime.training.stopping import Interrupted, stopping_on_signals
from stoix_like.spa.arms import EVALUATE, PLAIN, PPO, PRETRAIN, arm_of
from stoix_like.spa.folders import LOCK, Layout, Source, read_sources, write_sources
from stoix_like.spa.pipeline import Pipeline, check_agents
from stoix_like.spa.record import read_config, write_record
from stoix_like.spa.report import spa_page
from stoix_like.spa.stage_configs import config_problems
from stoix_like.spa.table import fitting_sources, refuse_changed_stages, refuse_missing_stages, run_stage_of


class PipelineOptions(NamedTuple):
    """What a call of the command does.

    Attributes:
        stage: the one to run; None for all.
        sources: stages that are taken from elsewhere.
        argv: the command line: typed again, it goes on.
    """

    stage: str | None
    sources: dict[str, Source]
    argv: tuple[str, ...]


def run(config: SPAConfig, layout: Layout, options: PipelineOptions, reporter: Reporter) -> int:
    """Runs what is due; returns the exit code. Raises StoixError as `run_stage_of`."""
    arm = arm_of(config)
    if options.stage is not None and options.stage not in arm.stages:
        stages = ", ".join(arm.stages)
        raise ConfigError(f"spa: the arm {arm.name} has no stage {options.stage}", f"its stages are {stages}")
    if problems := config_problems(config, arm):
        raise ConfigError(problems, "docs/spa.md explains each leaf")
    again = f"next: {command_line('spa', *options.argv)}"
    lock: RunLock | None = None
    try:
        with stopping_on_signals() as stop, signals.closing_lines(lambda: [again]):
            pipeline = Pipeline(config, arm, layout, reporter, stop)
            sources = _plan(pipeline, options)  # which refuses a call before anything is written
            check_agents(pipeline, [name for name in _stages(pipeline, options) if _is_new(pipeline, name, sources)])
            lock = _locked(layout)
            sources = _plan(pipeline, options)  # with what another process may have done until then
            _begin(pipeline, options, sources)
            for name in _stages(pipeline, options):
                if stop.is_set:
                    raise Interrupted(name)
                manifest = run_stage_of(pipeline, name, sources)
                reporter.info(_line(name, manifest, sources))
                _check_format(pipeline, name, manifest)
            if options.stage is None:
                write_output_text(layout.report, spa_page([write_record(layout)]))
                reporter.info(f"report {layout.report}")
                reporter.info(f"next: {_next_command(pipeline, sources)}")
    except Interrupted as stopped:
        reporter.info(f"interrupted in {stopped}; what is finished is kept\n{again}")
        return INTERRUPTED
    finally:
        if lock is not None:
            lock.close()
    return 0


def _stages(pipeline: Pipeline, options: PipelineOptions) -> tuple[str, ...]:
    """The stages that a call asks for, in their order."""
    return pipeline.arm.stages if options.stage is None else (options.stage,)


def _is_new(pipeline: Pipeline, name: str, sources: dict[str, Path]) -> bool:
    """Whether a stage was not done yet."""
    return name not in sources and not (pipeline.layout.stage(name) / FILE).is_file()


def _plan(pipeline: Pipeline, options: PipelineOptions) -> dict[str, Path]:
    """{stage: folder} of what is taken from elsewhere. Nothing is written.

    Raises:
        ConfigError: the folder is another pipeline's, or a stage was done, or begun, with other settings.
        RunError: the stage that is asked for needs one that is not done.
        CheckpointError: a stage of `--from` does not fit.
    """
    layout, first = pipeline.layout, pipeline.arm.stages[0]
    if any(parent.exists() and not parent.is_dir() for parent in (layout.root, *layout.root.parents)):
        raise RunError(f"cannot make {layout.root}: Not a directory", "use another --save-dir")
    if options.stage not in (None, first) and not layout.root.is_dir() and not options.sources:
        raise RunError(f"there is no pipeline {layout.root}", f"its first stage is {first}; run does all")
    _refuse_another_pipeline(pipeline)
    sources = _sources(pipeline, options.sources)
    refuse_changed_stages(pipeline, sources)
    if options.stage is not None:
        refuse_missing_stages(pipeline, options.stage, sources)
    return sources


def _locked(layout: Layout) -> RunLock:
    """The lock of the pipeline's folder, which is made."""
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {layout.root}: {error.strerror}", "use another --save-dir") from error
    return RunLock(layout.root, LOCK, "give another name")


def _begin(pipeline: Pipeline, options: PipelineOptions, sources: dict[str, Path]) -> None:
    """Notes sources and configuration, and says what is run."""
    layout, reporter = pipeline.layout, pipeline.reporter
    new = {name: folder for name, folder in sources.items() if name not in read_sources(layout)}
    for name, folder in new.items():
        reporter.note(f"{name} is taken from {folder}")
    if new:
        write_sources(layout, sources)
    elif options.sources and not sources:
        reporter.note("--from: none of these stages is what this pipeline asks for, so all are done here")
    text = to_yaml(pipeline.config)
    if not layout.config.is_file() or layout.config.read_text() != text:
        atomic_write_text(layout.config, text)
    reporter.info(_header(pipeline))


def _refuse_another_pipeline(pipeline: Pipeline) -> None:
    """Raises ConfigError if the name is that of another arm or seed, whose stages are another comparison's."""
    layout = pipeline.layout
    if not layout.config.is_file():
        return
    before = read_config(layout)
    pairs = {"arm": (pipeline.arm.name, arm_of(before).name), "seed": (pipeline.config.model.seed, before.model.seed)}
    for leaf, (now, then) in pairs.items():
        if now != then:
            what = f"{leaf}: {layout.root} was begun with {then}, not {now}"
            raise ConfigError(what, "give another name, and --from to take the stages that are the same")


def _check_format(pipeline: Pipeline, name: str, manifest: Manifest) -> None:
    """Warns of a base that has not learned the format."""
    well_formed = manifest.recorded.get("last_well_formed")
    if name == PRETRAIN and well_formed is not None and well_formed < LEAST_FORMAT:
        text = (
            f"{well_formed:.3f} of the base's answers are well-formed; agents learn from a model with {LEAST_FORMAT} on"
        )
        pipeline.reporter.warning(f"pretrain: {text}; raise pretrain_updates")


def _sources(pipeline: Pipeline, given: dict[str, Source]) -> dict[str, Path]:
    """{stage: folder} of what is taken from elsewhere, now or when the pipeline was begun.

    Raises ConfigError if another folder was taken for a stage before.
    """
    layout = pipeline.layout
    noted = read_sources(layout)
    for name, source in given.items():
        if name in noted and noted[name].resolve() != source.folder.resolve():
            what = f"--from: {layout.root} was begun with other stages than {source.folder}"
            raise ConfigError(what, "leave out --from, or give another name")
        if source.folder.resolve().parent == layout.root.resolve():
            raise ConfigError(f"--from: {source.folder} is of this pipeline", "leave it out, or give another name")
    return fitting_sources(pipeline, given, noted)


def _header(pipeline: Pipeline) -> str:
    parts = f"stoix_like {versions()['stoix_like']}", devices.describe_devices(jax.devices()[:1])
    return " · ".join((*parts, str(pipeline.layout.root), f"arm {pipeline.arm.name}"))


def _next_command(pipeline: Pipeline, sources: dict[str, Path]) -> str:
    """What shows how the agent plays."""
    run = str(sources.get(PPO, pipeline.layout.stage(PPO)) / RUN)
    words = ("evaluate", run) if pipeline.arm.name == PLAIN else ("play-text", "--model", run)
    return command_line(*words, "--checkpoint", "latest")  # as the stage evaluate has it


def _line(name: str, manifest: Manifest, sources: dict[str, Path]) -> str:
    """What a stage came to, in a line."""
    where = f" in {sources[name]}" if name in sources else ""
    seconds = manifest.recorded.get("seconds", 0.0)
    text = f"{name}: done{where}, {seconds:,.0f} s"
    if name == EVALUATE:
        points = manifest.facts["points"]
        scores = ", ".join(f"{point} {values['success'][0]:.3f}" for point, values in points.items())
        text += f"; success {scores}"
    return text
