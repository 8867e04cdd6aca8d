"""Exact values of connect four positions, win, draw or loss, for positions of about a dozen stones or more.

A pure library on Python's integers: a benchmark asks it which moves keep a position's value. It knows nothing of the
game's module in `envs`, so the two can be held against each other.

A position is two sets of cells, as bits: column c and row r (from below) is bit 7 c + r, and the seventh bit of each
column stays empty, so that no line runs from one column into the next (the encoding of Tromp's Fhourstones, 1996). The
search is negamax with alpha and beta over the three values, a table of bounds, only moves that do not lose at once, and
most winning cells first.

All seven moves of a random position of 14 stones take about a second of one core on average, and half as long or less
with every two stones more; of 10 stones seven seconds, of 8 minutes and gigabytes. Solve a list once and keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stoix_like.errors import ConfigError

ROWS, COLUMNS = 6, 7
NOT_LEGAL = -2  # in `values_of_moves`, of a full column

_HEIGHT = ROWS + 1  # bits of a column
_BOTTOM = sum(1 << (_HEIGHT * column) for column in range(COLUMNS))
_FULL_COLUMN = (1 << ROWS) - 1
_BOARD = _BOTTOM * _FULL_COLUMN
_CENTRE_FIRST = tuple(_FULL_COLUMN << (_HEIGHT * column) for column in (3, 2, 4, 1, 5, 0, 6))
_ALMOST_FULL = ROWS * COLUMNS - 2  # stones
_BOUNDS = {(low, high): (low, high) for low in (-1, 0, 1) for high in (-1, 0, 1)}  # one object each, to save memory

Table = dict[int, tuple[int, int]]  # a position's bits -> bounds of its value for the mover


class Position(NamedTuple):
    """Stones as bits."""

    mover: int  # of the player to move
    mask: int  # of both


def positions(num: int, stones: int, seed: int = 0) -> np.ndarray:
    """[num, stones] int32: the columns played in uniformly random games that go on, to distinct positions.

    Games that end earlier are thrown away whole, so the distribution is that of random play given that it goes on.
    Most such positions are lost or won; some are won at once.
    """
    generator = np.random.default_rng(seed)
    found: dict[Position, list[int]] = {}
    while len(found) < num:
        columns: list[int] = []
        position = Position(0, 0)
        while len(columns) < stones and not is_won(position):
            cells = [(column, _cell(position.mask, column)) for column in range(COLUMNS)]
            column, cell = [pair for pair in cells if pair[1]][generator.integers(sum(cell > 0 for _, cell in cells))]
            columns.append(column)
            position = Position(position.mask ^ position.mover, position.mask | cell)
        if len(columns) == stones and not is_won(position):
            found.setdefault(position, columns)
    return np.array(list(found.values()), np.int32).reshape(num, stones)


def position_after(columns: Sequence[int]) -> Position:
    """The position after stones in these columns, 0 to 6, from the empty board.

    Raises:
        ConfigError: a column that is full or does not exist, or a stone after the game was won.
    """
    position = Position(0, 0)
    for ply, column in enumerate(columns):
        if not 0 <= column < COLUMNS or not _cell(position.mask, column) or is_won(position):
            raise ConfigError(
                f"move {ply + 1}, column {column}, is not legal here", "columns are 0 to 6, of six cells each"
            )
        position = Position(position.mask ^ position.mover, position.mask | _cell(position.mask, column))
    return position


def is_won(position: Position) -> bool:
    """Whether the player who has just moved has four in a row."""
    return _has_four(position.mask ^ position.mover)


def value(position: Position, table: Table | None = None) -> int:
    """1, 0 or -1: a win, a draw or a loss of the player to move, if both play perfectly.

    Args:
        position: any that legal moves reach.
        table: of bounds found so far, which it adds to. Positions of one game share much of it; it holds about a
            hundred bytes a node, so give a new one to each game.
    """
    if is_won(position):
        return -1
    if position.mask == _BOARD:
        return 0
    if _open(position.mask) & _winning_cells(*position):
        return 1
    return _search(*position, -1, 1, {} if table is None else table)


def values_of_moves(position: Position) -> np.ndarray:
    """[7] int8: the value of the position for its mover after a stone in each column; NOT_LEGAL where it is full."""
    table: Table = {}
    values = np.full(COLUMNS, NOT_LEGAL, np.int8)
    for column in range(COLUMNS):
        if cell := _cell(position.mask, column):
            after = Position(position.mask ^ position.mover, position.mask | cell)
            values[column] = -value(after, table)
    return values


def optimal_moves(columns: np.ndarray) -> np.ndarray:
    """[num, 7] bool: the moves that keep the value of the positions after `columns` [num, stones]."""
    values = np.stack([values_of_moves(position_after(row)) for row in columns.tolist()])
    return values == values.max(axis=1, keepdims=True)


def _cell(mask: int, column: int) -> int:
    """The lowest empty cell of a column; 0 if it is full."""
    return _open(mask) & (_FULL_COLUMN << (_HEIGHT * column))


def _open(mask: int) -> int:
    """The lowest empty cell of every column that is not full: adding one carries over the stones."""
    return (mask + _BOTTOM) & _BOARD


def _has_four(stones: int) -> bool:
    for step in (1, _HEIGHT - 1, _HEIGHT, _HEIGHT + 1):
        pairs = stones & (stones >> step)
        if pairs & (pairs >> 2 * step):
            return True
    return False


def _winning_cells(stones: int, mask: int) -> int:
    """The empty cells, playable now or later, that complete four of these stones."""
    cells = (stones << 1) & (stones << 2) & (stones << 3)  # upwards
    for step in (_HEIGHT - 1, _HEIGHT, _HEIGHT + 1):
        after, before = stones << step, stones >> step  # the cells next to a stone, on either side
        cells |= after & (stones << 2 * step) & ((stones << 3 * step) | before)
        cells |= before & (stones >> 2 * step) & ((stones >> 3 * step) | after)
    return cells & _BOARD & ~mask


def _moves_that_do_not_lose(mover: int, mask: int) -> int:
    """Cells to move to after which the opponent does not win at once."""
    theirs = _winning_cells(mask ^ mover, mask)
    moves = _open(mask)
    if forced := moves & theirs:
        moves = forced if forced & (forced - 1) == 0 else 0  # two to block are one too many
    return moves & ~(theirs >> 1)  # not right below a cell that wins for them


def _bounds(mover: int, mask: int) -> tuple[int, int]:
    """What lines that can still be completed say: who has none left cannot win."""
    empty = _BOARD & ~mask
    return (-1 if _has_four((mask ^ mover) | empty) else 0), (1 if _has_four(mover | empty) else 0)


def _ordered(mover: int, mask: int, moves: int) -> list[int]:
    """The moves, those that make most winning cells first, then from the centre outwards."""
    cells = [moves & column for column in _CENTRE_FIRST if moves & column]
    if len(cells) > 1:
        cells.sort(key=lambda cell: -_winning_cells(mover | cell, mask | cell).bit_count())
    return cells


def _search(mover: int, mask: int, low: int, high: int, table: Table) -> int:
    """The value for the mover, who cannot win at once; a bound of it where it lies outside (low, high)."""
    moves = _moves_that_do_not_lose(mover, mask)
    if not moves:
        return -1
    if mask.bit_count() >= _ALMOST_FULL:
        return 0
    key = mover + mask + _BOTTOM  # in each column the height as a single bit, and the mover's stones below it
    least, most = table.get(key) or _bounds(mover, mask)
    if least >= high or most <= low or least == most:
        return least if least >= high else most
    low, high = max(low, least), min(high, most)
    best, start = -1, low
    for cell in _ordered(mover, mask, moves):
        best = max(best, -_search(mask ^ mover, mask | cell, -high, -low, table))
        low = max(low, best)
        if low >= high:
            break
    table[key] = _BOUNDS[max(least, best) if best > start else least, min(most, best) if best < high else most]
    return best
