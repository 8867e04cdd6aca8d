"""Matches: tic-tac-toe against a loop in Python, a game in which one moves twice, a game of three players."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.piles import make_piles

from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.evaluation.contests import match_records, matches
from stoix_like.evaluation.contests.openings import openings

GAME = make_tic_tac_toe()


def constant(params, states, key):
    """Takes as many points as its parameters say."""
    return jnp.full(states.ply.shape, params, jnp.int32)


def first_legal(params, states, key):
    legal = states.cells < 0
    return jnp.argmax(legal, axis=1).astype(jnp.int32)


def by_table(params, states, key):
    """The legal cell that the parameters [9] like most."""
    return jnp.argmax(jnp.where(states.cells < 0, params, -jnp.inf), axis=1).astype(jnp.int32)


def at_random(params, states, key):
    logits = jnp.where(states.cells < 0, 0.0, -jnp.inf)
    return jax.random.categorical(key, logits).astype(jnp.int32)


def played_by_hand(game, of_a, of_b, moves, seat):
    """(outcome, actions) of one game, one state at a time."""
    state = game.init()
    for move in moves:
        state = game.step(state, move)
    actions = [int(move) for move in moves]
    while not game.is_over(state):
        act = of_a if int(game.player(state)) == seat else of_b
        actions.append(int(act(jax.tree.map(lambda x: x[None], state))[0]))
        state = game.step(state, actions[-1])
    return np.asarray(game.outcome(state)), actions


def check_against_hand(game, player, params_a, params_b, moves):
    run = jax.jit(functools.partial(matches.play_pairs, game, player, player))
    found = run(params_a, params_b, jnp.asarray(moves), jax.random.key(0))
    of_a, of_b = (lambda states, p=p: player(p, states, None) for p in (params_a, params_b))
    for index, row in enumerate(moves):
        for seat in range(game.num_players):
            outcome, actions = played_by_hand(game, of_a, of_b, row, seat)
            np.testing.assert_array_equal(found.outcome[index, seat], outcome)
            assert found.score[index, seat] == (outcome[seat] + 1.0) / 2.0
            assert found.plies[index, seat] == len(actions)
            rest = [-1] * (game.max_plies - len(actions))
            assert found.moves[index, seat].tolist() == actions + rest
    assert not found.is_unfinished.any()
    return found


def test_tic_tac_toe_is_played_from_both_seats_as_by_hand():
    params_a, params_b = jnp.array([2.0, 1, 2, 1, 3, 1, 2, 1, 2]), jnp.arange(9.0)
    for plies in (2, 3):  # after three plies the second player is to move
        found = check_against_hand(GAME, by_table, params_a, params_b, openings(GAME, plies, 6).moves)
        np.testing.assert_array_equal(found.first, plies % 2)
        assert len(set(np.asarray(found.score).ravel().tolist())) > 1


def test_a_player_who_moves_twice_is_waited_for_and_of_three_each_has_every_seat_once():
    game = make_piles(2, [0, 1, 1, 0, 0, 0])
    found = check_against_hand(game, constant, jnp.int32(2), jnp.int32(1), np.array([[0], [1], [2]]))
    np.testing.assert_array_equal(found.first, 1)
    np.testing.assert_array_equal(found.score[0], [1.0, 1.0])
    game = make_piles(3, [0, 1, 2, 2, 1, 0])
    found = check_against_hand(game, constant, jnp.int32(2), jnp.int32(1), np.array([[0, 1], [2, 2]]))
    assert found.score.shape == (2, 3)
    np.testing.assert_array_equal(found.outcome.sum(axis=-1), 0.0)


def test_a_match_in_pieces_is_the_match_at_once():
    """Nobody waits: A and B act on different halves, so there are no more steps than plies where players alternate."""
    moves, key = jnp.asarray(openings(GAME, 1).moves), jax.random.key(7)
    whole = jax.jit(functools.partial(matches.play_pairs, GAME, at_random, first_legal))((), (), moves, key)
    advance = jax.jit(lambda playing: matches.advance(GAME, (at_random, first_legal), ((), ()), playing, key, 3))
    playing, num_pieces = jax.jit(lambda: matches.begin(GAME, moves))(), 0
    while not matches.is_finished(GAME, playing):
        playing, num_pieces = advance(playing), num_pieces + 1
    assert num_pieces > 1
    assert int(playing.step) == int(whole.plies.max()) - 1
    pieces = jax.jit(lambda playing: matches.results(GAME, playing))(playing)
    jax.tree.map(np.testing.assert_array_equal, whole, pieces)


def test_games_that_are_cut_short_are_marked_and_count_as_draws():
    moves = jnp.asarray(openings(GAME, 2).moves)
    run = jax.jit(functools.partial(matches.play_pairs, GAME, first_legal, first_legal, most_steps=1))
    found = run((), (), moves, jax.random.key(0))
    assert found.is_unfinished.all()
    np.testing.assert_array_equal(found.score, 0.5)
    np.testing.assert_array_equal(found.plies, 3)


def results_of(scores, first=0):
    """Results of two players with scores [M, 2] of A by its seat."""
    scores = np.asarray(scores, np.float32)
    outcome = np.zeros((*scores.shape, 2), np.float32)
    for seat in range(2):
        outcome[:, seat, seat] = 2 * scores[:, seat] - 1
        outcome[:, seat, 1 - seat] = 1 - 2 * scores[:, seat]
    firsts = np.full(len(scores), first, np.int32)
    moves = np.full((*scores.shape, 9), -1)
    return matches.MatchResults(scores, outcome, np.full(scores.shape, 9), firsts, np.zeros(scores.shape, bool), moves)


def test_a_summary_is_as_computed_by_hand():
    """Four pairs: 2, 1, 1 and 1/2 points. The first seat always wins the second and third opening."""
    found = matches.summarize(results_of([[1, 1], [1, 0], [1, 0], [0.5, 0]]))
    assert (found.num_groups, found.num_games) == (4, 8)
    assert (found.wins, found.draws, found.losses) == (4, 1, 3)
    assert found.group_counts == (0, 1, 2, 0, 1)
    groups = [1.0, 0.5, 0.5, 0.25]
    assert found.score.point == 4.5 / 8
    assert found.standard_error == pytest.approx(np.std(groups, ddof=1) / 2)
    assert found.seat_scores == (3.5 / 4, 1 / 4)
    # with A first: 1, 1, 1, 0.5; with B first, B makes 0, 1, 1, 1
    assert found.first_score == 6.5 / 8
    assert matches.summarize(results_of([[1, 1], [1, 0], [1, 0], [0.5, 0]], first=1)).first_score == 1.5 / 8
    assert found.elo.point == pytest.approx(400 * np.log10(4.5 / 3.5))
    variance = np.var([1, 1, 1, 0, 1, 0, 0.5, 0], ddof=1)
    assert found.group_variance_share == pytest.approx(np.var(groups, ddof=1) / (variance / 2))
    assert found.mean_plies == 9


def test_openings_that_decide_leave_no_variance_between_pairs_and_yet_a_width():
    """Ten pairs of one win and one loss each: games would say +- 0.23, pairs say next to nothing varies."""
    found = matches.summarize(results_of([[1, 0]] * 10))
    assert found.group_variance_share == 0.0
    assert found.score.low < 0.5 < found.score.high
    assert found.score.high - found.score.low < 0.2
    assert found.first_score == 1.0


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_a_match_without_a_loss_is_not_certain_and_one_pair_says_next_to_nothing(score):
    found = matches.summarize(results_of(np.full((50, 2), score)))
    assert found.score.point == score
    assert 0.0 < found.score.high - found.score.low < 0.1
    assert np.isfinite([found.elo.low if score else found.elo.high])
    assert found.elo.point == (np.inf if score else -np.inf)
    assert matches.elo_text(found).startswith("at least +" if score else "at most -")
    assert np.isnan(found.group_variance_share)
    found = matches.summarize(results_of([[1, 1]]))
    assert found.score.low < 0.1
    assert found.score.high == 1.0


def test_elo_is_written_with_its_interval():
    assert matches.elo_text(matches.summarize(results_of([[1, 0], [1, 1], [0, 0]] * 20))) == "+0 [-74, +74]"
    assert matches.elo_text(matches.summarize(results_of([[1, 0.5]]))) == "+191 [-inf, +inf]"
    assert matches.elo_text(matches.summarize(results_of([[1, 1]]))) == "+inf [-inf, +inf]"


def test_intervals_of_scores_hold_what_they_promise():
    """Pairs of a strong player with few draws, 20 a match: a t interval without the virtual pair holds the truth in 70
    to 85 of 100 matches, this one in 95 at least, less what 300 matches may miss at odds of 1 to 1000."""
    generator = np.random.default_rng(0)
    for score in (0.55, 0.9, 0.97):
        groups = (generator.random((300, 20, 2)) < score).mean(axis=2)
        found = [matches.group_interval(values, num_seats=2) for values in groups]
        assert np.mean([low <= score <= high for _, low, high in found]) > 0.95 - 3.1 * (0.95 * 0.05 / 300) ** 0.5


def test_the_share_of_variance_is_that_of_its_pairs_and_one_virtual_pair():
    """Pairs 1, 1/2, 1/2 and one spread over 0, 1/4 ... 1: mean 5/8; the variance by hand."""
    centre = 2.5 / 4
    squares = (1 - centre) ** 2 + 2 * (0.5 - centre) ** 2 + np.mean((np.arange(5) / 4 - centre) ** 2)
    found = match_records.variance_share(np.array([1.0, 0.5, 0.5]), 2)
    assert found == pytest.approx(squares / 3 * 2 / (centre * (1 - centre)))
    assert match_records.variance_share(np.full(1000, 0.5), 2) < 0.01  # openings decide everything
    assert match_records.variance_share(np.repeat([0.0, 1.0], 500), 2) == pytest.approx(
        2.0, rel=0.01
    )  # a coin for both


def test_every_step_draws_anew():
    """With one key for all steps a player would take the same number of points each time: 0, 3 or 6 in three moves."""
    game = make_piles(2, [0, 1, 0, 1, 0, 1])

    def draws(params, states, key):
        return jax.random.randint(key, states.ply.shape, 0, 3)

    playing = matches.begin(game, jnp.zeros((30, 0), jnp.int32))
    played = jax.jit(lambda p: matches.advance(game, (draws, draws), ((), ()), p, jax.random.key(0), 12))(playing)
    for part in played.parts:
        points = np.asarray(part.state.points)[np.asarray(part.state.ply) == 6]
        assert len(points) > 10
        assert np.any(points % 3 != 0)
