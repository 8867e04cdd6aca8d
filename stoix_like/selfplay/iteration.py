"""One iteration: the six stages in turn, each unless its manifest says that it is done.

The state of a pipeline is what its folder says. The same call again goes on where the last one stopped, in a new
process too; when all stages are done, the next iteration begins. A lock is held while a stage runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.config.selfplay_checks import NETWORK_ENGINE
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.stages.stage import refuse_changed_settings
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.selfplay import evaluate, export, play, promote, records, store, train
from stoix_like.selfplay.candidates import Player, begin_lineage, read_champion, read_player
from stoix_like.selfplay.layout import LOCK, PARAMETERS, Layout
from stoix_like.selfplay.pipeline import Pipeline

BEGUN = "iteration.json"
_SETTINGS = dict.fromkeys(
    play.SETTINGS + store.SETTINGS + export.SETTINGS + train.SETTINGS + evaluate.SETTINGS + promote.SETTINGS
)


class IterationOptions(NamedTuple):
    """What a call does differently.

    Attributes:
        skip_selfplay: learn from what the store has.
        skip_evaluation: play no match; nothing is then promoted.
        data_path: a window from elsewhere, instead of the store's.
        new_iteration: leave an unfinished iteration as it is, and begin the next one.
    """

    skip_selfplay: bool = False
    skip_evaluation: bool = False
    data_path: Path | None = None
    new_iteration: bool = False


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


def next_iteration(layout: Layout, *, new: bool = False) -> int:
    """The iteration that a call works on: the last one while it is unfinished, unless a new one is asked for."""
    numbers = [number for number in layout.iterations() if number > 0]
    if not numbers:
        return 1
    is_done = read_manifest(layout.stage(numbers[-1], "promote")) is not None
    return numbers[-1] + (is_done or new)


def run_iteration(
    pipeline: Pipeline, options: IterationOptions = IterationOptions()
) -> IterationReport:
    """Runs what is left of the present iteration, or the next one.

    Raises:
        ConfigError: it was begun with another configuration.
        RunError: another process works on this game, or a disk is full.
        CheckpointError: a file is missing, damaged or was changed.
        Interrupted: a signal ended a stage.
    """
    layout, began = pipeline.layout, time.monotonic()
    layout.root.mkdir(parents=True, exist_ok=True)
    with work_lock(layout):
        begin_lineage(pipeline)
        number = next_iteration(layout, new=options.new_iteration)
        _begin(pipeline, number, options)

    def locked(work: Callable[[], tuple[Manifest, bool]], name: str) -> Manifest:
        with work_lock(layout):
            manifest, was_done = work()
        if was_done:
            pipeline.reporter.info(f"{name}: done before")
        return manifest

    played = None
    if not options.skip_selfplay and options.data_path is None:
        played = locked(lambda: play.selfplay_stage(pipeline, number, _who_plays(pipeline, number)), "selfplay")
    synced = None
    if options.data_path is None:
        synced = locked(lambda: store.sync_stage(pipeline, number, played), "sync")
        taken = synced
        exported = locked(lambda: export.export_stage(pipeline, number, taken), "export")
    else:
        path = options.data_path
        exported = locked(lambda: export.import_stage(pipeline, number, path), "export")
    trained = locked(lambda: train.train_stage(pipeline, number, exported), "train")
    evaluated = None
    if not options.skip_evaluation:
        evaluated = locked(lambda: _evaluate(pipeline, number, trained), "evaluate")
    promoted = locked(lambda: promote.promote_stage(pipeline, number, trained, evaluated), "promote")
    seconds = time.monotonic() - began
    return IterationReport(number, played, synced, exported, trained, evaluated, promoted, seconds)


def _begin(pipeline: Pipeline, number: int, options: IterationOptions) -> None:
    """Notes the settings of a new iteration, or refuses others than it was begun with."""
    path = pipeline.layout.iteration(number) / BEGUN
    settings = pipeline.leaves(tuple(_SETTINGS)) | {
        "skip_selfplay": options.skip_selfplay,
        "skip_evaluation": options.skip_evaluation,
        "data_path": None if options.data_path is None else str(options.data_path),
    }
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(path, settings)
        return
    try:
        before: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path} cannot be read", "use --new-iteration to begin the next one") from error
    refuse_changed_settings(f"iteration {number}", before, settings)


def _who_plays(pipeline: Pipeline, number: int) -> Player:
    """The champion, or the newest candidate; an engine plays by its name alone."""
    section = pipeline.config.selfplay
    if section.engine != NETWORK_ENGINE:
        return Player(section.engine, pipeline.first_params)
    if section.selfplay_model == "champion":
        return read_champion(pipeline)[1]
    return newest_candidate(pipeline, number) or read_champion(pipeline)[1]


def newest_candidate(pipeline: Pipeline, before: int) -> Player | None:
    """The candidate of the last iteration before this one that made one; None if none did."""
    for number in reversed([n for n in pipeline.layout.iterations() if 0 < n < before]):
        folder = pipeline.layout.stage(number, "train")
        if (manifest := read_manifest(folder)) is not None:
            return read_player(pipeline, folder / PARAMETERS, manifest.facts["candidate"])
    return None


def _evaluate(pipeline: Pipeline, number: int, trained: Manifest) -> tuple[Manifest, bool]:
    path = pipeline.layout.stage(number, "train") / PARAMETERS
    candidate = read_player(pipeline, path, trained.facts["candidate"])
    record, champion = read_champion(pipeline)
    if record.iteration == number:  # promoted by a process that was killed before it said so
        before = records.read_record(records.record_path(pipeline.layout, record.previous or 0))
        champion = read_player(pipeline, pipeline.layout.root / before.parameters, before.hash)
    return evaluate.evaluate_stage(pipeline, number, candidate, champion)


@contextmanager
def work_lock(layout: Layout) -> Iterator[None]:
    """The lock of a game, while a stage runs. Raises RunError if another process holds it."""
    lock = RunLock(layout.root, LOCK)
    try:
        yield
    finally:
        lock.close()
