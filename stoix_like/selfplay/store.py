"""The stage `sync`: shards of this iteration and of other folders into the store, each once, by hash.

A file that is torn, of another game, or claims what the rules do not confirm is copied to quarantine/ and named;
everything else is taken in.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stoix_like.config.selfplay_checks import sync_folders
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.stages.array_files import READ_ERRORS, read_arrays, write_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.stages.run import StageCall, StageResult, run_stage
from stoix_like.runtime.storage.atomic import atomic_write
from stoix_like.runtime.storage.digests import json_digest
from stoix_like.selfplay import due
from stoix_like.selfplay.folders import ARRAYS, Layout
from stoix_like.selfplay.pipeline import Pipeline, Stamp
from stoix_like.selfplay.rules import rule_problem
from stoix_like.selfplay.shards import check_shard

SETTINGS = ("task_id",)
HASH_DIGITS = 32  # of a shard's hash, in its name
FOREIGN = "foreign"  # in a manifest: the shards that came from other folders


class StoredShard(NamedTuple):
    """A shard of the store."""

    path: Path
    iteration: int  # of this pipeline, that took it in
    num_games: int
    num_positions: int

    @property
    def hash(self) -> str:
        """The first digits of its hash."""
        return self.path.stem


class StoreTotals(NamedTuple):
    """What the store has taken in, removed shards included."""

    shards: int = 0
    games: int = 0
    positions: int = 0
    store: str = ""  # a hash of the names of all shards in their order


class _Source(NamedTuple):
    path: Path
    hash: str | None  # that the manifest of this pipeline names; None of a file from elsewhere


def sync_stage(pipeline: Pipeline, iteration: int, *, again: bool = False) -> tuple[Manifest, bool]:
    """(the manifest, whether it was done before) of taking in what the store does not have yet.

    Done once for the games of this iteration, it stays done: files that come to other folders later are for the next
    one, unless it is done `again`. What was taken in from other folders stays, whether it is still there or not.
    Facts: the shards that were taken in, in order, as [name, games, positions], and the totals of the store.
    """
    folder = pipeline.layout.stage(iteration, "sync")
    found = read_manifest(folder)
    number = (0 if found is None else int(found.inputs.get("round", 0))) + again
    played = due.digest_of(read_manifest(pipeline.layout.stage(iteration, "selfplay")))
    call = StageCall("sync", {"selfplay": played, "round": str(number)}, pipeline.leaves(SETTINGS))
    taken = [] if found is None else list(found.recorded.get(FOREIGN, ()))
    return run_stage(folder, call, lambda: _take_in(pipeline, iteration, taken), adds=True)


def totals_before(layout: Layout, iteration: int) -> StoreTotals:
    """What the store had taken in before an iteration."""
    for number in layout.newest_first(iteration - 1):
        if (synced := read_manifest(layout.stage(number, "sync"))) is not None:
            return StoreTotals(**{name: synced.facts[name] for name in StoreTotals._fields})
    return StoreTotals()


def _unsynced(layout: Layout, iteration: int) -> list[int]:
    """The iterations that may have games which the store lacks: from the last one that was synced to this one."""
    found = list[int]()
    for number in layout.newest_first(iteration):
        found.append(number)
        if number < iteration and read_manifest(layout.stage(number, "sync")) is not None:
            break
    return found[::-1]


def _own_sources(layout: Layout, iteration: int) -> Iterator[_Source]:
    """The shards of this iteration, and of those before that were left before or after their stage `sync`."""
    for number in _unsynced(layout, iteration):
        folder = layout.stage(number, "selfplay")
        if (played := read_manifest(folder)) is not None:
            yield from (_Source(folder / name, found) for name, found in played.outputs.items())


def sources(pipeline: Pipeline, iteration: int) -> list[_Source]:
    """All shards that the store of an iteration can have. Raises as `_foreign_sources`."""
    return [*_own_sources(pipeline.layout, iteration), *_foreign_sources(pipeline)]


def _foreign_sources(pipeline: Pipeline) -> list[_Source]:
    """The shards in the folders of `sync_from`. Raises ConfigError if there is no such folder, or it is this one."""
    found = []
    for text in sync_folders(pipeline.config.selfplay.sync_from):
        folder = Path(text)
        if not folder.is_dir():
            raise ConfigError(f"--sync-from: no folder {text}", "give the folder of a game, or of its store")
        if folder.resolve() == pipeline.layout.root.resolve():
            raise ConfigError(f"--sync-from: {text} is this pipeline itself", "leave it out")
        inner = folder / "store"
        found += [_Source(path, None) for path in sorted(_visible(inner if inner.is_dir() else folder))]
    return found


def _visible(folder: Path) -> Iterator[Path]:
    """The shards in a folder, without those that a process is writing."""
    return (path for path in folder.glob(f"*{ARRAYS}") if not path.name.startswith("."))


def _take_in(pipeline: Pipeline, iteration: int, taken: Sequence[str]) -> StageResult:
    """Takes in what the sources have, and counts what was `taken` from other folders before in this iteration."""
    pipeline.layout.store.mkdir(parents=True, exist_ok=True)
    before, found = totals_before(pipeline.layout, iteration), sources(pipeline, iteration)
    known, seen = _known(pipeline, iteration, found), _seen(pipeline, found)
    added, refused = list[str](), list[str]()
    foreign = [name for name in taken if name not in known and pipeline.layout.shard(name).is_file()]
    for source in found:
        if source.hash is not None and source.hash[:HASH_DIGITS] in known:
            continue
        stamp = _stamp(source)
        if stamp in seen and seen[stamp] in (None, *known):
            continue  # it is known, or was refused, and is the same file
        try:
            name = _take(pipeline, source, known)
        except CheckpointError as error:
            if source.hash is not None:
                raise
            if source.path.is_file():  # else another process has just removed it
                refused.append(source.path.name)
                _quarantine(pipeline, source.path, error.what)
                seen[stamp] = None
            continue
        if source.hash is None:
            seen[stamp] = name
        if name not in known:
            known.add(name)
            added.append(name)
            if source.hash is None and name not in foreign:
                foreign.append(name)
    added += [name for name in foreign if name not in known]  # whose files are gone from their folder
    new = [_counted(pipeline.layout, name, iteration) for name in added]
    totals = StoreTotals(
        before.shards + len(new),
        before.games + sum(shard.num_games for shard in new),
        before.positions + sum(shard.num_positions for shard in new),
        json_digest([before.store, *added]),
    )
    facts = {"added": [[shard.hash, shard.num_games, shard.num_positions] for shard in new], **totals._asdict()}
    return StageResult({}, facts, {"new_shards": len(new), "refused": refused, FOREIGN: foreign})


def _known(pipeline: Pipeline, iteration: int, found: list[_Source]) -> set[str]:
    """The names of the shards that earlier iterations have taken in; only of late ones, if all sources are ours.

    The manifest of an iteration is read once in a process, and remembered as long as it is needed: with sources from
    elsewhere, that is always.
    """
    layout, memory, names = pipeline.layout, pipeline.sync_memory.taken_in, dict[Path, list[str]]()
    first = 0 if any(source.hash is None for source in found) else _unsynced(layout, iteration)[0]
    for number in itertools.takewhile(lambda one: one >= first, layout.newest_first(iteration - 1)):
        folder = layout.stage(number, "sync")
        if (remembered := memory.get(folder)) is None:
            synced = read_manifest(folder)
            shards = [] if synced is None else added_shards(layout, number, synced)
            remembered = [shard.hash for shard in shards]
        names[folder] = remembered
    memory.clear()
    memory.update(names)
    return {name for each in names.values() for name in each}


def _seen(pipeline: Pipeline, found: list[_Source]) -> dict[Stamp, str | None]:
    """What this process has looked at of these files from elsewhere; it forgets the others, which are gone."""
    stamps, seen = {_stamp(source) for source in found if source.hash is None}, pipeline.sync_memory.seen
    for stamp in seen.keys() - stamps:
        del seen[stamp]
    return seen


def _stamp(source: _Source) -> Stamp:
    """What changes when a file does; a file that is gone has no size."""
    try:
        found = source.path.stat()
    except OSError:
        return str(source.path), -1, 0
    return str(source.path), found.st_size, found.st_mtime_ns


def has_unseen(pipeline: Pipeline) -> bool:
    """Whether the folders of `sync_from` have files that this process has not looked at."""
    return any(_stamp(source) not in pipeline.sync_memory.seen for source in _foreign_sources(pipeline))


def _take(pipeline: Pipeline, source: _Source, known: Collection[str]) -> str:
    """The name of a shard, which stands in the store if it is new. Raises CheckpointError if it is none."""
    arrays = read_arrays(source.path, source.hash)
    name = array_hash(arrays)[:HASH_DIGITS]
    if name in known:
        return name  # and may have been removed from the store since
    if source.hash is None:
        _check(pipeline, arrays, source.path)
    path = pipeline.layout.shard(name)
    if not path.is_file():
        if source.hash is None:
            write_arrays(path, arrays)
        else:
            _link(source.path, path)
    return name


def _link(source: Path, path: Path) -> None:
    """Gives the file a second name, or copies it where that is not possible."""
    try:
        os.link(source, path)
    except OSError:  # another file system, or one without links
        with atomic_write(path) as temporary:
            shutil.copyfile(source, temporary)


def restore(layout: Layout, path: Path) -> None:
    """Links a shard that is missing from the store again, if this pipeline has played it."""
    for number in layout.newest_first():
        folder = layout.stage(number, "selfplay")
        played = read_manifest(folder)
        for name, found in {} if played is None else played.outputs.items():
            if found[:HASH_DIGITS] == path.stem and (folder / name).is_file():
                _link(folder / name, path)
                return


def _check(pipeline: Pipeline, arrays: dict[str, np.ndarray], path: Path) -> None:
    check_shard(pipeline.game, arrays, str(path))
    if problem := rule_problem(pipeline.replay(arrays["moves"]), arrays):
        raise CheckpointError(f"{path} does not follow the rules of {pipeline.game.name}: {problem}", "leave it out")


def _quarantine(pipeline: Pipeline, path: Path, reason: str) -> None:
    folder = pipeline.layout.quarantine
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / path.name) as temporary:
        shutil.copyfile(path, temporary)
    pipeline.reporter.warning(f"{reason}; it is copied to {folder} and left out")


def stored_shards(layout: Layout, iteration: int) -> Iterator[StoredShard]:
    """The shards that were taken in up to an iteration, the newest first: what its manifests of `sync` name."""
    for number in layout.newest_first(iteration):
        if (synced := read_manifest(layout.stage(number, "sync"))) is not None:
            yield from reversed(added_shards(layout, number, synced))


def added_shards(layout: Layout, number: int, synced: Manifest) -> list[StoredShard]:
    """The shards that an iteration has taken in, in that order. Manifests of older versions have their names alone."""
    found = []
    for one in synced.facts["added"]:
        if isinstance(one, str):
            found.append(_counted(layout, one, number))
        else:
            name, games, positions = one
            found.append(StoredShard(layout.shard(name), number, games, positions))
    return found


def _counted(layout: Layout, name: str, iteration: int) -> StoredShard:
    """Reads the two small arrays that count games and positions; NumPy leaves the others on disk."""
    path = layout.shard(name)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            number, random = stored["num_plies"].astype(int), stored["num_random"].astype(int)
    except READ_ERRORS as error:
        raise CheckpointError(f"{path} cannot be read: it is missing or torn", "put it back as it was") from error
    return StoredShard(path, iteration, len(number), int((number - random).sum()))
