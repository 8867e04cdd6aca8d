"""What is removed from the folder of a game: files that nothing will read again.

Kept are all manifests, records and games of evaluations, the last two iterations whole, the shards of the newest
positions, the parameters of all who were ever champion and of the newest candidates. What an iteration loses is noted
in its `removed.json` before it is removed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import ARRAYS, PARAMETERS, VALIDATION_FILE, WINDOW_FILE, Layout
from stoix_like.selfplay.files.lost_shards import read_lost
from stoix_like.selfplay.files.stored import (
    MARK,
    REMOVED,
    newest_games,
    remembered_games,
    removed_below,
    removed_files,
    stored_shards,
)

WHOLE_ITERATIONS = 2  # finished ones, the newest, of which nothing is removed


class RetentionRule(NamedTuple):
    """What is kept of a game.

    Attributes:
        positions: whose shards are kept, the newest.
        candidates: whose parameters are kept, the newest, besides champions.
    """

    positions: int
    candidates: int


def clean(layout: Layout, rule: RetentionRule) -> int:
    """Removes what is no longer kept; returns how many bytes that gave back. Called under the lock of the game.

    It goes from old to new, and notes below which iteration nothing is left to remove, so that it never looks at all of
    them again.
    """
    finished = list(itertools.islice(_finished(layout), max(rule.candidates, WHOLE_ITERATIONS)))  # the newest first
    if len(finished) < WHOLE_ITERATIONS or not layout.champion.is_file():
        return 0
    first_whole = finished[WHOLE_ITERATIONS - 1]
    first_shard = min(_first_kept_shard(layout, rule.positions), first_whole)
    first_candidate = finished[rule.candidates - 1] if len(finished) >= rule.candidates else 0
    cleaned, freed = removed_below(layout), 0
    for number in range(max(cleaned, 1), first_whole):
        doomed = [layout.stage(number, "export") / name for name in (WINDOW_FILE, VALIDATION_FILE)]
        doomed += layout.iteration(number).glob("*/.*.tmp*")  # of processes that were killed while they wrote
        if number < first_shard:
            doomed += list(_shards_of(layout, number))
        if number < first_candidate and not records.record_path(layout, number).is_file():  # never champion
            doomed.append(layout.stage(number, "train") / PARAMETERS)
        freed += _remove(layout, number, [path for path in doomed if path.is_file()])
    mark = min(first_shard, first_candidate)
    if mark > cleaned:
        atomic_write_json(layout.root / MARK, {"cleaned_below": mark})
    return freed


def _finished(layout: Layout) -> Iterator[int]:
    """The finished iterations, the newest first."""
    for number in layout.newest_first():
        if read_manifest(layout.stage(number, "promote")) is not None:
            yield number


def _first_kept_shard(layout: Layout, positions: int) -> int:
    """The first iteration whose shards are kept: the last one that a window of so many positions would read."""
    lost, below = read_lost(layout), removed_below(layout)
    present = itertools.takewhile(
        lambda shard: shard.iteration >= below, stored_shards(layout, layout.last_iteration())
    )
    found = newest_games((shard for shard in present if shard.hash not in lost), positions, remembered_games)
    return min((one.shard.iteration for one in found), default=0)


def _shards_of(layout: Layout, number: int) -> Iterator[Path]:
    """The files of an iteration's shards: in the store, and the other names of those that it has played."""
    synced = read_manifest(layout.stage(number, "sync"))
    if synced is not None:
        yield from (layout.shard(one if isinstance(one, str) else one[0]) for one in synced.facts["added"])
    yield from layout.stage(number, "selfplay").glob(f"*{ARRAYS}")  # also of self-play that was never finished


def _remove(layout: Layout, number: int, paths: list[Path]) -> int:
    if not paths:
        return 0
    note = layout.iteration(number) / REMOVED
    names = [path.relative_to(layout.root).as_posix() for path in paths]
    before = removed_files(layout, number)
    atomic_write_json(note, {"files": sorted({*before, *names}), "time": time.time()})
    sizes = {path.stat().st_ino: path.stat().st_size for path in paths}  # a shard has two names
    for path in paths:
        path.unlink(missing_ok=True)
    return sum(sizes.values())
