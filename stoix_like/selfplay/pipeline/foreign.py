"""Shards of other folders: looked at once, checked, and taken in if nothing of their origin is here.

They are a stranger's: what is torn, of another game, out of range, or not confirmed by the rules is copied to
quarantine/ and named. Of two shards of one origin, ours is kept, or else the one that came first.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stoix_like.config.checks.selfplay import sync_folders
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.storage.atomic import atomic_write
from stoix_like.selfplay.files.folders import ARRAYS
from stoix_like.selfplay.files.shards import OriginKey, check_shard
from stoix_like.selfplay.files.stored import HASH_DIGITS, KnownShards, StoredShard, own_name, stored_shard
from stoix_like.selfplay.files.verify_games import rule_problem
from stoix_like.selfplay.pipeline.programs import Pipeline, Stamp


def foreign_sources(pipeline: Pipeline) -> list[Path]:
    """The shards in the folders of `sync_from`. Raises ConfigError if there is no such folder, or it is this one."""
    found = list[Path]()
    for text in sync_folders(pipeline.config.selfplay.sync_from):
        folder = Path(text)
        if not folder.is_dir():
            raise ConfigError(f"--sync-from: no folder {text}", "give the folder of a game, or of its store")
        if folder.resolve() == pipeline.layout.root.resolve():
            raise ConfigError(f"--sync-from: {text} is this pipeline itself", "leave it out")
        inner = folder / "store"
        found += sorted(_visible(inner if inner.is_dir() else folder))
    return found


def _visible(folder: Path) -> Iterator[Path]:
    """The shards in a folder, without those that a process is writing."""
    return (path for path in folder.glob(f"*{ARRAYS}") if not path.name.startswith("."))


class ForeignIntake:
    """The shards of other folders that are taken in.

    Args:
        pipeline: of the game.
        iteration: that takes them in.
        known: shards of earlier iterations.
        own: those of this iteration, which come first.
    """

    def __init__(self, pipeline: Pipeline, iteration: int, known: KnownShards, own: Sequence[StoredShard]) -> None:
        self._pipeline, self._iteration, self._known = pipeline, iteration, known
        self._own = {shard.hash for shard in own}
        self.added: dict[str, StoredShard] = {}  # by name, in the order in which they came
        self.left_out: dict[str, list[str]] = {"refused": [], "duplicates": []}
        self._origins = set[OriginKey]()
        self._seen = _seen(pipeline)

    def take(self, path: Path) -> None:
        """Takes a file in, unless it is known, refused, or has the origin of another one."""
        stamp = _stamp(path)
        if stamp in self._seen and ((name := self._seen[stamp]) is None or self._has(name)):
            return  # it is the same file
        try:
            arrays = read_arrays(path)
            if not self._has(name := array_hash(arrays)[:HASH_DIGITS]):
                _check(self._pipeline, arrays, path)
        except CheckpointError as error:
            if path.is_file():  # else another process has just removed it
                self.left_out["refused"].append(path.name)
                _quarantine(self._pipeline, path, error.what)
                self._seen[stamp] = None
            return
        self._seen[stamp] = name
        if self._has(name):
            return
        if self._is_played(
            shard := stored_shard(self._pipeline.layout, name, self._iteration, arrays, is_foreign=True)
        ):
            self._seen[stamp] = None
            self.left_out["duplicates"].append(path.name)
            self._pipeline.reporter.note(f"{path} is left out: its games have the origin of games that are here")
            return
        if not shard.path.is_file():
            write_arrays(shard.path, arrays)
        self._add(shard)

    def keep(self, taken: Sequence[StoredShard]) -> None:
        """Counts what this iteration has taken in before, and whose files may be gone from their folders."""
        for shard in taken:
            if not self._has(shard.hash) and shard.path.is_file() and not self._is_played(shard):
                self._add(shard)

    def _add(self, shard: StoredShard) -> None:
        self.added[shard.hash] = shard
        self._origins |= {shard.origin} if shard.origin is not None else set()

    def _has(self, name: str) -> bool:
        return name in self._known.names or name in self._own or name in self.added

    def _is_played(self, shard: StoredShard) -> bool:
        """Whether games of this origin are here: ours, or ones that came before."""
        if (key := shard.origin) is None:
            return False
        return key in self._known.foreign or key in self._origins or own_name(self._pipeline.layout, key) is not None


def _seen(pipeline: Pipeline) -> dict[Stamp, str | None]:
    """What this process has looked at of these files from elsewhere; it forgets the others, which are gone."""
    stamps, seen = {_stamp(path) for path in foreign_sources(pipeline)}, pipeline.memory.seen
    for stamp in seen.keys() - stamps:
        del seen[stamp]
    return seen


def _stamp(path: Path) -> Stamp:
    """What changes when a file does; a file that is gone has no size."""
    try:
        found = path.stat()
    except OSError:
        return str(path), -1, 0
    return str(path), found.st_size, found.st_mtime_ns


def has_unseen(pipeline: Pipeline) -> bool:
    """Whether the folders of `sync_from` have files that this process has not looked at."""
    return any(_stamp(path) not in pipeline.memory.seen for path in foreign_sources(pipeline))


def _check(pipeline: Pipeline, arrays: dict[str, np.ndarray], path: Path) -> None:
    check_shard(pipeline.game, arrays, str(path))
    if problem := rule_problem(pipeline.play_moves, pipeline.game, arrays):
        raise CheckpointError(f"{path} does not follow the rules of {pipeline.game.name}: {problem}", "leave it out")


def _quarantine(pipeline: Pipeline, path: Path, reason: str) -> None:
    folder = pipeline.layout.quarantine
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / path.name) as temporary:
        shutil.copyfile(path, temporary)
    pipeline.reporter.warning(f"{reason}; it is copied to {folder} and left out")
