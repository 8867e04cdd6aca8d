"""Openings of tic-tac-toe counted by hand, against a brute force, and openings that are refused."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.boards.tic_tac_toe import LINES, make_tic_tac_toe
from stoix_like.errors import ConfigError
from stoix_like.evaluation.contests import openings as module
from stoix_like.evaluation.contests.openings import as_book, check_openings, openings, positions
from stoix_like.games import Symmetries

GAME = make_tic_tac_toe()


def board_after(moves):
    cells = [-1] * 9
    for ply, move in enumerate(moves):
        cells[move] = ply % 2
    return cells


def is_won(cells):
    return any(cells[a] == cells[b] == cells[c] >= 0 for a, b, c in LINES)


def canonical_board(cells):
    square = np.array(cells).reshape(3, 3)
    turned = [np.rot90(one, turns) for one in (square, square.T) for turns in range(4)]
    return min(tuple(one.reshape(-1).tolist()) for one in turned)


def canonical(moves):
    return canonical_board(board_after(moves))


def classes(plies):
    """All undecided positions up to symmetry, by placing stones in every order."""
    boards = {(-1,) * 9}
    for ply in range(plies):
        boards = {
            (*cells[:cell], ply % 2, *cells[cell + 1 :]) for cells in boards for cell in range(9) if cells[cell] < 0
        }
        boards = {cells for cells in boards if not is_won(cells)}
    return {canonical_board(cells) for cells in boards}


@pytest.mark.parametrize(("plies", "count"), [(0, 1), (1, 3), (2, 12), (3, 38)])
def test_the_first_plies_of_tic_tac_toe_have_known_numbers_of_positions(plies, count):
    book = openings(GAME, plies)
    assert book.moves.shape == (count, plies)
    assert book.moves.dtype == np.int32
    check_openings(GAME, book.moves)
    assert book.name == f"tic_tac_toe-{plies}-{count}"


@pytest.mark.parametrize("plies", [4, 5])
def test_a_book_holds_every_undecided_position_once(plies):
    book = openings(GAME, plies)
    found = [canonical(moves) for moves in book.moves]
    assert len(set(found)) == len(found)
    assert set(found) == classes(plies)


class MarkedState(NamedTuple):
    cells: jax.Array  # [5] int8
    player: jax.Array  # [] int32
    last: jax.Array  # [] int32, the cell after it may not be taken


def test_positions_that_differ_in_what_is_legal_are_two():
    """A made-up game on five cells, in which a cell may not be taken right after the one on its left: 0, 1, 2 is no
    game at all, and 0, 3, 2 and 2, 3, 0 show the same stones and leave other moves."""

    def step(state, action):
        return MarkedState(state.cells.at[action].set(state.player.astype(jnp.int8)), 1 - state.player, action)

    game = GAME._replace(
        name="marked",
        num_actions=5,
        max_plies=5,
        init=lambda: MarkedState(jnp.full((5,), -1, jnp.int8), jnp.int32(0), jnp.int32(-2)),
        step=step,
        legal_actions=lambda state: (state.cells < 0) & (jnp.arange(5) != state.last + 1),
        player=lambda state: state.player,
        is_over=lambda state: jnp.all(state.cells >= 0),
        cells=lambda state: state.cells,
        symmetries=Symmetries(np.arange(5)[None], np.arange(5)[None]),
    )
    expected = set()
    for moves in itertools.permutations(range(5), 3):
        if all(after != before + 1 for before, after in itertools.pairwise(moves)):
            legal = frozenset(set(range(5)) - {*moves, moves[-1] + 1})
            expected.add((frozenset(moves[::2]), moves[1], legal))
    assert len({state[:2] for state in expected}) < len(expected)
    assert len(openings(game, 3).moves) == len(expected)


def test_a_book_is_the_same_every_time_and_a_smaller_one_is_its_prefix():
    whole, again, part = openings(GAME, 4), openings(GAME, 4), openings(GAME, 4, 20)
    np.testing.assert_array_equal(whole.moves, again.moves)
    assert whole.hash == again.hash == "bd70eb37e3ad"  # frozen: another book would make old matches incomparable
    np.testing.assert_array_equal(part.moves, whole.moves[:20])
    assert len(set(part.moves[:, 0].tolist())) > 1  # sorted, the first twenty would all begin in the corner
    assert part.hash != whole.hash
    assert as_book(GAME, whole.moves.astype(np.int64)).hash == whole.hash
    assert openings(make_game("hex_11x11"), 3, 64).hash == "2b752b237023"  # sampled, not enumerated
    assert len(openings(GAME, 4, 10_000).moves) == len(whole.moves)


def test_where_there_are_too_many_positions_they_come_from_random_games(monkeypatch):
    everything = {canonical(moves) for moves in openings(GAME, 4).moves}
    monkeypatch.setattr(module, "MOST_EXPANDED", 100)
    book = openings(GAME, 4, 40)
    found = [canonical(moves) for moves in book.moves]
    assert len(set(found)) == len(found) == 40
    assert set(found) <= everything
    np.testing.assert_array_equal(openings(GAME, 4, 20).moves, book.moves[:20])
    assert len(openings(GAME, 4, 10_000).moves) <= len(everything)
    with pytest.raises(ConfigError, match="too many positions after 4 plies"):
        openings(GAME, 4)


def test_positions_are_those_after_the_moves():
    states = jax.jit(lambda moves: positions(GAME, moves))(jnp.array([[0, 4], [8, 1]]))
    np.testing.assert_array_equal(states.cells[0], board_after([0, 4]))
    np.testing.assert_array_equal(states.cells[1], board_after([8, 1]))


def test_a_game_that_is_over_after_so_many_plies_has_no_openings():
    for plies in (9, -1):
        with pytest.raises(ConfigError, match=f"{plies} plies"):
            openings(GAME, plies)
    with pytest.raises(ConfigError, match="0 openings"):
        openings(GAME, 2, 0)


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ([[0, 1], [4, 4]], r"move 2 of opening 1, 4 \('b2'\), is not legal"),
        ([[0, 9]], "move 2 of opening 0, 9, is not legal"),
        ([[-1, 0]], "move 1 of opening 0, -1, is not legal"),
        ([[0, 1, 3, 2, 4], [0, 3, 1, 4, 2]], "opening 1 ends the game"),
        ([[0, 3, 1, 4, 2, 5]], r"move 6 of opening 0, 5 \('c2'\), is not legal"),
        ([[0.0, 1.0]], "instead of integers"),
        ([0, 1], r"shape \(2,\)"),
    ],
)
def test_openings_that_cannot_be_played_are_refused(moves, said):
    with pytest.raises(ConfigError, match=said):
        check_openings(GAME, np.array(moves))


def test_a_game_is_compiled_once_for_all_its_books():
    traced = []

    def step(state, action):
        traced.append(action)
        return GAME.step(state, action)

    game = GAME._replace(step=step)
    books = [openings(game, 2, 5), openings(game, 2, 3), openings(game._replace(max_plies=8), 2)]
    assert len(traced) == 1
    assert [len(book.moves) for book in books] == [5, 3, 12]
    other = game._replace(legal_actions=lambda state: GAME.legal_actions(state).at[4].set(False))
    assert 4 not in openings(other, 1).moves
    assert 4 in openings(game, 1).moves
