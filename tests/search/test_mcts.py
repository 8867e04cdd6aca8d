"""Plain tree search against exhaustive max^n and minimax. That a wrong mover is seen, and searches side by side:
test_gumbel.py and test_gumbel_by_hand.py, on the same trees."""

import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import small_games
from support.small_games import maxn_actions, maxn_value, regrets, three_players, two_players

from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.errors import ConfigError
from stoix_like.search import mcts

GAME = make_tic_tac_toe()
FINISHED = ["000.11...", "010011100"]  # won by the player who is not to move; full


def searched(game_of, num_simulations, seed=0):
    table, game, roots = game_of()
    search = jax.jit(lambda states, key: mcts.search(game, key, states, num_simulations))
    return table, roots, jax.device_get(search(jnp.asarray(roots, jnp.int32), jax.random.key(seed)))


@functools.cache
def _tic_tac_toe_search():
    return jax.jit(lambda states, key: mcts.search(GAME, key, states, 512))


def search_tic_tac_toe(boards, seed=0):
    assert len(boards) == 64
    return jax.device_get(_tic_tac_toe_search()(small_games.tic_tac_toe_states(boards), jax.random.key(seed)))


def boards_sampled():
    return random.Random(0).sample(small_games.tic_tac_toe_positions(), 64)


@pytest.mark.parametrize(("game_of", "tolerance"), [(two_players, 0.15), (three_players, 0.6)])
def test_actions_and_values_are_those_of_exhaustive_max_n(game_of, tolerance):
    """Values are off most where a mover's best outcomes are nearly equal, and those of the others are not."""
    table, roots, output = searched(game_of, 600)
    np.testing.assert_array_equal(regrets(table, roots, output.action, maxn_actions), 0.0)
    errors = np.abs(output.values - np.array([maxn_value(table, root) for root in roots]))
    assert errors.max() < tolerance
    assert errors.mean() < 0.1
    np.testing.assert_allclose(output.values.sum(axis=1), 0.0, atol=1e-5)
    assert (output.visits[~table.legal[roots]] == 0).all()
    np.testing.assert_array_equal(output.visits.sum(axis=1), 600)


def puct_visits(outcomes, first, num_simulations):
    """Visits of actions that end the game with these outcomes, by the formula; `first` is tried first."""
    visits, sums = np.zeros(2), np.zeros(2)
    for simulation in range(num_simulations):
        means = sums / np.maximum(visits, 1)
        scores = means + 1.25 * 0.5 * np.sqrt(visits.sum()) / (1 + visits)
        action = first if simulation == 0 else int(np.argmax(scores))
        visits[action] += 1
        sums[action] += outcomes[action]
    return visits.astype(int).tolist()


def test_visits_are_those_of_the_formula():
    """Two ends with outcomes 0.31 and 0.07: by hand 1.25 * 0.5 * sqrt(N) / (1 + n), whose scores never tie."""
    tables = small_games.Tables(2, 3)
    root = tables.node(1, None, tables.end(-0.31, 0.31), tables.end(-0.07, 0.07))
    game = small_games.make_table_game(tables.build())
    output = jax.jit(lambda states, key: mcts.search(game, key, states, 25))(jnp.full((32,), root), jax.random.key(0))
    found = {tuple(row) for row in output.visits.tolist()}
    assert found == {(0, *puct_visits([0.31, 0.07], first, 25)) for first in (0, 1)}
    np.testing.assert_array_equal(output.action, 1)
    visits = np.asarray(output.visits)
    expected = (visits[:, 1] * 0.31 + visits[:, 2] * 0.07) / 25
    np.testing.assert_allclose(output.values, np.stack([-expected, expected], axis=1), rtol=1e-5)


def test_tic_tac_toe_is_played_as_by_minimax():
    boards = boards_sampled()
    output = search_tic_tac_toe(boards)
    for row, board in enumerate(boards):
        values = small_games.tic_tac_toe_actions(board)
        assert values[int(output.action[row])] == max(values.values()), board
        assert output.visits[row].sum() == 512


def test_a_root_that_is_over_is_harmless_and_rows_are_independent():
    boards = boards_sampled()
    alone = search_tic_tac_toe(boards)
    states = [FINISHED[0]] * 20 + [FINISHED[1]] * 20 + boards[60:40:-1] + boards[60:]
    beside = search_tic_tac_toe(states)
    for field, theirs in zip(beside, alone, strict=True):
        assert np.isfinite(field).all()
        np.testing.assert_array_equal(field[60:], theirs[60:])
    assert not beside.visits[:40].any()
    np.testing.assert_array_equal(beside.values[:20], [[1.0, -1.0]] * 20)
    np.testing.assert_array_equal(beside.values[20:40], 0.0)


def test_choices_are_even_among_those_allowed():
    """8192 consecutive seeds: a count of 1638.4 is off by 180 with probability below 1e-6."""
    mask = jnp.array([True, False, True, True, False, False, True, True, False])
    seeds = jnp.arange(8192, dtype=jnp.uint32)
    counts = np.bincount(mcts.choose(seeds, jnp.broadcast_to(mask, (8192, 9))), minlength=9)
    assert (counts[~np.asarray(mask)] == 0).all()
    assert np.abs(counts[np.asarray(mask)] - 8192 / 5).max() < 180


def test_ties_fall_at_random_and_a_search_follows_its_key():
    boards = ["." * 9] * 64
    search = jax.jit(lambda key: mcts.search(GAME, key, small_games.tic_tac_toe_states(boards), 1).action)
    first, second = np.asarray(search(jax.random.key(1))), np.asarray(search(jax.random.key(2)))
    assert set(first.tolist()) == set(range(9))
    assert (first != second).any()
    np.testing.assert_array_equal(first, search(jax.random.key(1)))


def test_too_few_simulations_are_named():
    with pytest.raises(ConfigError, match="mcts: 0 simulations"):
        mcts.search(GAME, jax.random.key(0), small_games.tic_tac_toe_states(["." * 9]), 0)
