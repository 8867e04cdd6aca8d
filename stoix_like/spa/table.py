"""The table of stages, and what runs them: each stage that is due, in their order, or one alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stoix_like.algorithms.text.world_rows import kept_tokens
from stoix_like.config.sections.spa import SPAConfig
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.stages.run import StageCall, refuse_changed_settings
from stoix_like.runtime.stages.table import Stage, StageFiles, is_done
from stoix_like.spa.arms import EVALUATE, GENERATE, PLAIN, PPO, PRETRAIN, SFT, Arm
from stoix_like.spa.evaluating import evaluate_stage
from stoix_like.spa.folders import Source
from stoix_like.spa.generating import check_rows, generate_stage
from stoix_like.spa.pipeline import Pipeline
from stoix_like.spa.stage_configs import settings_of
from stoix_like.spa.training import BEGUN_HINT, read_begun, train_stage


def _pretrain(pipeline: Pipeline, files: StageFiles, call: StageCall) -> Manifest:
    return train_stage(pipeline, files, call, eval_interval=pipeline.config.pretrain.pretrain_updates)


def _fine_tune(pipeline: Pipeline, files: StageFiles, call: StageCall) -> Manifest:
    """A gradient step is an update. An evaluation reads the rows of validation, once an epoch."""
    section = pipeline.arm.config.sft
    training, _ = check_rows(files)
    kept = kept_tokens(training.turns, section.sft_max_length, section.sft_truncation)
    num_rows = int(kept.any(axis=(1, 2)).sum())
    per_epoch = num_rows // section.sft_batch_size
    if per_epoch == 0:
        what = f"sft_batch_size: {section.sft_batch_size} rows a step, and there are {num_rows} to learn from"
        raise RunError(what, "lower sft_batch_size, raise sft_max_length, or generate more rows")
    return train_stage(
        pipeline,
        files,
        call,
        num_updates=section.sft_epochs * per_epoch,
        num_minibatches=1,
        eval_interval=per_epoch,
        save_interval=per_epoch,
        before=PRETRAIN,
        data_path=str(files.folder(GENERATE)),
    )


def _ppo(pipeline: Pipeline, files: StageFiles, call: StageCall) -> Manifest:
    if pipeline.arm.name == PLAIN:
        return train_stage(pipeline, files, call)
    before = SFT if SFT in pipeline.arm.stages else PRETRAIN
    return train_stage(pipeline, files, call, before=before)


_HINT = "leave it out, or use its values"
_WORK = {PRETRAIN: _pretrain, GENERATE: generate_stage, SFT: _fine_tune, PPO: _ppo, EVALUATE: evaluate_stage}
#: {stage: those whose outputs it reads, if the arm has them}
_READS = {
    PRETRAIN: (),
    GENERATE: (PRETRAIN,),
    SFT: (PRETRAIN, GENERATE),
    PPO: (PRETRAIN, SFT),
    EVALUATE: (PRETRAIN, GENERATE, SFT, PPO),
}


def stages_of_arm(config: SPAConfig, arm: Arm) -> tuple[Stage, ...]:
    """The stages of an arm, in their order."""
    return tuple(_stage(config, arm, name) for name in arm.stages)


def _stage(config: SPAConfig, arm: Arm, name: str) -> Stage:
    read = [other for other in _READS[name] if other in arm.stages]

    def inputs(files: StageFiles) -> Mapping[str, str]:
        return {other: files.digest(other) for other in read}

    return Stage(name, tuple(settings_of(config, arm, name)), inputs, _WORK[name])


def run_stage_of(pipeline: Pipeline, name: str, sources: Mapping[str, Path]) -> Manifest:
    """The manifest of a stage, which is run unless it is done.

    Raises:
        RunError: a stage before it is not done.
        ConfigError: it was done with other settings.
        CheckpointError: it is taken from elsewhere, and is not what is asked for.
        Interrupted: a signal came.
    """
    stages = stages_of_arm(pipeline.config, pipeline.arm)
    files = StageFiles(pipeline.layout.root, stages, sources)
    stage = files.stages[name]
    _refuse_missing(files, name)
    call = stage.call(files, pipeline.settings(name))
    if name not in sources:
        manifest: Manifest = stage.work(pipeline, files, call)
        return manifest
    found = files.done(name)
    refuse_changed_settings(f"{sources[name]}", found.settings, call.settings, _HINT)
    if not _is_result(stage, files):
        raise _of_other_stages(sources[name], pipeline, found)
    return found


def refuse_changed_stages(pipeline: Pipeline, sources: Mapping[str, Path]) -> None:
    """Raises ConfigError if any stage was done, or begun, with other settings than are asked for. Writes nothing."""
    for name in pipeline.arm.stages:
        elsewhere = sources.get(name)
        folder = pipeline.layout.stage(name) if elsewhere is None else elsewhere
        if (found := read_manifest(folder)) is not None:
            what, hint = (name, BEGUN_HINT) if elsewhere is None else (str(elsewhere), _HINT)
            refuse_changed_settings(what, found.settings, pipeline.settings(name), hint)
        elif elsewhere is None and (begun := read_begun(folder)):
            refuse_changed_settings(name, begun["settings"], pipeline.settings(name), BEGUN_HINT)


def refuse_missing_stages(pipeline: Pipeline, name: str, sources: Mapping[str, Path]) -> None:
    """Raises RunError if a stage that the stage `name` reads is not done, or is due again. Writes nothing."""
    _refuse_missing(StageFiles(pipeline.layout.root, stages_of_arm(pipeline.config, pipeline.arm), sources), name)


def _refuse_missing(files: StageFiles, name: str) -> None:
    for other in _READS[name]:
        if other not in files.stages:
            continue
        files.done(other)
        if not is_done(files.stages[other], files):
            what = f"the stage {other} of {files.folder(other).parent} is due again: what it was made from has changed"
            raise RunError(what, "run the stages in their order")


def _is_result(stage: Stage, files: StageFiles) -> bool:
    """Whether a stage is done, and was made from what it would be made from here and from nothing else."""
    manifest = files.find(stage.name)
    return manifest is not None and manifest.inputs == dict(stage.inputs(files)) and is_done(stage, files)


def _of_other_stages(source: Path, pipeline: Pipeline, manifest: Manifest) -> CheckpointError:
    """Why a stage that is taken from elsewhere is no result here."""
    missing = next((name for name in manifest.outputs if not (source / name).is_file()), None)
    if missing is not None:
        return CheckpointError(f"{source} lacks its {missing}", "put it back, or do that stage again")
    what = f"{source} was made from other stages than those of {pipeline.layout.root}"
    return CheckpointError(what, "give these stages as well, with --from, or use another name without it")


def fitting_sources(pipeline: Pipeline, found: Mapping[str, Source], noted: Mapping[str, Path]) -> dict[str, Path]:
    """{stage: folder} of the sources that the arm takes: of pipelines the first stages that are what it asks for.

    Those that are `noted` already stay. Raises ConfigError or CheckpointError for a stage that is named by its own path
    and is not what the arm asks for, or is there already.
    """
    taken = dict(noted)
    stages = stages_of_arm(pipeline.config, pipeline.arm)
    for stage in stages:
        own = pipeline.layout.stage(stage.name)
        if (source := found.get(stage.name)) is None or stage.name in noted or (own.is_dir() and not source.is_named):
            continue
        if own.is_dir():
            what = f"--from: {pipeline.layout.root} has a stage {stage.name} of its own"
            raise ConfigError(what, "leave it out, or give another name")
        files = StageFiles(pipeline.layout.root, stages, {**taken, stage.name: source.folder})
        manifest, asked = files.done(stage.name), pipeline.settings(stage.name)
        if source.is_named:
            refuse_changed_settings(str(source.folder), manifest.settings, asked, _HINT)
        if manifest.settings != asked:
            continue
        if _is_result(stage, files):
            taken[stage.name] = source.folder
        elif source.is_named or manifest.inputs == dict(stage.inputs(files)):  # all but its files would fit
            raise _of_other_stages(source.folder, pipeline, manifest)
    return taken
