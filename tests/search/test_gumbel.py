"""Gumbel search against exhaustive max^n, which is minimax for two players: tic-tac-toe, and small games with three
players, double moves and masks."""

import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import small_games
from support.marks import full
from support.small_games import maxn_actions, maxn_value, regrets, three_players, two_players

from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.errors import ConfigError
from stoix_like.search import game_tree, gumbel
from stoix_like.search.gumbel import GameModel, GumbelConfig

GAME = make_tic_tac_toe()
#: Without noise, so that nothing depends on a key. The small scale makes inner nodes of a null network try everything:
#: with mctx's 0.1 an action that is still unvisited after a loss among its siblings may never get a turn.
EXACT = GumbelConfig(num_simulations=250, gumbel_scale=0.0, value_scale=0.03)
FINISHED = ["000.11...", "010011100"]  # won by the player who is not to move; full


def null_network(num_players):
    """Uniform over legal actions, and every value 0. It prefers illegal ones, which must not matter."""

    def evaluate(params, observation):
        mask = observation.action_mask
        return jnp.where(mask, 0.0, 1e6), jnp.zeros((mask.shape[0], num_players))

    return evaluate


def compiled(game, config, evaluate=None):
    model = GameModel(game, evaluate or null_network(game.num_players))
    return jax.jit(lambda states, key: gumbel.search(model, (), key, states, config))


def searched(game_of, search):
    table, _, roots = game_of()
    output = jax.device_get(search(jnp.asarray(roots, jnp.int32), jax.random.key(0)))
    return table, roots, output


def boards_sampled(count, most_free=9):
    known = [board for board in small_games.tic_tac_toe_positions() if board.count(".") <= most_free]
    return random.Random(0).sample(known, count)


@functools.cache
def _tic_tac_toe_search():
    def search(states, key, gumbel_scale):
        config = EXACT._replace(num_simulations=64, gumbel_scale=gumbel_scale)
        return gumbel.search_lines(GameModel(GAME, null_network(2)), (), key, states, config, 5)

    return jax.jit(search)


def search_tic_tac_toe(boards, seed=0, gumbel_scale=0.0):
    """(output, lines) for 32 boards."""
    assert len(boards) == 32
    states = small_games.tic_tac_toe_states(boards)
    return jax.device_get(_tic_tac_toe_search()(states, jax.random.key(seed), gumbel_scale))


def test_the_oracles_know_the_theory():
    table, _, roots = two_players()
    assert [maxn_value(table, root)[0] for root in roots[:5]] == [1, 1, 1, 1, -1]  # who finds 4 k in Nim loses
    assert maxn_actions(table, roots[0]) == {0: -1, 1: 1, 2: -1}
    table, _, roots = three_players()
    assert maxn_actions(table, roots[0]) == pytest.approx({0: 0.6, 1: 0.2})
    assert len(small_games.tic_tac_toe_positions()) == 5478 - 958  # positions and those that are over (Schaefer 2002)
    assert small_games.tic_tac_toe_value("." * 9) == 0


@pytest.mark.parametrize(("game_of", "most", "mean"), [(two_players, 0.5, 0.15), (three_players, 1.0, 0.25)])
def test_actions_are_the_best_of_exhaustive_max_n(game_of, most, mean):
    """Values are off by the softness of the policy at inner nodes, which the scale sets; most where a mover's best
    outcomes are nearly equal, and those of the others are not."""
    table, roots, output = searched(game_of, compiled(game_of()[1], EXACT))
    np.testing.assert_array_equal(regrets(table, roots, output.action, maxn_actions), 0.0)
    assert table.legal[roots, output.action].all()
    by_player = np.array([maxn_value(table, root) for root in roots])
    seats = (table.player[roots][:, None] + np.arange(by_player.shape[1])) % by_player.shape[1]
    error = np.abs(output.values - np.take_along_axis(by_player, seats, axis=1))[:, 0]
    assert error.max() < most
    assert error.mean() < mean
    np.testing.assert_allclose(output.values.sum(axis=1), 0.0, atol=1e-5)


@pytest.mark.parametrize("game_of", [two_players, full(three_players)])
def test_a_planted_wrong_mover_is_seen(game_of, monkeypatch):
    right = game_tree.mover_of
    monkeypatch.setattr(game_tree, "mover_of", lambda tree, node: (right(tree, node) + 1) % tree.sums.shape[2])
    table, roots, output = searched(game_of, compiled(game_of()[1], EXACT))
    assert np.sum(regrets(table, roots, output.action, maxn_actions) > 0) >= 3


def test_endings_of_tic_tac_toe_are_played_as_by_minimax():
    boards = boards_sampled(32, most_free=5)
    output, _ = search_tic_tac_toe(boards)
    for row, board in enumerate(boards):
        values = small_games.tic_tac_toe_actions(board)
        assert values[int(output.action[row])] == max(values.values()), board
        legal = np.array([cell == "." for cell in board])
        assert (output.action_weights[row][~legal] == 0).all()
        assert (output.visits[row][~legal] == 0).all()
    np.testing.assert_allclose(output.action_weights.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(output.visits.sum(axis=1), 64)


def test_a_root_that_is_over_is_harmless_and_rows_are_independent():
    boards = boards_sampled(32)
    assert small_games.tic_tac_toe_winner(FINISHED[0]) == 0
    alone = search_tic_tac_toe(boards, gumbel_scale=1.0)
    beside = search_tic_tac_toe([*(FINISHED * 8), *boards[15:0:-1][:12], *boards[28:]], gumbel_scale=1.0)
    for field, theirs in zip([*beside[0], beside[1]], [*alone[0], alone[1]], strict=True):
        assert np.isfinite(field).all()
        np.testing.assert_array_equal(field[28:], theirs[28:])
    output, lines = beside
    for field in (output.values, output.visits, output.q_values, output.depth, lines + 1):
        assert not field[:16].any()
    np.testing.assert_allclose(output.action_weights.sum(axis=1), 1.0, rtol=1e-5)


def test_noise_at_the_root_comes_from_the_key():
    boards = ["." * 9] * 32
    first, second, again, exact, exact_too = (
        search_tic_tac_toe(boards, seed, scale)[0].action
        for seed, scale in [(1, 1.0), (2, 1.0), (1, 1.0), (1, 0.0), (2, 0.0)]
    )
    assert len(set(first.tolist())) >= 5
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(exact, exact_too)
    assert len(set(exact.tolist())) == 1


def test_the_line_is_that_of_a_forced_win():
    """0 threatens 1 and 3 at once by playing 0: whatever is answered, it has won after three moves."""
    output, lines = search_tic_tac_toe([*["..0.1.0.1", "00.11....", FINISHED[0], "01001.10."] * 8])
    lines = lines.tolist()
    assert lines[0] in ([0, 1, 3, -1, -1], [0, 3, 1, -1, -1])
    assert lines[1] == [2, -1, -1, -1, -1]
    assert lines[2] == [-1] * 5
    assert sorted(lines[3]) == [-1, -1, -1, 5, 8]
    assert output.depth.tolist()[2:4] == [0, 2]
    assert output.q_values[1, 2] == 1.0


def test_too_few_simulations_and_actions_are_named():
    states = small_games.tic_tac_toe_states(["." * 9])
    model = GameModel(GAME, null_network(2))
    with pytest.raises(ConfigError, match="num_simulations is 0"):
        gumbel.search(model, (), jax.random.key(0), states, GumbelConfig(num_simulations=0))
    with pytest.raises(ConfigError, match="max_num_considered_actions is 0"):
        gumbel.search(model, (), jax.random.key(0), states, GumbelConfig(max_num_considered_actions=0))
    with pytest.raises(ConfigError, match="max_depth is 0"):
        gumbel.search(model, (), jax.random.key(0), states, GumbelConfig(max_depth=0))


def test_the_value_is_that_of_the_improved_policy():
    """By hand. Mixed value of the first row: (0.1 + 3 * 0.4) / 4 = 0.325; of the second: priors 1/4 and 3/4 of what was
    visited, so (0.2 + 4 * (0.25 * 0.8 - 0.75 * 0.4)) / 5 = -0.04."""
    weights = jnp.array([[0.5, 0.3, 0.2], [0.5, 0.1, 0.4]])
    q_values = jnp.array([[0.4, 0.0, 0.0], [0.8, -0.4, 0.0]])
    visits = jnp.array([[3.0, 0.0, 0.0], [1.0, 3.0, 0.0]])
    logits = jnp.log(jnp.array([[0.2, 0.3, 0.5], [0.1, 0.3, 0.6]]))
    both = lambda x: jnp.stack([x, -x], axis=-1)  # the first player's, the second's
    value = gumbel._improved_values(weights, visits, both(q_values), logits, both(jnp.array([0.1, 0.2])))
    expected = np.array([0.5 * 0.4 + 0.5 * 0.325, 0.5 * 0.8 - 0.1 * 0.4 - 0.4 * 0.04])
    np.testing.assert_allclose(value, np.stack([expected, -expected], axis=-1), rtol=1e-5)
