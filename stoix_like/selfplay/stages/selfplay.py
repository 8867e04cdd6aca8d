"""The stage `selfplay`: shards of whole games, played by the champion or the newest candidate.

A shard's key is made of the seed, the iteration and its number, so shards can be played alone, in any order, by any
process. Shards of a stage that was killed are kept.
"""

from __future__ import annotations

import functools
import math
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from stoix_like.algorithms.alphazero import whole_games
from stoix_like.algorithms.alphazero.state import longest_game
from stoix_like.algorithms.alphazero.whole_games import GameRecords
from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.evaluators.timing import ChunkSizer
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.run import StageResult, run_stage
from stoix_like.selfplay.files.folders import shard_file
from stoix_like.selfplay.files.iteration import IterationFiles
from stoix_like.selfplay.files.manifests import new_positions
from stoix_like.selfplay.files.shards import ShardOrigin, check_shard, num_cut, num_played, origin_of, shard_arrays
from stoix_like.selfplay.pipeline.candidates import NetworkVersion, self_player
from stoix_like.selfplay.pipeline.game_programs import fewer_slots
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.types import NetworkParams, role_key

MEMORY_HINT = "lower --shard-games or --num-envs"


def selfplay_stage(pipeline: Pipeline, files: IterationFiles, batches: int = 1) -> Manifest:
    """The games of an iteration. Facts: games, positions, …

    Args:
        pipeline: of the game.
        files: of the iteration.
        batches: how often `selfplay_games` are played; the shards of fewer batches are kept.
    """
    start, iteration = files.start, files.number
    if batches == 2:  # said once
        _note_batches(pipeline, iteration)
    player, boost = self_player(pipeline, start.player), start.exploration_boost
    call = pipeline.call("selfplay", files, batches=str(batches))
    if boost != 1.0:
        call = call._replace(settings=call.settings | {"exploration_boost": boost})
    work = functools.partial(_play_shards, pipeline, iteration, player, batches, boost)
    return run_stage(files.folder("selfplay"), call, work, adds=batches > 1)


def _note_batches(pipeline: Pipeline, iteration: int) -> None:
    """Says why an iteration plays another batch, if too few positions are new."""
    least, new = pipeline.config.selfplay.min_samples, new_positions(pipeline.layout, iteration)
    if new < least:
        games = f"batches of {pipeline.config.selfplay.selfplay_games:,} games are played until it has them"
        text = f"iteration {iteration} has {new:,} of {least:,} new positions (min_samples): {games}"
        pipeline.reporter.note(f"{pipeline.layout.root.name}: {text}")


def shard_sizes(num_games: int, shard_games: int) -> tuple[int, int]:
    """(number of shards, games of each): equal sizes, so that they share a program; at least `num_games` together."""
    num_shards = math.ceil(num_games / shard_games)
    return num_shards, math.ceil(num_games / num_shards)


def _play_shards(pipeline: Pipeline, iteration: int, player: NetworkVersion, batches: int, boost: float) -> StageResult:
    section, seed = pipeline.config.selfplay, pipeline.config.architecture.seed
    folder = pipeline.layout.stage(iteration, "selfplay")
    of_a_batch, size = shard_sizes(section.selfplay_games, section.shard_games)
    num_shards = batches * of_a_batch
    progress = Progress(pipeline.reporter, pipeline.stop, "selfplay", "games", num_shards * size)
    longest = longest_game(pipeline.game, pipeline.config.alphazero.max_game_plies)
    outputs, counts, num_kept = {}, _Counts(longest < pipeline.game.max_plies), 0
    for shard in range(num_shards):  # each is named when it is its turn: a flag says how many there are
        path, origin = folder / shard_file(shard), ShardOrigin(seed, iteration, shard, player.hash, section.engine)
        if (arrays := _finished_shard(pipeline, path, origin, size)) is not None:
            outputs[path.name] = array_hash(arrays)
            num_kept += 1
            progress.keep(size)
        else:
            records = play_shard(pipeline, iteration, shard, size, player.params, progress, boost)
            if records.is_cut.all():
                counts.add_cut(size)
                continue
            arrays = shard_arrays(pipeline.game, records, origin)
            outputs[path.name] = write_arrays(path, arrays)
        counts.add(arrays)
    if not outputs:
        what = f"all {num_shards * size:,} games were cut after {longest:,} plies"
        raise RunError(what, "raise --max-game-plies, and add --new-iteration")
    return StageResult(outputs, counts.facts(), {"games_of_last_process": (num_shards - num_kept) * size})


def _finished_shard(pipeline: Pipeline, path: Path, origin: ShardOrigin, size: int) -> dict[str, np.ndarray] | None:
    """The arrays of a shard that an earlier process has finished, for the same player; else None."""
    if not path.is_file():
        return None
    try:
        arrays = read_arrays(path)
        check_shard(pipeline.game, arrays, str(path))
    except CheckpointError as error:
        pipeline.reporter.warning(f"{error.what}; it is played again")
        return None
    return arrays if origin_of(arrays) == origin and num_played(arrays) == size else None


def play_shard(
    pipeline: Pipeline,
    iteration: int,
    shard: int,
    num_games: int,
    params: NetworkParams,
    progress: Progress,
    boost: float = 1.0,
) -> GameRecords:
    """The records of one shard on the host, played in pieces of about two seconds, so that Ctrl-C works.

    Raises RunError if memory runs out.
    """
    key = jax.random.fold_in(role_key(pipeline.root, "selfplay", iteration), shard)
    opening_key, play_key = jax.random.split(key)
    sizer, before, boost_array = ChunkSizer(), progress.done, np.float32(boost)
    with reraise_device_errors("the games cannot be played", MEMORY_HINT):
        batch, step, num_playing = pipeline.games.begin(num_games)(opening_key), 0, num_games
        while num_playing > 0:
            steps, began, played = sizer.next_length(10_000), time.monotonic(), step
            batch = pipeline.games.advance(params, boost_array, batch, play_key, np.int32(steps))
            done, num_playing, step = map(int, jax.device_get(_progress_of(batch)))
            sizer.record(max(step - played, 1), time.monotonic() - began)
            progress.update(before + done)
            num_slots = batch.ply.shape[0]
            while 0 < num_playing <= fewer_slots(num_slots) < num_slots:
                num_slots = fewer_slots(num_slots)
            if num_slots < batch.ply.shape[0]:
                batch = whole_games.with_fewer_slots(batch, num_slots)
        records: GameRecords = jax.device_get(batch.records)
    return records


@jax.jit
def _progress_of(batch: whole_games.GameBatch) -> Any:
    return whole_games.num_finished(batch), whole_games.num_playing(batch), batch.step


class _Counts:
    """Sums over shards."""

    def __init__(self, may_be_cut: bool) -> None:
        self._sums = dict.fromkeys(("games", "cut", "positions", "plies", "draws", "first_player_points"), 0.0)
        self._may_be_cut = may_be_cut

    def add(self, arrays: dict[str, np.ndarray]) -> None:
        outcome = arrays["outcome"]
        found = {
            "games": len(outcome),
            "cut": num_cut(arrays),
            "positions": len(arrays["player"]),
            "plies": int(arrays["num_plies"].sum()),
            "draws": int((outcome == 0.0).all(axis=1).sum()),
            "first_player_points": float(((outcome[:, 0] + 1.0) / 2.0).sum()),
        }
        self._sums = {name: value + found[name] for name, value in self._sums.items()}

    def add_cut(self, num_games: int) -> None:
        """A shard of which nothing is left."""
        self._sums["cut"] += num_games

    def facts(self) -> dict[str, Any]:
        """Counts, and means per game that was over; where games may be cut, how many were."""
        games = self._sums["games"]
        cut = {"truncated": int(self._sums["cut"])} if self._may_be_cut else {}
        return cut | {
            "games": int(games),
            "positions": int(self._sums["positions"]),
            "mean_plies": self._sums["plies"] / games,
            "draw_rate": self._sums["draws"] / games,
            "first_player_score": self._sums["first_player_points"] / games,
        }
