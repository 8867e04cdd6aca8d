"""Exhaustive games of tic-tac-toe: the table against facts known by hand, and scripted players whose games are counted
on paper.
"""

import jax
import numpy as np
import pytest

from stoix_like.bench.alphazero import exhaustive
from stoix_like.bench.alphazero.exhaustive import Outcomes, chooser, make_table, play_exhaustively
from stoix_like.envs.boards.registry import make_game
from stoix_like.search.players import random_player

TABLE = make_table()


def board(text):
    """`x.o...x..` as cells: x the first player, o the second."""
    return np.array([{"x": 0, "o": 1, ".": -1}[cell] for cell in text], np.int8)


def optimal(text):
    return np.flatnonzero(TABLE.optimal[exhaustive.codes(board(text)[None])[0]]).tolist()


def best(boards, _mover):
    """The first optimal cell."""
    return TABLE.optimal[exhaustive.codes(boards)].argmax(axis=1)


def first_free(boards, _mover):
    return (boards < 0).argmax(axis=1)


def test_the_table_has_the_moves_that_hold_the_draw():
    """Against the centre only corners hold, against a corner only the centre; against an edge the centre, the corners
    beside it and the edge across."""
    assert TABLE.value[exhaustive.codes(board("........."))[None]][0] == 0
    assert optimal(".........") == list(range(9))
    assert optimal("....x....") == [0, 2, 6, 8]
    assert optimal("x........") == [4]
    assert optimal(".x.......") == [0, 2, 4, 7]
    assert optimal("xx.oo....") == [2]  # wins, where blocking draws at best
    assert optimal("xx..o....") == [2]  # blocks
    assert optimal("x.x.o.o.x") == [1, 3, 5, 7]  # both 1 and 5 threaten: every move loses


def test_positions_that_play_reaches_are_those_that_are_known():
    """5,478 positions, 958 of them over (the well-known counts of tic-tac-toe)."""
    seen, boards = 0, np.full((1, 9), -1, np.int8)
    over = 0
    for ply in range(10):
        seen += len(boards)
        is_over = exhaustive.has_line(boards, 1 - ply % 2) | (boards >= 0).all(axis=1)
        over += is_over.sum()
        boards = boards[~is_over]
        rows, cells = np.nonzero(boards < 0)
        boards = boards[rows].copy()
        boards[np.arange(len(rows)), cells] = ply % 2
        boards = np.unique(boards, axis=0)
    assert (seen, over) == (5478, 958)


def test_games_are_those_counted_by_hand():
    """From `x o . / o x . / x . o` the first player wins with 2 at once. If it takes 5 instead, the other must take 2,
    and 7 draws. From the empty board the script holds every threat: 0 4 1 2 6 3 5, after which the other fills 7 or 8,
    and both are draws."""
    late = board("xo.ox.x.o")
    assert play_exhaustively(TABLE, best, 0, late) == Outcomes(1, 0, 0)
    assert play_exhaustively(TABLE, lambda boards, _: np.where(boards[:, 5] < 0, 5, 7), 0, late) == Outcomes(0, 1, 0)
    assert play_exhaustively(TABLE, best, 0, board("xxooox" + "x..")) == Outcomes(0, 2, 0)
    assert play_exhaustively(TABLE, best, 0) == Outcomes(0, 2, 0)


def test_a_perfect_player_never_loses_from_either_seat():
    for seat in (0, 1):
        found = play_exhaustively(TABLE, best, seat)
        assert found.losses == 0
        assert found == one_by_one(best, seat)


def test_a_player_that_takes_the_first_free_cell_is_found_losing():
    for seat in (0, 1):
        found = play_exhaustively(TABLE, first_free, seat)
        assert found.losses > 0
        assert found == one_by_one(first_free, seat)


def one_by_one(choose, seat):
    """The same games, each played on its own by recursion."""
    totals = [0, 0, 0]

    def play(cells, ply):
        mover = ply % 2
        if exhaustive.has_line(cells[None], 1 - mover)[0]:
            totals[2 if mover == seat else 0] += 1
        elif ply == 9:
            totals[1] += 1
        else:
            own = [int(choose(cells[None], mover)[0])]
            moves = own if mover == seat else np.flatnonzero(TABLE.optimal[exhaustive.codes(cells[None])[0]])
            for cell in moves:
                after = cells.copy()
                after[cell] = mover
                play(after, ply + 1)

    play(np.full(9, -1, np.int8), 0)
    return Outcomes(*totals)


def test_a_taken_cell_is_refused():
    with pytest.raises(ValueError, match="taken"):
        play_exhaustively(TABLE, lambda boards, _: np.zeros(len(boards), int), 0)


def test_a_player_of_the_game_is_asked_in_full_batches():
    """Its answers come in the order of the positions, also where they fill several batches."""
    game = make_game("tic_tac_toe")

    def first_legal(_params, states, _key):
        return jax.vmap(game.legal_actions)(states).argmax(axis=1)

    assert play_exhaustively(TABLE, chooser(first_legal, batch=16)(None), 1) == play_exhaustively(TABLE, first_free, 1)
    assert play_exhaustively(TABLE, chooser(random_player(game))(None), 0).losses > 0
