"""The solver against plain minimax on lists, against positions worked out by hand, and against the game's module."""

import numpy as np
import pytest

from stoix_like.bench.alphazero import connect_four_solver as solver
from stoix_like.bench.alphazero.connect_four_solver import position_after, positions, value, values_of_moves
from stoix_like.envs.boards.registry import make_game
from stoix_like.errors import ConfigError
from stoix_like.evaluation.contests.openings import check_openings


def board_after(columns):
    """Seven lists of players from the bottom up."""
    board = [[] for _ in range(7)]
    for ply, column in enumerate(columns):
        board[column].append(ply % 2)
    return tuple(tuple(column) for column in board)


def wins(board, column):
    """Whether the top stone of a column is in a line of four."""
    row = len(board[column]) - 1
    owner = board[column][row]

    def at(c, r):
        return 0 <= c < 7 and 0 <= r < len(board[c]) and board[c][r] == owner

    def run(dc, dr):
        length = 0
        while at(column + (length + 1) * dc, row + (length + 1) * dr):
            length += 1
        return length

    return any(run(dc, dr) + run(-dc, -dr) >= 3 for dc, dr in ((0, 1), (1, 0), (1, 1), (1, -1)))


def minimax(board, player, seen):
    """([7] values of the moves, None where full), without any pruning but what was seen."""
    values = []
    for column in range(7):
        if len(board[column]) == 6:
            values.append(None)
            continue
        after = (*board[:column], (*board[column], player), *board[column + 1 :])
        if wins(after, column):
            values.append(1)
        elif sum(map(len, after)) == 42:
            values.append(0)
        else:
            if after not in seen:
                theirs = minimax(after, 1 - player, seen)
                seen[after] = max(one for one in theirs if one is not None)
            values.append(-seen[after])
    return values


def check_against_minimax(rows):
    found = set()
    for columns in rows.tolist():
        expected = minimax(board_after(columns), len(columns) % 2, {})
        values = [None if one == solver.NOT_LEGAL else one for one in values_of_moves(position_after(columns)).tolist()]
        assert values == expected, columns
        assert value(position_after(columns)) == max(one for one in expected if one is not None)
        found.update(values)
    return found


@pytest.mark.full
def test_late_positions_have_the_values_of_full_minimax():
    """The last three of thirty stones are such that a bound wrongly kept in the table, or lines wrongly taken for
    possible, change a value; few positions are."""
    rows = positions(60, 30, seed=1)[[*range(8), 16, 24, 55]]
    assert check_against_minimax(rows) == {-1, 0, 1, None}
    check_against_minimax(positions(30, 35, seed=1))
    check_against_minimax(positions(30, 40, seed=2))
    check_against_minimax(positions(20, 41, seed=3))


@pytest.mark.full
def test_earlier_positions_have_the_values_of_full_minimax():
    check_against_minimax(positions(30, 26, seed=4))
    check_against_minimax(positions(200, 32, seed=5))


def test_an_open_three_is_lost_for_who_must_stop_it():
    """The first player has three in the middle of the bottom row, and either end makes four."""
    lost = position_after([3, 3, 2, 2, 4])
    assert value(lost) == -1
    np.testing.assert_array_equal(values_of_moves(lost), -1)
    assert value(position_after([3, 3, 2, 2])) == 1  # by that move


def test_a_win_at_once_is_seen():
    assert value(position_after([0, 1, 0, 1, 0, 5])) == 1  # three on the left edge, and the fourth cell is free
    assert value(position_after([3, 0, 4, 0, 6, 0])) == 1  # the gap between two and one
    assert value(position_after([0, 1, 1, 2, 2, 3, 2, 3, 3, 6])) == 1  # a diagonal that the last move left open


def test_a_full_board_is_a_draw_and_has_no_moves():
    for columns in positions(2, 42, seed=9).tolist():
        assert value(position_after(columns)) == 0
        np.testing.assert_array_equal(values_of_moves(position_after(columns)), solver.NOT_LEGAL)


def test_a_table_of_other_positions_changes_nothing():
    table = {}
    for columns in positions(10, 24, seed=6).tolist():
        position = position_after(columns)
        assert value(position, table) == value(position)
    assert table


def test_positions_are_distinct_and_play_in_the_game_itself():
    found = positions(30, 14, seed=7)
    assert found.shape == (30, 14)
    np.testing.assert_array_equal(found, positions(30, 14, seed=7))
    assert len({position_after(row) for row in found.tolist()}) == 30
    check_openings(make_game("connect_four"), found)


def test_optimal_moves_are_those_of_the_greatest_value():
    found = positions(20, 30, seed=8)
    optimal = solver.optimal_moves(found)
    for row, columns in zip(optimal, found.tolist(), strict=True):
        values = values_of_moves(position_after(columns))
        assert row.tolist() == [one == max(values) for one in values.tolist()]
        assert not row[values == solver.NOT_LEGAL].any()


@pytest.mark.parametrize("columns", [[7], [-1], [0] * 7, [0, 1, 0, 1, 0, 1, 0, 2]])
def test_what_cannot_be_played_is_refused(columns):
    with pytest.raises(ConfigError, match=f"move {len(columns)}, column {columns[-1]}, is not legal"):
        position_after(columns)
