"""Which games are the newest, each once: by number and by origin, ours before those from elsewhere."""

from pathlib import Path

import numpy as np
import pytest

from stoix_like.selfplay.files.stored import ShardGames, StoredShard, newest_games

#: The origins of shards.
A, B, C = (("player", 0, 1, shard) for shard in range(3))


def newest(size, *shards):
    """The numbers of the games that are chosen, of shards (whether from elsewhere, origin, {number: length}), the
    newest first."""
    games = {}
    listed = []
    for index, (is_foreign, origin, lengths) in enumerate(shards):
        one = StoredShard(Path(f"{index}.npz"), index, len(lengths), sum(lengths.values()), None, is_foreign)
        ids, sizes = (np.array([*values]) for values in (lengths, lengths.values()))
        games[one.hash] = ShardGames(ids.astype(np.uint64), sizes, origin)
        listed.append(one)
    chosen = newest_games(listed, size, lambda shard: games[shard.hash])
    return [games[one.shard.hash].ids[one.keep].tolist() for one in chosen]


OURS, THEIRS = False, True


@pytest.mark.parametrize(
    ("size", "shards", "chosen"),
    [
        (100, [(OURS, A, {1: 5, 2: 5}), (OURS, B, {3: 5})], [[1, 2], [3]]),
        (9, [(OURS, A, {1: 5, 2: 5}), (OURS, B, {3: 5})], [[2]]),  # whole games, and none behind one that is too long
        (10, [(OURS, A, {1: 5, 2: 5}), (OURS, B, {3: 5})], [[1, 2]]),
        (12, [(OURS, A, {1: 5, 2: 5}), (OURS, B, {3: 5})], [[1, 2], []]),  # which was read to see that
        (1, [(OURS, A, {1: 5, 2: 5})], [[2]]),  # one game is always taken
        # one number: the newer one, but ours before theirs, whose room is free again
        (100, [(OURS, A, {1: 5}), (OURS, B, {1: 5, 2: 5})], [[1], [2]]),
        (100, [(OURS, A, {1: 5, 2: 4}), (THEIRS, B, {1: 5, 3: 5})], [[1, 2], [3]]),
        (100, [(THEIRS, A, {1: 5, 2: 4}), (OURS, B, {1: 5, 3: 5})], [[2], [1, 3]]),
        (14, [(THEIRS, A, {1: 5, 2: 4}), (OURS, B, {3: 5, 1: 5})], [[2], [3, 1]]),
        (100, [(OURS, A, {1: 5, 2: 5, 3: 5}), (OURS, B, {2: 5})], [[1, 2, 3], []]),
        # one origin, whatever the files say: row by row
        (100, [(OURS, A, {1: 5, 2: 5}), (THEIRS, A, {3: 5, 4: 5})], [[1, 2], []]),
        (100, [(THEIRS, A, {3: 5, 4: 5}), (OURS, A, {1: 5, 2: 5})], [[], [1, 2]]),
        (100, [(THEIRS, A, {3: 5, 4: 5}), (THEIRS, A, {1: 5, 2: 5})], [[3, 4], []]),
        (100, [(THEIRS, A, {3: 5}), (OURS, A, {1: 5, 2: 5})], [[], [1, 2]]),
        (10, [(THEIRS, C, {3: 5, 4: 5}), (OURS, C, {1: 5, 2: 5}), (OURS, B, {6: 9})], [[3, 4]]),  # it is reached
        (11, [(THEIRS, C, {3: 5, 4: 5}), (OURS, C, {1: 5, 2: 5}), (OURS, B, {6: 9})], [[], [1, 2], []]),
    ],
)
def test_the_newest_games_by_hand(size, shards, chosen):
    assert newest(size, *shards) == chosen
