"""The stage `sync`: shards of this iteration and of other folders into the store, each once, by hash.

A file that is torn, of another game, or claims what the rules do not confirm is copied to quarantine/ and named;
everything else is taken in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stoix_like.config.selfplay_checks import sync_folders
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.run import StageCall, StageResult, run_stage
from stoix_like.runtime.storage.atomic import atomic_write
from stoix_like.runtime.storage.digests import json_digest
from stoix_like.selfplay.folders import ARRAYS
from stoix_like.selfplay.pipeline import Pipeline
from stoix_like.selfplay.rules import rule_problem
from stoix_like.selfplay.shards import check_shard, origin_of

SETTINGS = ("task_id", "sync_from")
HASH_DIGITS = 32  # of a shard's hash, in its name


class StoredShard(NamedTuple):
    """A shard of the store."""

    path: Path
    iteration: int
    shard: int
    num_games: int
    num_positions: int

    @property
    def hash(self) -> str:
        """The first digits of its hash."""
        return self.path.stem


def sync_stage(pipeline: Pipeline, iteration: int, played: Manifest | None) -> tuple[Manifest, bool]:
    """(the manifest, whether it was done before). Facts: shards, games and positions in the store."""
    sources = list(_sources(pipeline, iteration, played))
    inputs = {"selfplay": "" if played is None else played.digest, "others": _listing_hash(sources)}
    call = StageCall("sync", inputs, pipeline.leaves(SETTINGS))
    folder = pipeline.layout.stage(iteration, "sync")
    return run_stage(folder, call, lambda: _take_in(pipeline, sources))


class _Source(NamedTuple):
    path: Path
    hash: str | None  # that the manifest of this pipeline names; None of a file from elsewhere


def _sources(pipeline: Pipeline, iteration: int, played: Manifest | None) -> Iterator[_Source]:
    if played is not None:
        folder = pipeline.layout.stage(iteration, "selfplay")
        for name, found in played.outputs.items():
            yield _Source(folder / name, found)
    yield from foreign_sources(pipeline)


def foreign_sources(pipeline: Pipeline) -> list[_Source]:
    """The shards in the folders of `sync_from`. Raises ConfigError if there is no such folder, or it is this one."""
    found = []
    for text in sync_folders(pipeline.config.selfplay.sync_from):
        folder = Path(text)
        if not folder.is_dir():
            raise ConfigError(f"--sync-from: no folder {text}", "give the folder of a game, or of its store")
        if folder.resolve() == pipeline.layout.root.resolve():
            raise ConfigError(f"--sync-from: {text} is this pipeline itself", "leave it out")
        inner = folder / "store"
        paths = sorted((inner if inner.is_dir() else folder).glob(f"*{ARRAYS}"))
        found += [_Source(path, None) for path in paths]
    return found


def _listing_hash(sources: list[_Source]) -> str:
    """Of the names, sizes and times of foreign files: a file that came since makes the stage run again."""
    return json_digest(
        [
            [str(source.path), stat.st_size, stat.st_mtime_ns]
            for source in sources
            if source.hash is None
            for stat in [source.path.stat()]
        ]
    )


def _take_in(pipeline: Pipeline, sources: list[_Source]) -> StageResult:
    layout = pipeline.layout
    layout.store.mkdir(parents=True, exist_ok=True)
    new, refused = 0, []
    for source in sources:
        if source.hash is not None:  # of this pipeline; whoever reads it from the store compares the hash
            new += _link(source.path, layout.store / f"{source.hash[:HASH_DIGITS]}{ARRAYS}")
            continue
        try:
            arrays = read_arrays(source.path)
            _check(pipeline, arrays, source.path)
        except CheckpointError as error:
            refused.append(source.path.name)
            _quarantine(pipeline, source.path, error.what)
            continue
        path = layout.store / f"{array_hash(arrays)[:HASH_DIGITS]}{ARRAYS}"
        if not path.is_file():
            write_arrays(path, arrays)
            new += 1
    shards = list_store(pipeline)
    facts = {
        "shards": len(shards),
        "games": sum(shard.num_games for shard in shards),
        "positions": sum(shard.num_positions for shard in shards),
    }
    outputs = {"store": json_digest([shard.hash for shard in shards])}
    return StageResult(outputs, facts, {"new_shards": new, "refused": refused})


def _link(source: Path, path: Path) -> bool:
    """Whether the file was not there. It becomes a second name of the source, or a copy where that is not possible."""
    if path.is_file():
        return False
    try:
        os.link(source, path)
    except OSError:  # another file system, or one without links
        with atomic_write(path) as temporary:
            shutil.copyfile(source, temporary)
    return True


def _check(pipeline: Pipeline, arrays: dict[str, np.ndarray], path: Path) -> None:
    check_shard(pipeline.game, arrays, str(path))
    if problem := rule_problem(pipeline.replay(arrays["moves"]), arrays):
        raise CheckpointError(f"{path} does not follow the rules of {pipeline.game.name}: {problem}", "leave it")


def _quarantine(pipeline: Pipeline, path: Path, reason: str) -> None:
    folder = pipeline.layout.quarantine
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, folder / path.name)
    pipeline.reporter.warning(f"{reason}; it is copied to {folder} and left out")


def list_store(pipeline: Pipeline) -> list[StoredShard]:
    """The shards of the store, the oldest first. Raises CheckpointError if one cannot be read."""
    found = [_stored(path) for path in pipeline.layout.store.glob(f"*{ARRAYS}") if not path.name.startswith(".")]
    return sorted(found, key=lambda shard: (shard.iteration, shard.shard, shard.hash))


def _stored(path: Path) -> StoredShard:
    """Reads the few small arrays that say what a shard is; `np.load` leaves the others on disk."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            texts = {name: stored[name] for name in stored.files if name.startswith("text_")}
            origin = origin_of(texts)
            number, random = stored["num_plies"].astype(int), stored["num_random"].astype(int)
    except Exception as error:
        raise CheckpointError(f"{path} cannot be read: it is torn", "remove it: it is taken in again") from error
    return StoredShard(path, origin.iteration, origin.shard, len(number), int((number - random).sum()))
