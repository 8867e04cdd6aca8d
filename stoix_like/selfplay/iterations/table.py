"""The stages of an iteration of self-play: their order, the leaves and hashes that each reads, and its work.

Imports no JAX: the work is imported when it is run, so that `--status` and `--dry-run` answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.table import Stage
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files import stage_leaves as leaves
from stoix_like.selfplay.files.folders import WINDOW_FILE, Layout
from stoix_like.selfplay.files.iteration import IterationFiles
from stoix_like.selfplay.files.iteration_start import WINDOW, IterationStart

if TYPE_CHECKING:
    from stoix_like.selfplay.pipeline.programs import Pipeline


class StageOptions(NamedTuple):
    """What a stage is run with, beside what is on disk.

    Attributes:
        batches: of self-play that the iteration has afterwards.
        data_path: a window from elsewhere, instead of the store's.
    """

    batches: int = 1
    data_path: Path | None = None


def _store_or_window(files: IterationFiles) -> dict[str, str]:
    window = files.start.settings[WINDOW]
    return {"store": files.done("sync").facts["store"]} if window is None else {"data_path": window}


def _players(files: IterationFiles) -> dict[str, str]:
    champion = records.opponent_record(files.layout, files.number)
    return {"candidate": files.done("train").facts["candidate"], "champion": champion.hash}


def _play(pipeline: Pipeline, files: IterationFiles, options: StageOptions) -> Manifest:
    from stoix_like.selfplay.stages import selfplay

    return selfplay.selfplay_stage(pipeline, files, options.batches)


def _sync(pipeline: Pipeline, files: IterationFiles, _: StageOptions) -> Manifest:
    from stoix_like.selfplay.stages import sync

    return sync.sync_stage(pipeline, files)


def _export(pipeline: Pipeline, files: IterationFiles, options: StageOptions) -> Manifest:
    from stoix_like.selfplay.stages import export

    if options.data_path is not None:
        return export.import_stage(pipeline, files, options.data_path)
    return export.export_stage(pipeline, files)


def _train(pipeline: Pipeline, files: IterationFiles, _: StageOptions) -> Manifest:
    from stoix_like.selfplay.stages import train

    return train.train_stage(pipeline, files)


def _evaluate(pipeline: Pipeline, files: IterationFiles, _: StageOptions) -> Manifest:
    from stoix_like.selfplay.stages import evaluate

    return evaluate.evaluate_stage(pipeline, files)


def _promote(pipeline: Pipeline, files: IterationFiles, _: StageOptions) -> Manifest:
    from stoix_like.selfplay.stages import promote

    return promote.promote_stage(pipeline, files)


STAGES: tuple[Stage, ...] = (
    Stage("selfplay", leaves.SELFPLAY, lambda files: {"player": files.start.player.hash}, _play),
    Stage("sync", ("task_id",), lambda files: {"selfplay": files.digest("selfplay")}, _sync),
    Stage("export", leaves.EXPORT, _store_or_window, _export),
    Stage("train", leaves.TRAIN, lambda files: {"window": files.done("export").outputs[WINDOW_FILE]}, _train),
    Stage("evaluate", leaves.EVALUATE, _players, _evaluate),
    Stage(
        "promote",
        (*leaves.RULE, "auto_promote"),
        lambda files: {"train": files.done("train").digest, "evaluate": files.digest("evaluate")},
        _promote,
    ),
)
BY_NAME = {stage.name: stage for stage in STAGES}
#: All leaves that stages read.
SETTINGS = tuple(dict.fromkeys(leaf for stage in STAGES for leaf in stage.settings))


def files_of(layout: Layout, number: int) -> IterationFiles:
    """The manifests of an iteration, as they are now."""
    return IterationFiles(layout, number, STAGES)


def stages_of(start: IterationStart) -> list[Stage]:
    """The stages of an iteration, without those that it skips."""
    return [BY_NAME[name] for name in start.stages]
