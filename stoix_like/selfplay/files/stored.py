"""What the store has, by the manifests of `sync`, and which of its games are the newest.

The stage `export` and retention ask the same function for the newest games, so nothing is removed that a window needs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.array_files import READ_ERRORS
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.storage.atomic import atomic_write
from stoix_like.selfplay.files.folders import Layout, shard_file
from stoix_like.selfplay.files.manifests import manifest_of
from stoix_like.selfplay.files.shards import OriginKey, origin_of

HASH_DIGITS = 32  # of a shard's hash, in its name
FOREIGN = "foreign"  # in what a manifest of `sync` records: the shards that came from other folders
REMOVED, MARK = "removed.json", "retention.json"  # what an iteration has lost; below which iteration all is removed
_MOST_REMEMBERED = 4096  # shards whose games a process keeps in mind


class StoredShard(NamedTuple):
    """A shard of the store."""

    path: Path
    iteration: int  # of this pipeline, that took it in
    num_games: int
    num_positions: int
    origin: OriginKey | None = None  # None: an older manifest does not say
    is_foreign: bool = False  # whether it came from another folder

    @property
    def hash(self) -> str:
        """The first digits of its hash."""
        return self.path.stem


def stored_shards(layout: Layout, iteration: int, oldest: int = 1) -> Iterator[StoredShard]:
    """The shards that were taken in from one iteration to another, the newest first, by its manifests of `sync`.

    A shard from elsewhere that has the origin of one of ours is none of them, whenever it came.
    """
    for number in layout.newest_first(iteration):
        if number < oldest:
            return
        if (synced := manifest_of(layout, number, "sync")) is not None:
            shards = reversed(added_shards(layout, number, synced))
            yield from (shard for shard in shards if not (shard.is_foreign and _is_ours(layout, shard)))


def _is_ours(layout: Layout, shard: StoredShard) -> bool:
    """Whether this pipeline has played games of the origin that a shard from elsewhere has."""
    games = read_games(shard.path) if shard.origin is None else None
    key = shard.origin if games is None else games.origin
    return key is not None and own_name(layout, key) is not None


def added_shards(layout: Layout, number: int, synced: Manifest) -> list[StoredShard]:
    """The shards that an iteration has taken in, in that order. Manifests of older versions say less of them."""
    found, foreign = [], {*synced.recorded.get(FOREIGN, ())}
    for one in synced.facts["added"]:
        if isinstance(one, str):
            found.append(counted(layout, one, number, is_foreign=one in foreign))
            continue
        name, games, positions, *origin = one
        key: Any = tuple(origin[0]) if origin else None
        found.append(StoredShard(layout.shard(name), number, games, positions, key, name in foreign))
    return found


def own_name(layout: Layout, origin: OriginKey) -> str | None:
    """The name in the store of the shard that this pipeline has played, of an origin; None if it has not."""
    player, seed, iteration, shard = origin
    played = read_manifest(layout.stage(iteration, "selfplay"))
    if played is None or (played.inputs.get("player"), played.settings.get("seed")) != (player, seed):
        return None
    found = played.outputs.get(shard_file(shard))
    return None if found is None else found[:HASH_DIGITS]


def unsynced(layout: Layout, iteration: int) -> list[int]:
    """The iterations that may have games which the store lacks: from the last one that was synced to this one."""
    found = list[int]()
    for number in layout.newest_first(iteration):
        found.append(number)
        if number < iteration and manifest_of(layout, number, "sync") is not None:
            break
    return found[::-1]


class KnownShards:
    """What the iterations from `first` to `last` have taken in, so that each manifest is read once in a process."""

    def __init__(self, first: int) -> None:
        self.first, self.last = first, first - 1
        self.names = set[str]()
        self.foreign: dict[OriginKey, StoredShard] = {}  # by origin, without those that ours have displaced
        self.num_foreign = 0

    def add_up_to(self, layout: Layout, last: int) -> None:
        """Reads the manifests that it has not read yet."""
        for number in range(self.last + 1, last + 1):
            if (synced := manifest_of(layout, number, "sync")) is not None:
                for shard in added_shards(layout, number, synced):
                    self._add(shard)
                for key in synced.facts.get("displaced", ()):
                    self.foreign.pop(tuple(key), None)
        self.last = max(self.last, last)

    def _add(self, shard: StoredShard) -> None:
        self.names.add(shard.hash)
        if shard.is_foreign:
            self.num_foreign += 1
            games = None if shard.origin is not None else read_games(shard.path)
            if (key := shard.origin if games is None else games.origin) is not None:
                self.foreign.setdefault(key, shard)


def link(source: Path, path: Path) -> None:
    """Gives the file a second name, or copies it where that is not possible."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        os.link(source, path)
        return
    with atomic_write(path) as temporary:  # another file system, one without links, or a file that is replaced
        shutil.copyfile(source, temporary)


def stored_shard(
    layout: Layout, name: str, iteration: int, arrays: dict[str, np.ndarray], *, is_foreign: bool = False
) -> StoredShard:
    """The shard of arrays that an iteration takes in."""
    games = games_of(arrays)
    counts = len(games.ids), int(games.lengths.sum())
    return StoredShard(layout.shard(name), iteration, *counts, games.origin, is_foreign)


def counted(layout: Layout, name: str, iteration: int, *, is_foreign: bool) -> StoredShard:
    """The shard of a file; without games if it cannot be read: the window that needs it restores it or loses it."""
    path = layout.shard(name)
    if (games := read_games(path)) is None:
        return StoredShard(path, iteration, 0, 0, is_foreign=is_foreign)
    return StoredShard(path, iteration, len(games.ids), int(games.lengths.sum()), games.origin, is_foreign)


class ShardGames(NamedTuple):
    """The games of a shard, without their positions."""

    ids: np.ndarray  # [N] uint64
    lengths: np.ndarray  # [N] positions of each
    origin: OriginKey


def games_of(arrays: dict[str, np.ndarray]) -> ShardGames:
    """The games of a shard's arrays, of which those of games and texts are enough."""
    lengths = arrays["num_plies"].astype(int) - arrays["num_random"].astype(int)
    return ShardGames(arrays["game_id"], lengths, origin_of(arrays).key)


def read_games(path: Path) -> ShardGames | None:
    """The games of a shard's file, of which only small arrays are read; None if it is missing or torn."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            names = ("game_id", "num_plies", "num_random", *(name for name in stored.files if name.startswith("text_")))
            return games_of({name: stored[name] for name in names})
    except READ_ERRORS:
        return None


@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def _remembered_games(path: Path) -> ShardGames:
    if (found := read_games(path)) is None:
        raise CheckpointError(f"{path} cannot be read", "put it back as it was")  # and nothing is remembered
    return found


def remembered_games(shard: StoredShard) -> ShardGames | None:
    """`read_games` of a shard, whose name is its hash: a process reads it once."""
    try:
        return _remembered_games(shard.path)
    except CheckpointError:
        return None


ReadGames = Callable[[StoredShard], ShardGames | None]


class ChosenGames(NamedTuple):
    """Games of a shard that belong to the newest ones; `keep` [N] may be all False."""

    shard: StoredShard
    keep: np.ndarray


class _Newest:
    """The newest games so far."""

    def __init__(self, room: int, read: ReadGames) -> None:
        self.chosen, self.room, self._read = list[ChosenGames](), room, read
        self._known = dict[int, tuple[int, int]]()  # by number of a game: which shard of the chosen, and row
        self._origins = dict[OriginKey, list[int]]()  # which shards of the chosen

    def add(self, shard: StoredShard, games: ShardGames) -> bool:
        """Takes what there is room for; returns whether there is room for more."""
        index, ids = len(self.chosen), games.ids.tolist()
        self.chosen.append(ChosenGames(shard, np.zeros(len(ids), bool)))
        is_new = games.origin not in self._origins and self._known.keys().isdisjoint(ids) and len({*ids}) == len(ids)
        go_on = self._add_all(index, ids, games) if is_new else self._add_each(index, ids, games)
        self._origins.setdefault(games.origin, []).append(index)
        return go_on and self.room > 0

    def _add_all(self, index: int, ids: list[int], games: ShardGames) -> bool:
        """Of games of which none is known, as many as there is room for, from the last one on."""
        number = int(np.searchsorted(np.cumsum(games.lengths[::-1]), self.room, side="right"))
        if number == 0 and not self._known:
            number = 1
        first = len(ids) - number
        self.chosen[index].keep[first:] = True
        self.room -= int(games.lengths[first:].sum())
        self._known.update((name, (index, first + row)) for row, name in enumerate(ids[first:]))
        return first == 0

    def _add_each(self, index: int, ids: list[int], games: ShardGames) -> bool:
        one = self.chosen[index]
        for row in reversed(range(len(ids))):
            same = {(other, row) for other in self._origins.get(games.origin, ()) if row < len(self.chosen[other].keep)}
            same |= {self._known[ids[row]]} if ids[row] in self._known else set()
            if any(one.shard.is_foreign or not self.chosen[other].shard.is_foreign for other, _ in same):
                continue
            for place in same:  # from elsewhere, and this one is ours
                self._leave_out(*place)
            if games.lengths[row] > self.room and self._known:
                return False
            self._known[ids[row]] = index, row
            one.keep[row] = True
            self.room -= int(games.lengths[row])
        return True

    def _leave_out(self, index: int, row: int) -> None:
        one = self.chosen[index]
        if one.keep[row] and (games := self._read(one.shard)) is not None:
            one.keep[row] = False
            self.room += int(games.lengths[row])


def newest_games(shards: Iterable[StoredShard], size: int, read: ReadGames) -> list[ChosenGames]:
    """The newest whole games with together at most `size` positions, or one game, the newest shard first.

    Each game is taken once: two with one number are the same, and so are two of one origin, whatever else they say. Of
    these, a game of this pipeline is taken before one from elsewhere, and else the newer one.

    Args:
        shards: the newest first.
        size: positions.
        read: the games of a shard; None if it has to be passed over.
    """
    found = _Newest(size, read)
    for shard in shards:
        games = read(shard)
        if games is not None and not found.add(shard, games):
            break
    return found.chosen


def is_removed(layout: Layout, shard: StoredShard) -> bool:
    """Whether a shard that is missing was removed by retention, with all that are older."""
    name = shard.path.relative_to(layout.root).as_posix()
    return shard.iteration < removed_below(layout) or name in removed_files(layout, shard.iteration)


def removed_below(layout: Layout) -> int:
    """The iteration below which retention has removed all that it removes; 0 if it has never worked."""
    found = _noted(layout.root / MARK, "cleaned_below")
    return found if isinstance(found, int) else 0


def removed_files(layout: Layout, number: int) -> list[str]:
    """What an iteration has lost to retention; nothing if its note is damaged."""
    found = _noted(layout.iteration(number) / REMOVED, "files")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _noted(path: Path, name: str) -> Any:
    """A value of a note, of whatever type; None if the note is missing or damaged."""
    try:
        return json.loads(path.read_bytes())[name]
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
