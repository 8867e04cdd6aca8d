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
from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.stages.run import refuse_changed_settings
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.selfplay import evaluate, export, play, promote, records, store, train
from stoix_like.selfplay.candidates import NetworkVersion, begin_lineage, read_champion, read_version
from stoix_like.selfplay.folders import LOCK, PARAMETERS, Layout
from stoix_like.selfplay.pipeline import Pipeline
from stoix_like.selfplay.progress import Interrupted

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


NORMAL = IterationOptions()


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


def run_iteration(pipeline: Pipeline, options: IterationOptions = NORMAL) -> IterationReport:
    """Runs what is left of the present iteration, or the next one.

    Raises:
        ConfigError: it was begun with another configuration.
        RunError: another process works on this game, or the store has too little to learn from.
        CheckpointError: a file is missing, damaged or was changed.
        Interrupted: a signal ended a stage.
    """
    layout, began = pipeline.layout, time.monotonic()
    layout.root.mkdir(parents=True, exist_ok=True)
    with work_lock(layout):
        begin_lineage(pipeline)
        _check(pipeline, options)
        number = next_iteration(layout, new=options.new_iteration)
        player = _begin(pipeline, number, options)
    played, synced, exported = _gather(pipeline, number, player, options)
    trained = _locked(pipeline, "train", lambda: train.train_stage(pipeline, number, exported))
    evaluated = None
    if not options.skip_evaluation:
        evaluated = _locked(pipeline, "evaluate", lambda: _evaluate(pipeline, number, trained))
    promoted = _locked(pipeline, "promote", lambda: promote.promote_stage(pipeline, number, trained, evaluated))
    seconds = time.monotonic() - began
    return IterationReport(number, played, synced, exported, trained, evaluated, promoted, seconds)


def _gather(
    pipeline: Pipeline, number: int, player: _WhoPlays, options: IterationOptions
) -> tuple[Manifest | None, Manifest | None, Manifest]:
    """The manifests of the stages that make the window: selfplay and sync, None where they are skipped, and export."""
    if (path := options.data_path) is not None:
        return None, None, _locked(pipeline, "export", lambda: export.import_stage(pipeline, number, path))
    played = None
    if not options.skip_selfplay:
        played = _locked(
            pipeline, "selfplay", lambda: play.selfplay_stage(pipeline, number, _version_of(pipeline, player))
        )
    synced = _locked(pipeline, "sync", lambda: store.sync_stage(pipeline, number))
    return played, synced, _locked(pipeline, "export", lambda: export.export_stage(pipeline, number, synced))


def _locked(pipeline: Pipeline, name: str, work: Callable[[], tuple[Manifest, bool]]) -> Manifest:
    """The manifest of a stage, which runs under the lock of the game."""
    if pipeline.stop.is_set:
        raise Interrupted
    with work_lock(pipeline.layout):
        manifest, was_done = work()
    if was_done:
        pipeline.reporter.info(f"{name}: done before")
    return manifest


def _check(pipeline: Pipeline, options: IterationOptions) -> None:
    """Refuses what an iteration could not be finished with, before it is begun."""
    train.check_fixed_leaves(pipeline)
    read_champion(pipeline)
    store.foreign_sources(pipeline)
    if not options.skip_evaluation:
        pipeline.check_book()
    if options.data_path is not None:
        export.read_window(pipeline, options.data_path)


class _WhoPlays(NamedTuple):
    """Who plays in an iteration, noted when it begins: the champion may change before it is over."""

    hash: str
    parameters: str | None  # the file, below the folder of the game; None of an engine


def _begin(pipeline: Pipeline, number: int, options: IterationOptions) -> _WhoPlays:
    """Who plays. Notes that and the settings of a new iteration, or refuses others than it was begun with."""
    path = pipeline.layout.iteration(number) / BEGUN
    settings = pipeline.leaves(tuple(_SETTINGS)) | {
        "skip_selfplay": options.skip_selfplay,
        "skip_evaluation": options.skip_evaluation,
        "data_path": None if options.data_path is None else array_hash(read_arrays(options.data_path)),
    }
    if not path.is_file():
        player = _who_plays(pipeline, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(path, {"player": player._asdict(), "settings": settings})
        return player
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        player, before = _WhoPlays(**found["player"]), dict(found["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read", "use --new-iteration to begin the next one") from error
    refuse_changed_settings(f"iteration {number}", before, settings)
    return player


def _who_plays(pipeline: Pipeline, number: int) -> _WhoPlays:
    """The champion, or the newest candidate; an engine plays by its name alone."""
    section, layout = pipeline.config.selfplay, pipeline.layout
    if section.engine != NETWORK_ENGINE:
        return _WhoPlays(section.engine, None)
    if section.selfplay_model == "latest":
        for before in reversed([n for n in layout.iterations() if 0 < n < number]):
            folder = layout.stage(before, "train")
            if (manifest := read_manifest(folder)) is not None:
                place = (folder / PARAMETERS).relative_to(layout.root).as_posix()
                return _WhoPlays(manifest.facts["candidate"], place)
    champion = records.read_record(layout.champion)
    return _WhoPlays(champion.hash, champion.parameters)


def _version_of(pipeline: Pipeline, player: _WhoPlays) -> NetworkVersion:
    if player.parameters is None:
        return NetworkVersion(player.hash, pipeline.first_params)  # which the engine does not read
    return read_version(pipeline, pipeline.layout.root / player.parameters, player.hash)


def _evaluate(pipeline: Pipeline, number: int, trained: Manifest) -> tuple[Manifest, bool]:
    path = pipeline.layout.stage(number, "train") / PARAMETERS
    candidate = read_version(pipeline, path, trained.facts["candidate"])
    record, champion = read_champion(pipeline)
    if record.iteration == number:  # promoted by a process that was killed before it said so
        before = records.read_record(records.record_path(pipeline.layout, record.previous or 0))
        champion = read_version(pipeline, pipeline.layout.root / before.parameters, before.hash)
    return evaluate.evaluate_stage(pipeline, number, candidate, champion)


@contextmanager
def work_lock(layout: Layout) -> Iterator[None]:
    """The lock of a game, while a stage runs. Raises RunError if another process holds it."""
    lock = RunLock(layout.root, LOCK, "use another --save-dir")
    try:
        yield
    finally:
        lock.close()
