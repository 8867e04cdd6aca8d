"""Whole games in slots, against the rules played one move at a time: every game is finished, and every position is its
own.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full
from support.piles import make_piles
from support.self_play import SETTINGS

from stoix_like.algorithms.alphazero import PlaySetup, whole_games
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.search.gumbel import GumbelOutput

GAME = make_tic_tac_toe()
OPENED = SETTINGS._replace(random_plies=3)
NUM_GAMES = 7


def scripted_search(game, _key, states):
    """By the observation alone, so that a game does not depend on its slot. The value tells which position it is."""
    observation = jax.vmap(game.observe)(states)
    legal = observation.action_mask
    view = observation.agent_view.reshape(len(legal), -1)  # [B, features]
    number = jnp.sum(view * (jnp.arange(view.shape[1]) + 1)[None], axis=1)
    rank = number % jnp.sum(legal, axis=1)
    action = jnp.argmax(jnp.cumsum(legal, axis=1) > rank[:, None], axis=1)
    policy = legal / jnp.sum(legal, axis=1, keepdims=True)
    values = jnp.tile((number / 128.0)[:, None], (1, game.num_players))
    nothing = jnp.zeros_like(policy)
    found = GumbelOutput(action, policy, values, nothing.astype(jnp.int32), nothing, nothing, values / 2.0, number)
    return found, jnp.bool_(True)


@functools.cache
def played(num_slots, seed=0, most_steps=1000, settings=OPENED, game=GAME, num_games=NUM_GAMES):
    search = functools.partial(scripted_search, game)
    batch = jax.jit(functools.partial(whole_games.begin, game, settings, num_games, num_slots))(jax.random.key(seed))
    advance = jax.jit(functools.partial(whole_games.advance, PlaySetup(game, search, settings, 1.0)))
    calls = 0
    while whole_games.num_playing(batch) > 0:
        batch, calls = advance(batch, jax.random.key(seed + 1), most_steps), calls + 1
    return jax.device_get(batch), calls


def check_record(game, records, index):
    """Plays the moves of one record again, and compares whatever was noted on the way."""
    state, moves = game.init(), records.moves[index]
    for ply in range(records.num_plies[index]):
        assert not game.is_over(state)
        observation = game.observe(state)
        assert observation.action_mask[moves[ply]]
        if ply >= records.num_random[index]:
            batched = jax.tree.map(lambda x: jnp.asarray(x)[None], state)
            found, _ = scripted_search(game, None, batched)
            assert moves[ply] == found.action[0]
            recorded = jax.tree.map(lambda x, ply=ply: x[index, ply], records.observation)
            jax.tree.map(np.testing.assert_array_equal, observation, recorded)
            np.testing.assert_array_equal(records.policy[index, ply], found.action_weights[0])
            np.testing.assert_array_equal(records.root_values[index, ply], found.values[0])
            assert records.predicted[index, ply] == found.network_values[0, 0]
            assert records.player[index, ply] == game.player(state)
            assert records.is_full[index, ply]
        state = game.step(state, int(moves[ply]))
    assert game.is_over(state)
    assert (moves[records.num_plies[index] :] == -1).all()
    np.testing.assert_array_equal(records.outcome[index], game.outcome(state))


@pytest.mark.full
@pytest.mark.parametrize("most_steps", [1, full(1000)])
def test_half_of_the_slots_play_the_rest_as_all_would(most_steps):
    """The scripted search needs no key, so the games are the same in whatever slots they are played."""
    settings = OPENED
    search = functools.partial(scripted_search, GAME)
    batch = jax.jit(functools.partial(whole_games.begin, GAME, settings, NUM_GAMES, 4))(jax.random.key(0))
    advance = jax.jit(functools.partial(whole_games.advance, PlaySetup(GAME, search, settings, 1.0)), static_argnums=3)
    sizes = [4]
    while (playing := int(whole_games.num_playing(batch))) > 0:
        batch = advance(batch, jax.random.key(1), most_steps, 2 if sizes[-1] == 4 else 0)
        playing = int(whole_games.num_playing(batch))
        if sizes[-1] == 4 and playing <= 2:
            batch = whole_games.with_fewer_slots(batch, 2)
            assert whole_games.num_playing(batch) == playing
            sizes.append(2)
    assert sizes == [4, 2]
    whole, _ = played(4)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(batch.records), whole.records)


def test_every_game_is_played_to_its_end_and_recorded_as_it_was():
    batch, _ = played(3)
    assert whole_games.num_finished(batch) == NUM_GAMES
    for index in range(NUM_GAMES):
        check_record(GAME, batch.records, index)
    assert len({tuple(row) for row in batch.records.moves.tolist()}) > 3
    assert set(batch.records.num_random.tolist()) == {0, 1, 2, 3}


def test_a_game_that_is_cut_is_as_long_as_it_may_be_and_has_no_outcome():
    """It is replaced by the next, and the others are what they are without."""
    cut = played(3, settings=OPENED._replace(max_game_plies=7))[0].records
    whole = played(3)[0].records
    assert cut.moves.shape == (NUM_GAMES, 7)
    np.testing.assert_array_equal(cut.is_cut, whole.num_plies > 7)
    assert 0 < cut.is_cut.sum() < NUM_GAMES
    np.testing.assert_array_equal(cut.num_plies, np.minimum(whole.num_plies, 7))
    np.testing.assert_array_equal(cut.moves, whole.moves[:, :7])
    np.testing.assert_array_equal(cut.outcome[cut.is_cut], 0.0)
    for index in np.flatnonzero(~cut.is_cut):
        check_record(GAME, cut, index)


@pytest.mark.parametrize("num_slots", [full(1), NUM_GAMES])
def test_games_do_not_depend_on_the_number_of_slots_nor_on_pieces(num_slots):
    wanted, _ = played(3)
    found, _ = played(num_slots)
    jax.tree.map(np.testing.assert_array_equal, found.records, wanted.records)
    in_pieces, calls = played(3, most_steps=2)
    assert calls > 3
    jax.tree.map(np.testing.assert_array_equal, in_pieces, wanted)


def test_slots_are_busy_until_no_game_is_left():
    """Three slots, each taking the next game when its own ends: as many steps as the busiest slot has plies."""
    batch, _ = played(3)
    lengths = (batch.records.num_plies - batch.records.num_random).tolist()
    slots = [0, 0, 0]
    for length in lengths:
        slots[slots.index(min(slots))] += length
    assert int(batch.step) == max(slots)


@pytest.mark.full
def test_a_player_who_moves_twice_and_three_players():
    settings = SETTINGS._replace(random_plies=1)
    for game in (make_piles(2, [0, 1, 1, 0, 0, 0]), make_piles(3, [0, 1, 2, 2, 1, 0])):
        batch, _ = played.__wrapped__(2, settings=settings, game=game, num_games=4)
        for index in range(4):
            check_record(game, batch.records, index)


def test_tree_search_gives_shares_of_visits_and_values_of_the_mover_first():
    search = whole_games.mcts_search(GAME, 64)
    state = GAME.init()
    for move in (0, 3, 1, 4):  # the first player wins with 2, and the second one threatens 5
        state = GAME.step(state, move)
    other = GAME.step(state, 8)  # the second player wins with 5
    states = jax.tree.map(lambda *x: jnp.stack(x), state, other)
    found, is_full = jax.jit(search)(jax.random.key(0), states)
    assert is_full
    assert found.action.tolist() == [2, 5]
    np.testing.assert_allclose(found.action_weights.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(found.action_weights[:, [0, 1, 3, 4]], 0.0)
    assert (found.values[:, 0] > 0.3).all()  # both movers win
    np.testing.assert_allclose(found.values.sum(axis=1), 0.0, atol=1e-6)
