"""Files that are not what a manifest names: they are set aside, and had again where that is possible.

An output of the unfinished iteration is made again by its stage. A shard of the store, which windows of many iterations
are made of, has to be the same file again: another name of it, a copy in a folder of `sync_from`, or the same games
played again from their key. What cannot be had again is noted as lost, once, and windows are made without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.damage import DamagedOutputError
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.files import lost_shards, stage_leaves
from stoix_like.selfplay.files.folders import Layout, shard_number
from stoix_like.selfplay.files.iteration_start import read_start
from stoix_like.selfplay.files.shards import ShardOrigin, formats_of, shard_arrays
from stoix_like.selfplay.files.stored import HASH_DIGITS, StoredShard, link, unsynced
from stoix_like.selfplay.pipeline.candidates import self_player
from stoix_like.selfplay.pipeline.foreign import foreign_sources
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages import selfplay

#: Packages that games depend on. Where all are the same, the same games may come out again; their hash decides.
_VERSIONS = ("stoix_like", "jax", "jaxlib")
_OF_STAGE = ("selfplay_games", "shard_games")  # settings of self-play that say how many shards, and not what is played


def set_aside(pipeline: Pipeline, damage: DamagedOutputError) -> None:
    """Moves damaged outputs into quarantine/, so that their stage is due again.

    Raises RunError if one of them has been set aside before in this process: it would never end.
    """
    paths = [Path(os.path.normpath(path)) for path in damage.paths]
    if again := [path for path in paths if path in pipeline.memory.set_aside]:
        raise RunError(f"{again[0]} was made again in vain: {damage.what}", damage.remedy)
    pipeline.memory.set_aside.update(paths)
    for path in paths:
        _quarantine(pipeline.layout, path)
    pipeline.reporter.warning(f"{damage.what}; it is set aside, and {damage.stage} runs again")


def _quarantine(layout: Layout, path: Path) -> None:
    if path.is_file():
        layout.quarantine.mkdir(parents=True, exist_ok=True)
        path.replace(layout.quarantine / "-".join(path.relative_to(layout.root).parts))


def restore_shard(pipeline: Pipeline, shard: StoredShard, damage: str) -> bool:
    """Whether a shard that is missing or damaged stands in the store again.

    If not, it is noted as lost, with a warning. Raises Interrupted if a signal came meanwhile.
    """
    layout, own = pipeline.layout, _own_file(pipeline.layout, shard)
    _quarantine(layout, shard.path)
    for path in [*([] if own is None else [layout.stage(own[0], "selfplay") / own[1]]), *_copies(pipeline, shard)]:
        if pipeline.stop.is_set:
            raise Interrupted("export")
        if _has_hash(path, shard.hash):
            link(path, shard.path)
            return True
    reason = "it came from elsewhere, and is not there any more" if own is None else _play_again(pipeline, shard, *own)
    if reason is None:
        pipeline.reporter.note(f"{damage}; its games were played again, and are the same")
        return True
    lost_shards.add_lost(layout, shard.path, shard.iteration, shard.num_games, shard.num_positions, reason)
    pipeline.reporter.warning(
        f"{damage}; {reason}: its {shard.num_games:,} games are lost, and windows do without them"
    )
    return False


def _own_file(layout: Layout, shard: StoredShard) -> tuple[int, str, Manifest] | None:
    """(iteration, name, manifest) of the self-play that a shard is of; None if it is not ours."""
    for number in unsynced(layout, shard.iteration):
        played = read_manifest(layout.stage(number, "selfplay"))
        for name, found in {} if played is None else played.outputs.items():
            if played is not None and found[:HASH_DIGITS] == shard.hash:
                return number, name, played
    return None


def _copies(pipeline: Pipeline, shard: StoredShard) -> Iterator[Path]:
    """Where a shard may be in the folders of `sync_from`: in a store it has the same name, and else any."""
    try:
        found = foreign_sources(pipeline)
    except ConfigError:  # one of the folders is gone
        return
    yield from sorted(found, key=lambda path: path.name != shard.path.name)


def _has_hash(path: Path, expected: str) -> bool:
    try:
        return path.is_file() and array_hash(read_arrays(path))[:HASH_DIGITS] == expected
    except CheckpointError:
        return False


def _play_again(pipeline: Pipeline, shard: StoredShard, number: int, name: str, played: Manifest) -> str | None:
    """Plays a shard of ours from its key into the store; why it cannot, or None."""
    settings = dict(played.settings)
    boost = settings.pop("exploration_boost", 1.0)
    present = pipeline.leaves([leaf for leaf in stage_leaves.SELFPLAY if leaf not in _OF_STAGE])
    if any(settings.get(leaf) != value for leaf, value in present.items()):
        return "the settings of its self-play have changed since"
    now, then = versions(), played.recorded.get("versions", {})
    if changed := [package for package in _VERSIONS if now[package] != then.get(package)]:
        return f"it was played with {changed[0]} {then.get(changed[0], 'of another version')}"
    start = read_start(pipeline.layout, number)
    if start is None or start.player.hash != played.inputs["player"]:
        return f"iteration {number} does not say who has played it"
    try:
        player = self_player(pipeline, start.player)
    except CheckpointError as error:
        return f"its player cannot be read: {error.what}"
    index = shard_number(name)
    _, size = selfplay.shard_sizes(settings["selfplay_games"], settings["shard_games"])
    progress = Progress(pipeline.reporter, pipeline.stop, "selfplay", "games", size)
    records = selfplay.play_shard(pipeline, number, index, size, player.params, progress, boost)
    origin = ShardOrigin(settings["seed"], number, index, player.hash, settings["engine"])
    for version in reversed(formats_of(pipeline.game)):
        arrays = shard_arrays(pipeline.game, records, origin, version)
        if array_hash(arrays)[:HASH_DIGITS] == shard.hash:
            _put(pipeline.layout.stage(number, "selfplay") / name, shard.path, arrays)
            return None
    return "its games were played again and are others here"


def _put(own: Path, path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes a shard under both of its names."""
    write_arrays(own, arrays)
    link(own, path)
