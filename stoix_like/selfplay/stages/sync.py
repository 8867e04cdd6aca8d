"""The stage `sync`: shards of this iteration and of other folders into the store, each once.

A file that is torn, of another game, or claims what the rules do not confirm is copied to quarantine/ and named; one
that has the origin of a shard which is here is left out; everything else is taken in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.damage import DamagedOutputError
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.stages.run import StageResult, run_stage
from stoix_like.runtime.storage.signed_json import json_digest
from stoix_like.selfplay.files import manifests
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.iteration import IterationFiles
from stoix_like.selfplay.files.shards import check_shard
from stoix_like.selfplay.files.stored import (
    FOREIGN,
    HASH_DIGITS,
    KnownShards,
    StoredShard,
    added_shards,
    link,
    stored_shard,
    unsynced,
)
from stoix_like.selfplay.pipeline.foreign import ForeignIntake, foreign_sources
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages import restoring

_UNKNOWN = -1  # an older manifest does not say


class StoreTotals(NamedTuple):
    """What the store has taken in, removed and lost shards included, without those that ours have displaced."""

    shards: int = 0
    games: int = 0
    positions: int = 0
    store: str = ""  # a hash of the names of all shards in their order
    foreign: int = 0  # shards that came from other folders


class _OwnSource(NamedTuple):
    path: Path
    hash: str  # that the manifest names
    iteration: int  # that has played it
    played: Manifest


def sync_stage(pipeline: Pipeline, files: IterationFiles, *, again: bool = False) -> Manifest:
    """Takes in what the store does not have yet.

    Done once for the games of this iteration, it stays done: files that come to other folders later are for the next
    one, unless it is done `again`. What was taken in from other folders stays, whether it is still there or not.
    Facts: the shards that were taken in, in order, as [name, games, positions, origin], and the totals of the store.
    """
    found, iteration = files.find("sync"), files.number
    number = (0 if found is None else int(found.inputs.get("round", 0))) + again
    call = pipeline.call("sync", files, round=str(number))
    taken = [] if found is None else [one for one in added_shards(pipeline.layout, iteration, found) if one.is_foreign]
    return run_stage(files.folder("sync"), call, lambda: _take_in(pipeline, iteration, taken), adds=True)


def totals_before(layout: Layout, iteration: int) -> StoreTotals:
    """What the store had taken in before an iteration."""
    for number in layout.newest_first(iteration - 1):
        if (synced := manifests.manifest_of(layout, number, "sync")) is not None:
            return StoreTotals(**{name: synced.facts.get(name, _UNKNOWN) for name in StoreTotals._fields})
    return StoreTotals()


def _own_sources(layout: Layout, iteration: int) -> Iterator[_OwnSource]:
    """The shards of this iteration, and of those before that were left before or after their stage `sync`."""
    for number in unsynced(layout, iteration):
        folder = layout.stage(number, "selfplay")
        if (played := read_manifest(folder)) is not None:
            yield from (_OwnSource(folder / name, found, number, played) for name, found in played.outputs.items())


def has_sources(pipeline: Pipeline, iteration: int) -> bool:
    """Whether there are shards that the store of an iteration could take in. Raises as `_foreign_sources`."""
    return bool(foreign_sources(pipeline)) or any(_own_sources(pipeline.layout, iteration))


def _take_in(pipeline: Pipeline, iteration: int, taken: Sequence[StoredShard]) -> StageResult:
    """Takes in what the sources have, and counts what was `taken` from other folders before in this iteration."""
    layout, before = pipeline.layout, totals_before(pipeline.layout, iteration)
    layout.store.mkdir(parents=True, exist_ok=True)
    known = _known(pipeline, iteration, before)
    own = list(_take_own(pipeline, iteration, known))
    foreign = ForeignIntake(pipeline, iteration, known, own)
    for path in foreign_sources(pipeline):
        foreign.take(path)
    foreign.keep(taken)
    displaced = [known.foreign[one.origin] for one in own if one.origin in known.foreign]
    new = [*own, *foreign.added.values()]
    totals = StoreTotals(
        before.shards + len(new) - len(displaced),
        before.games + sum(shard.num_games for shard in new) - sum(shard.num_games for shard in displaced),
        before.positions + sum(shard.num_positions for shard in new) - sum(shard.num_positions for shard in displaced),
        json_digest([before.store, *(shard.hash for shard in new)]),
        max(before.foreign, known.num_foreign) + len(foreign.added),
    )
    facts: dict[str, Any] = {"added": [_row(shard) for shard in new], **totals._asdict()}
    if displaced:  # their games are ours
        facts["displaced"] = [list(one.origin) for one in own if one.origin in known.foreign and one.origin is not None]
    return StageResult({}, facts, {"new_shards": len(new), FOREIGN: list(foreign.added), **foreign.left_out})


def _row(shard: StoredShard) -> list[Any]:
    """A shard in a manifest."""
    row: list[Any] = [shard.hash, shard.num_games, shard.num_positions]
    return row if shard.origin is None else [*row, list(shard.origin)]


def _known(pipeline: Pipeline, iteration: int, before: StoreTotals) -> KnownShards:
    """What earlier iterations have taken in: of late ones, or of all, if there is or was anything from elsewhere.

    A process reads the manifest of an iteration once, and remembers it as long as it is needed.
    """
    memory, layout = pipeline.memory, pipeline.layout
    is_mixed = before.foreign != 0 or bool(foreign_sources(pipeline))
    first = 1 if is_mixed else unsynced(layout, iteration)[0]
    if memory.known is None or memory.known.first != first or memory.known.last >= iteration:
        memory.known = KnownShards(first)
    memory.known.add_up_to(layout, iteration - 1)
    return memory.known


def _take_own(pipeline: Pipeline, iteration: int, known: KnownShards) -> Iterator[StoredShard]:
    """The shards of ours that the store lacks, which it has now.

    Raises DamagedOutputError if one of this iteration is damaged. One of an earlier iteration that was left is played
    again, or lost.
    """
    for source in _own_sources(pipeline.layout, iteration):
        if (name := source.hash[:HASH_DIGITS]) in known.names:
            continue
        path = pipeline.layout.shard(name)
        try:
            arrays = read_arrays(source.path, source.hash)
            check_shard(pipeline.game, arrays, str(source.path))
        except CheckpointError as error:
            if source.iteration == iteration:
                raise DamagedOutputError("selfplay", [source.path], error.what) from error
            facts, number = source.played.facts, len(source.played.outputs)
            lost = StoredShard(  # an equal share: the manifest has the sums of all its shards
                path, source.iteration, facts["games"] // number, facts["positions"] // number
            )
            if not restoring.restore_shard(pipeline, lost, error.what):
                continue
            arrays = read_arrays(path)
        if not path.is_file():
            link(source.path, path)
        yield stored_shard(pipeline.layout, name, iteration, arrays)
