"""The stage `export`: the window that is learned from, each game once, split by game.

The window has the newest positions of the store. It begins to grow sublinearly where there are more than
`window_positions` = c of them: c (1 + b ((n / c)^a - 1) / a) of n positions, with exponent a and growth b (Wu 2019,
"Accelerating Self-Play Learning in Go", arXiv 1902.10565, appendix C), but never beyond the capacity of the replay.
Whether a game is validated on depends on its number alone, so it never changes sides.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoix_like.algorithms.alphazero import Sample
from stoix_like.algorithms.alphazero.packing import PackedObservation
from stoix_like.errors import CheckpointError, RunError
from stoix_like.games import BoardGame
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.run import StageResult, run_stage
from stoix_like.runtime.storage.signed_json import json_digest
from stoix_like.selfplay.files import manifests
from stoix_like.selfplay.files.folders import VALIDATION_FILE, WINDOW_FILE
from stoix_like.selfplay.files.iteration import IterationFiles
from stoix_like.selfplay.files.iteration_start import WINDOW
from stoix_like.selfplay.files.lost_shards import read_lost
from stoix_like.selfplay.files.policies import OVER_ALL, as_written, policy_arrays
from stoix_like.selfplay.files.shards import (
    check_format,
    float_problems,
    form_problems,
    formats_of,
    packed_size,
    shape_problems,
    text_of,
    unpack_planes,
)
from stoix_like.selfplay.files.stored import (
    HASH_DIGITS,
    ShardGames,
    StoredShard,
    games_of,
    is_removed,
    newest_games,
    stored_shards,
)
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages.restoring import restore_shard
from stoix_like.types import Observation

KIND, FORMAT, PACKED_FORMAT = "window", 2, 3  # PACKED: policies are over the legal actions
_LEARNED = ("game", "player", "outcome", "game_id", "packed_planes", "legal", "policy", "root_values", "is_full")
_BUCKETS = 1 << 16  # of game numbers, for the split

#: {name: (type, axes)} of a window's arrays: M positions, B bytes of planes, A actions, P players.
_ARRAYS = {
    "packed_planes": ("uint8", "MB"),  # as those of shards
    **OVER_ALL,  # or OVER_LEGAL
    "root_values": ("float32", "MP"),
    "outcome": ("float32", "MP"),  # of the player i seats after the mover
    "is_full": ("bool", "M"),
    "iteration": ("int32", "M"),
    "game_id": ("uint64", "M"),
}


def window_size(num_positions: int, start: int, exponent: float, growth: float, capacity: int) -> int:
    """How many of the newest positions are learned from."""
    if num_positions <= start:
        return min(num_positions, capacity)
    wanted = start * (1.0 + growth * ((num_positions / start) ** exponent - 1.0) / exponent)
    return min(round(wanted), num_positions, capacity)


class _Exclusions(NamedTuple):
    """What a window does without."""

    lost: tuple[str, ...] = ()  # names of shards
    ends_at: int = 0  # the iteration whose shards, and older ones, retention has removed


_NONE = _Exclusions()


class _WindowChangedError(Exception):
    """A shard is found to be lost or removed, so that the window is made without it."""

    def __init__(self, ends_at: int = 0) -> None:
        super().__init__()
        self.ends_at = ends_at


def export_stage(pipeline: Pipeline, files: IterationFiles) -> Manifest:
    """Makes the window. Facts: games, positions, and positions that are validated on.

    A window is a function of the store and of what it does without: lost shards, and those that retention has removed
    (if it reaches back to them). Both are inputs. One that is made is kept, whatever is lost later.
    """
    folder, synced = files.folder("export"), files.done("sync")
    found, ends_at = files.find("export"), 0
    while True:
        excluded = _Exclusions(tuple(sorted(read_lost(pipeline.layout))), ends_at)
        if found is not None and found.inputs.get("store") == synced.facts["store"]:
            excluded = _Exclusions(tuple(found.facts.get("lost", ())), int(found.inputs.get("ends_at", 0)))
        lost = {"lost": json_digest(excluded.lost)} if excluded.lost else {}
        removed = {"ends_at": str(excluded.ends_at)} if excluded.ends_at else {}
        call = pipeline.call("export", files, **lost, **removed)
        try:
            return run_stage(folder, call, functools.partial(_export, pipeline, files.number, synced, folder, excluded))
        except _WindowChangedError as change:
            found, ends_at = None, max(ends_at, change.ends_at)


def import_stage(pipeline: Pipeline, files: IterationFiles, path: Path) -> Manifest:
    """Takes a window that was made elsewhere as it is.

    Raises:
        CheckpointError: no window of this game, torn, with pickled objects, or changed since the iteration was begun.
    """
    arrays, folder = read_window(pipeline, path), files.folder("export")
    if array_hash(arrays) != files.start.settings[WINDOW]:
        what = f"{path} is not the window that iteration {files.number} was begun with"
        raise CheckpointError(what, "put it back, or begin the next iteration with it: --new-iteration")
    return run_stage(folder, pipeline.call("export", files), lambda: _split(pipeline, folder, arrays))


def read_window(pipeline: Pipeline, path: Path) -> dict[str, np.ndarray]:
    """The arrays of a window from elsewhere. Raises CheckpointError as `check_window`, and if it cannot be read."""
    if not path.is_file():
        raise CheckpointError(f"--data-path: no file {path}", f"give a {WINDOW_FILE} that an export stage has written")
    arrays = read_arrays(path)
    check_window(pipeline, arrays, str(path))
    return arrays


def _export(
    pipeline: Pipeline, iteration: int, synced: Manifest, folder: Path, excluded: _Exclusions = _NONE
) -> StageResult:
    section, total = pipeline.config.selfplay, int(synced.facts["positions"])
    if total == 0:
        raise RunError(
            "the store has no games to learn from", "leave out --skip-selfplay, or give --sync-from or --data-path"
        )
    if (new := manifests.new_positions(pipeline.layout, iteration)) < section.min_samples:  # and nothing is played
        what = f"the store has {new:,} new positions, and min_samples is {section.min_samples:,}"
        raise RunError(what, "leave out --skip-selfplay, so that more is played, or lower --min-samples")
    sizes = section.window_positions, section.window_exponent, section.window_growth
    size = window_size(total, *sizes, pipeline.config.alphazero.replay_buffer_size)
    result = _split(pipeline, folder, _newest_positions(pipeline, iteration, size, excluded))
    facts = {"store_positions": total, "window_size": size} | ({"lost": list(excluded.lost)} if excluded.lost else {})
    return result._replace(facts=result.facts | facts)


def _newest_positions(
    pipeline: Pipeline, iteration: int, size: int, excluded: _Exclusions = _NONE
) -> dict[str, np.ndarray]:
    """The positions of the newest whole games, together at most `size` or those of one game, the oldest first.

    Raises _WindowChangedError if a shard that they reach is missing or damaged, and cannot be had again.
    """
    layout, parts = pipeline.layout, dict[str, tuple[dict[str, np.ndarray], ShardGames]]()

    def read(shard: StoredShard) -> ShardGames | None:
        if shard.hash in excluded.lost:
            return None
        if shard.hash not in parts:
            arrays = _read_shard(pipeline, shard)
            parts[shard.hash] = {name: arrays[name] for name in _LEARNED}, games_of(arrays)
        return parts[shard.hash][1]

    chosen = newest_games(stored_shards(layout, iteration, excluded.ends_at + 1), size, read)
    if not any(one.keep.any() for one in chosen):
        raise RunError(f"{layout.store}: all games are lost", "begin the next iteration, which plays: --new-iteration")
    rows = [_positions(parts[one.shard.hash][0], one.keep, one.shard.iteration) for one in reversed(chosen)]
    return {name: np.concatenate([part[name] for part in rows]) for name in _ARRAYS}


def _read_shard(pipeline: Pipeline, shard: StoredShard) -> dict[str, np.ndarray]:
    """The arrays of a shard of the store, which is restored if it has to be."""
    layout = pipeline.layout
    if not shard.path.is_file() and is_removed(layout, shard):
        raise _WindowChangedError(shard.iteration)
    for _ in range(2):
        try:
            arrays = read_arrays(shard.path)
            if array_hash(arrays)[:HASH_DIGITS] == shard.hash:
                check_format(arrays, shard.path, formats_of(pipeline.game))
                return as_written(pipeline.game, arrays)
            damage = f"{shard.path} was changed after it had been written"
        except CheckpointError as error:
            damage = error.what
        if not restore_shard(pipeline, shard, damage):
            raise _WindowChangedError
    raise CheckpointError(damage, "look after the disk of this machine")


def _positions(arrays: dict[str, np.ndarray], keep: np.ndarray, iteration: int) -> dict[str, np.ndarray]:
    rows = keep[arrays["game"]]
    game, player = arrays["game"][rows], arrays["player"][rows].astype(int)
    num_players = arrays["outcome"].shape[1]
    seats = (player[:, None] + np.arange(num_players)[None]) % num_players  # [M, P]
    found = {name: arrays[name][rows] for name in ("packed_planes", "legal", "policy", "root_values", "is_full")}
    found["outcome"] = np.take_along_axis(arrays["outcome"][game], seats, axis=1)
    found["iteration"] = np.full(len(game), iteration, np.int32)
    found["game_id"] = arrays["game_id"][game]
    return found


def is_validated_on(game_id: np.ndarray, share: float) -> np.ndarray:
    """Whether games of these numbers belong to the part that is validated on; the same in every iteration."""
    return (game_id % np.uint64(_BUCKETS)).astype(np.int64) < int(share * _BUCKETS)


def _split(pipeline: Pipeline, folder: Path, arrays: dict[str, np.ndarray]) -> StageResult:
    arrays = {name: arrays[name] for name in _ARRAYS}
    held_out = is_validated_on(arrays["game_id"], pipeline.config.selfplay.validation_share)
    if held_out.all():
        pipeline.reporter.note("all games of the window would be validated on; they are learned from instead")
        held_out[:] = False
    outputs, facts = {}, {"games": len(np.unique(arrays["game_id"])), "positions": int((~held_out).sum())}
    for name, kind, rows in ((WINDOW_FILE, KIND, ~held_out), (VALIDATION_FILE, "validation", held_out)):
        texts = {"kind": kind, "format": str(format_of(pipeline.game)), "game_name": pipeline.game.name}
        part = {key: values[rows] for key, values in arrays.items()}
        part |= {f"text_{key}": np.array(text) for key, text in texts.items()}
        outputs[name] = write_arrays(folder / name, part)
    facts["validation_positions"] = int(held_out.sum())
    return StageResult(outputs, facts)


def check_window(pipeline: Pipeline, arrays: dict[str, np.ndarray], where: str) -> None:
    """Refuses arrays that are no window of this game.

    Raises:
        CheckpointError: another kind of file, another game, no positions, more than the replay keeps, wrong shapes,
            types or values.
    """
    if problem := next(_window_problems(pipeline, arrays), None):
        what = f"{where} is no window of {pipeline.game.name}: {problem}"
        raise CheckpointError(what, f"give a {WINDOW_FILE} that an export stage has written")


def _window_problems(pipeline: Pipeline, arrays: dict[str, np.ndarray]) -> Iterator[str]:
    """What is wrong with a window. Each problem is found on the condition that there is none before it."""
    game = pipeline.game
    for name, wanted in {"kind": KIND, "format": str(format_of(game)), "game_name": game.name}.items():
        if (found := text_of(arrays, name)[:40]) != wanted:
            yield f"its {name} is {found!r} and should be {wanted!r}"
    yield from form_problems(_ARRAYS, arrays)
    sizes = {"M": len(arrays["is_full"]), "A": game.num_actions, "K": game.max_legal or 0, "P": game.num_players}
    sizes["B"] = packed_size(pipeline.planes_shape)
    yield from shape_problems(_ARRAYS | policy_arrays(game), arrays, sizes)
    if sizes["M"] == 0:
        yield "it has no positions"
    if sizes["M"] > (most := pipeline.config.alphazero.replay_buffer_size):
        yield f"it has {sizes['M']:,} positions, and replay_buffer_size is {most:,}"
    yield from float_problems(game, arrays, ("root_values", "outcome"))
    if (arrays["iteration"] < 0).any():
        yield "an iteration is below 0"


def format_of(game: BoardGame) -> int:
    """The format of a game's windows."""
    return FORMAT if game.max_legal is None else PACKED_FORMAT


def samples_of(pipeline: Pipeline, arrays: dict[str, np.ndarray]) -> Sample:
    """The samples of a window, [M, ...], on the host, as `packing.pack` keeps them."""
    found: dict[str, Any] = arrays
    observation: Observation | PackedObservation
    if pipeline.game.max_legal is None:
        planes: Any = unpack_planes(found["packed_planes"], pipeline.planes_shape)
        observation = Observation(planes, found["legal"])
    else:
        observation = PackedObservation(found["packed_planes"], found["legal"])
    fields = (found[name] for name in ("policy", "root_values", "outcome", "is_full", "iteration"))
    return Sample(observation, *fields)
