"""What a shard claims is checked: its form, and by the rules whatever it says of its games."""

import functools
import re

import jax
import numpy as np
import pytest
from support.marks import full
from support.pipelines import small_pipeline
from support.self_play import SETTINGS

from stoix_like.algorithms.alphazero import PlaySetup, whole_games
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.errors import CheckpointError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.selfplay.files.shards import (
    ShardOrigin,
    check_shard,
    game_ids,
    num_cut,
    num_played,
    origin_of,
    pack_planes,
    packed_size,
    shard_arrays,
    unpack_planes,
)
from stoix_like.selfplay.files.verify_games import make_play_moves, rule_problem
from stoix_like.selfplay.pipeline import game_programs
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages import selfplay

GAME, ORIGIN = make_tic_tac_toe(), ShardOrigin(3, 7, 2, "abc", "mcts-8")
NUM_GAMES = 6


def played(most_plies=None):
    """Records of games, cut after so many plies."""
    settings = SETTINGS._replace(random_plies=2, temperature_plies=9, max_game_plies=most_plies)
    batch = jax.jit(functools.partial(whole_games.begin, GAME, settings, NUM_GAMES, 3))(jax.random.key(0))
    search = whole_games.mcts_search(GAME, 8)
    advance = jax.jit(lambda batch, key: whole_games.advance(PlaySetup(GAME, search, settings, 1.0), batch, key, 1000))
    return jax.device_get(advance(batch, jax.random.key(1)).records)


@pytest.fixture(scope="module")
def arrays():
    return shard_arrays(GAME, played(), ORIGIN)


@pytest.fixture(scope="module")
def replay():
    return make_play_moves(GAME)


def test_a_shard_that_was_played_passes(arrays, replay):
    check_shard(GAME, arrays, "here")
    rounded = arrays["predicted"].copy()
    rounded[0] = 1.000005  # what rounding may do
    check_shard(GAME, arrays | {"predicted": rounded}, "here")
    assert rule_problem(replay, GAME, arrays) is None
    assert origin_of(arrays) == ORIGIN
    lengths = arrays["num_plies"] - arrays["num_random"]
    np.testing.assert_array_equal(np.bincount(arrays["game"], minlength=NUM_GAMES), lengths)
    assert len(np.unique(arrays["game_id"])) == NUM_GAMES


def test_games_that_are_cut_are_left_out_and_counted(arrays, replay):
    records = played(6)
    assert 0 < records.is_cut.sum() < NUM_GAMES
    rest = shard_arrays(GAME, records, ORIGIN)
    check_shard(GAME, rest, "here")
    assert rule_problem(replay, GAME, rest) is None
    assert num_cut(rest) == records.is_cut.sum()
    assert (num_played(rest), num_played(arrays), num_cut(arrays)) == (NUM_GAMES, NUM_GAMES, 0)
    for text in ("-1", "x", ""):
        with pytest.raises(CheckpointError, match="does not say where it comes from"):
            check_shard(GAME, rest | {"text_num_cut": np.array(text)}, "there")


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("moves", (2, 3)),
        ("policy", (2, 3)),
        ("root_values", (3,)),
        ("is_full", (3,)),
        ("outcome", (3,)),
        ("predicted", ()),  # nothing is learned from it
    ],
)
def test_the_number_of_a_game_is_that_of_all_that_is_learned_from(arrays, name, formats):
    """Format 2 keeps its numbers, which are those of moves and policies alone."""
    other = arrays[name].copy()
    other[-1] = 1 - other[-1]
    for version in (2, 3):
        ids, changed = game_ids(arrays, version), game_ids(arrays | {name: other}, version)
        assert (ids[:-1] == changed[:-1]).all()
        assert (ids[-1] != changed[-1]) == (version in formats)


def test_a_shard_of_format_2_passes_with_its_own_numbers(arrays):
    older = arrays | {"text_format": np.array("2"), "game_id": game_ids(arrays, 2)}
    check_shard(GAME, older, "here")
    with pytest.raises(CheckpointError, match="a game's number is not"):
        check_shard(GAME, arrays | {"text_format": np.array("2")}, "there")


def replaced(name, change):
    return lambda arrays: arrays | {name: change(arrays[name].copy())}


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda arrays: arrays | {"text_kind": np.array("match")}, "never learned from"),
        (lambda arrays: arrays | {"text_game_name": np.array("othello")}, "it is of 'othello'"),
        (lambda arrays: arrays | {"text_format": np.array("1")}, "it has format '1'"),
        (lambda arrays: arrays | {"text_seed": np.array("-1")}, "does not say where it comes from"),
        (lambda arrays: arrays | {"text_iteration": np.array("9" * 11)}, "does not say where it comes from"),
        (lambda arrays: arrays | {"num_plies": np.int16(3)}, "num_plies has 0 axes"),
        (lambda arrays: {n: a if a.ndim == 0 else a[:0] for n, a in arrays.items()}, "it has no games"),
        (lambda arrays: {n: a for n, a in arrays.items() if n != "policy"}, "it has no policy"),
        (replaced("policy", lambda a: a.astype(np.float64)), "policy is float64"),
        (replaced("packed_planes", lambda a: a[:, :-1]), r"planes is uint8 \(\d+, 2\) and should be uint8 \(\d+, 3\)"),
        (replaced("moves", lambda a: a[:, :-1]), "moves is int16"),
        (replaced("num_plies", put(0, 0)), "a game has no plies"),
        (replaced("game", lambda a: a[::-1].copy()), "positions do not belong to its games"),
        (replaced("game", put(0, -1)), "positions do not belong to its games"),  # which is the last game, to NumPy
        (replaced("moves", put((0, -1), -2)), "a move is below -1"),
        (
            lambda arrays: arrays | {"text_seed": np.array("\N{ARABIC-INDIC DIGIT THREE}")},
            "does not say where it comes",
        ),
        (lambda arrays: arrays | {"text_seed": np.array("")}, "does not say where it comes from"),
        (lambda arrays: arrays | {"text_player": np.array("")}, "does not say where it comes from"),
        (lambda arrays: arrays | {"text_player": np.array("p" * 201)}, "does not say where it comes from"),
        (lambda arrays: arrays | {"text_engine": np.array("e\n")}, "does not say where it comes from"),
        (lambda arrays: arrays | {"more": np.zeros(10**6)}, "it has 'more', which no shard has"),
        *(
            (replaced(name, put((0,) * (1 + (name != "predicted")), value)), f"{name} has {reason}")
            for name in ("root_values", "predicted", "outcome", "policy")
            for value, reason in ((np.nan, "values that are not finite"), (-np.inf, "values that are not finite"))
        ),
        *(
            (replaced(name, put((0,) * (1 + (name != "predicted")), value)), f"{name} has .*, and no value is beyond 1")
            for name in ("root_values", "predicted", "outcome")
            for value in (1e30, -1e30, 1.0001, -1.0001)
        ),
        (replaced("policy", put((0, 0), -1e30)), "a policy is no distribution"),
        (replaced("policy", put((0, 0), 1e30)), "a policy is no distribution"),
        (replaced("policy", lambda a: a * 2), "a policy is no distribution"),
        (replaced("policy", put(slice(None), 1.0 / 9.0)), "a policy is no distribution"),
        (replaced("outcome", put(0, 1.0)), "an outcome does not sum to 0"),
        (replaced("game_id", put(0, 0)), "a game's number is not"),
    ],
)
def test_files_that_are_no_shards(arrays, change, reason):
    with pytest.raises(CheckpointError, match=reason):
        check_shard(GAME, change(arrays), "there")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (replaced("outcome", lambda a: -a), "an outcome is not that of the moves"),
        (replaced("moves", lambda a: np.where(a == a[0, 0], a[0, 1], a)), "has a move that is not legal"),
        (replaced("moves", put((0, 0), 40)), "game 0 has a move that is not legal"),
        (replaced("moves", put((0, 8), 8)), "does not have as many moves as it says|not legal"),
        (replaced("packed_planes", lambda a: a ^ 128), "a position is not that of the moves"),
        (replaced("legal", lambda a: ~a), "legal of a position is not that of the moves"),
        (replaced("player", lambda a: 1 - a), "player of a position is not that of the moves"),
    ],
)
def test_claims_that_the_rules_do_not_confirm(arrays, replay, change, reason):
    changed = change(arrays)
    found = rule_problem(replay, GAME, changed)
    assert found is not None
    assert re.search(reason, found), found


@pytest.mark.parametrize(("num_slots", "num_games", "sizes"), [full(5, 13, [5, 3]), (8, 9, [8, 4, 2]), full(6, 3, [3])])
def test_slots_without_a_game_are_left_out_and_pieces_change_nothing(
    num_slots, num_games, sizes, tmp_path, monkeypatch
):
    """Of four slots or more, half play the rest; in pieces of one search, or all at once, the shard is the same."""
    monkeypatch.setattr(game_programs, "HALVED_SLOTS", 4)
    pipeline, seen, found = small_pipeline(tmp_path, num_envs=num_slots), [], []
    advance = pipeline.games.advance
    pipeline.games.advance = lambda params, boost, batch, *rest: (
        seen.append(len(batch.ply)) or advance(params, boost, batch, *rest)
    )
    for length in (1, 1000):
        monkeypatch.setattr(selfplay.ChunkSizer, "next_length", lambda self, most, length=length: length)
        progress = Progress(SILENT, pipeline.stop, "selfplay", "games", num_games)
        records = selfplay.play_shard(pipeline, 1, 0, num_games, pipeline.first_params, progress)
        found.append(shard_arrays(pipeline.game, records, ORIGIN))
        assert list(dict.fromkeys(seen)) == sizes
        seen.clear()
    assert array_hash(found[0]) == array_hash(found[1])
    check_shard(pipeline.game, found[0], "here")
    assert rule_problem(pipeline.play_moves, pipeline.game, found[0]) is None


def test_planes_are_packed_in_their_order_and_come_back():
    planes = np.random.default_rng(0).random((5, 9, 2)) < 0.5
    packed = pack_planes(planes)
    assert (packed.shape, packed.dtype) == ((5, packed_size((9, 2))), np.uint8)
    bits = [packed[3, i // 8] >> (7 - i % 8) & 1 for i in range(18)]
    assert bits == planes[3].reshape(-1).astype(int).tolist()
    np.testing.assert_array_equal(unpack_planes(packed, (9, 2)), planes)


def test_a_game_that_is_cut_short_is_seen(arrays, replay):
    moves, number = arrays["moves"].copy(), arrays["num_plies"].copy()
    number[0] -= 1
    moves[0, number[0]] = -1
    keep = np.ones(len(arrays["game"]), bool)
    keep[np.flatnonzero(arrays["game"] == 0)[-1]] = False
    cut = arrays | {"moves": moves, "num_plies": number}
    cut |= {name: arrays[name][keep] for name in ("game", "packed_planes", "legal", "policy", "root_values")}
    cut |= {name: arrays[name][keep] for name in ("predicted", "player", "is_full")}
    assert rule_problem(replay, GAME, cut) == "game 0 is not played to its end"
