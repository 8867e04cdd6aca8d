"""Contests: every order of seats against a loop in Python, pieces, and a summary by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.piles import make_piles

from stoix_like.evaluation.contests import seatings
from stoix_like.evaluation.contests.seatings import SeatedResults

KEY = jax.random.key(0)


def constant(params, states, key):
    """Takes as many points as its parameters say."""
    return jnp.full(states.ply.shape, params, jnp.int32)


def at_random(params, states, key):
    return jax.random.randint(key, states.ply.shape, 0, 3)


def played(game, players, params, moves, pieces=(1000,)):
    seats = seatings.orders(len(players), game.num_players)
    playing = seatings.begin(game, np.asarray(moves), seats)
    run = jax.jit(functools.partial(seatings.advance, game, players))
    for steps in pieces:
        playing = run(params, playing, KEY, steps)
    return jax.device_get(seatings.results(game, playing, len(seats)))


def outcome_by_hand(game, takes, moves):
    state = game.init()
    for move in moves:
        state = game.step(state, move)
    while not game.is_over(state):
        state = game.step(state, takes[int(game.player(state))])
    return np.asarray(game.outcome(state)), int(state.ply)


@pytest.mark.parametrize("num_players", [2, 3])
def test_every_order_of_seats_is_played_as_by_hand(num_players):
    game = make_piles(num_players, [0, 1, 1, 0, 2, 2][: 4 + 2 * (num_players > 2)])
    takes, moves = (2, 0, 1), [[0], [2]]
    found = played(game, [constant] * 3, takes, moves)
    assert sorted(map(tuple, found.seats.tolist())) == sorted(
        {(a, b, c)[:num_players] for a in range(3) for b in range(3) for c in range(3) if len({a, b, c}) == 3}
    )
    for index, row in enumerate(moves):
        for order, seats in enumerate(found.seats):
            outcome, plies = outcome_by_hand(game, [takes[player] for player in seats], row)
            np.testing.assert_array_equal(found.outcome[index, order], outcome)
            assert found.plies[index, order] == plies
    assert not found.is_unfinished.any()


def test_a_contest_in_pieces_is_the_contest_at_once_and_one_that_is_cut_says_so():
    game = make_piles(3, [0, 1, 2, 0, 1, 2])
    at_once = played(game, [at_random] * 3, (None,) * 3, [[0], [1]])
    in_pieces = played(game, [at_random] * 3, (None,) * 3, [[0], [1]], pieces=(2, 1, 100))
    jax.tree.map(np.testing.assert_array_equal, at_once, in_pieces)
    assert len(np.unique(at_once.outcome[..., 0])) > 1
    cut = played(game, [at_random] * 3, (None,) * 3, [[0], [1]], pieces=(2,))
    assert cut.is_unfinished.all()
    assert (cut.outcome == 0.0).all()


def test_a_summary_is_as_computed_by_hand():
    """Two openings, two players, two orders: `b` wins three of the four games and draws one."""
    outcome = np.array([[[-1.0, 1.0], [1.0, -1.0]], [[0.0, 0.0], [1.0, -1.0]]])
    seats = np.array([[0, 1], [1, 0]])
    found = seatings.summarize(SeatedResults(outcome, seats, np.full((2, 2), 5), np.zeros((2, 2), bool)), ["a", "b"])
    best, other = found.standings
    assert (best.name, best.games, best.wins, best.losses) == ("b", 4, 3, 0)
    assert best.score.point == 0.875
    assert best.seat_scores == (1.0, 0.75)
    assert (other.name, other.wins, other.losses, other.seat_scores) == ("a", 0, 3, (0.25, 0.0))
    assert [row.name for row in found.ratings.rows] == ["b", "a"]
    assert found.ratings.rows[0].rating == pytest.approx(-found.ratings.rows[1].rating)
    assert (found.mean_plies, found.num_unfinished) == (5.0, 0)


def test_a_player_who_is_left_out_of_an_order_has_no_score_there():
    """Three players of a game of two: each plays two of the three pairs, from both seats."""
    game = make_piles(2, [0, 1, 0, 1, 0, 1])
    found = seatings.summarize(played(game, [constant] * 3, (0, 1, 2), [[1]]), ["zero", "one", "two"])
    assert [one.name for one in found.standings] == ["two", "one", "zero"]
    assert [one.games for one in found.standings] == [4, 4, 4]
