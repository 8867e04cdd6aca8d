"""The boards of RingRift as tables on the host, and the numbers that the rules read from them.

Cells are in the order of their rows, then columns. A cell also has a bit: `row * stride + column` of the smallest
rectangle around the board, so that each direction moves all bits by the same number of places.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from stoix_like.errors import ConfigError

WORD = 32  # bits
RINGS_PER_PLAYER = 18
BOARDS = ("square8", "hex8")
MAX_PLACED = 3  # rings that may be put on an empty cell at once
#: The fourth axis of hexagons, which leads nowhere: eight directions are computed side by side twice as fast as six.
NOWHERE = (0, 0)


class Board(NamedTuple):
    """A board. The second half of the directions are the first ones backwards."""

    name: str
    kind: Literal["square", "hex"]
    stride: int  # columns of the rectangle
    coordinates: np.ndarray  # [C, 2] column and row
    directions: tuple[tuple[int, int], ...]  # [D] (columns, rows) of a step; the first half leads to higher cells
    sides: tuple[int, ...]  # the directions across a side, in which regions hang together

    @property
    def num_cells(self) -> int:
        """C."""
        return len(self.coordinates)

    @property
    def num_axes(self) -> int:
        """Directions of lines, half of those of moves: 4. On hexagons the last one is `NOWHERE`, which has no lines."""
        return len(self.directions) // 2

    @property
    def max_distance(self) -> int:
        """Steps of the longest move."""
        return self.stride - 1

    @property
    def max_height(self) -> int:
        """Rings of the highest stack. A stack of `max_distance` rings can capture once more, and no higher one can be
        moved; a ring is put only on a stack that can be moved afterwards."""
        return self.max_distance + 1

    @property
    def bits(self) -> np.ndarray:
        """[C] the place of each cell's bit."""
        return self.coordinates[:, 1] * self.stride + self.coordinates[:, 0]

    @property
    def num_words(self) -> int:
        """Words of 32 bits of a set of cells."""
        return int(self.bits.max()) // WORD + 1

    def cell_at(self, column: int, row: int) -> int:
        """The cell at a place; -1 off the board."""
        return _index(self.name).get((column, row), -1)

    def neighbor(self, cell: int, direction: int, distance: int = 1) -> int:
        """The cell so many steps away; -1 off the board."""
        if self.directions[direction] == NOWHERE:
            return -1
        (column, row), (right, down) = self.coordinates[cell], self.directions[direction]
        return self.cell_at(int(column) + right * distance, int(row) + down * distance)


def line_length(num_players: int) -> int:
    """Markers of a line."""
    return 4 if num_players == 2 else 3


def ring_victory(num_players: int) -> int:
    """Eliminated rings that win: 18, 24 and 30 of two to four players."""
    return round(RINGS_PER_PLAYER * (2 + num_players - 1) / 3)


def territory_victory(board: Board, num_players: int) -> int:
    """Cells of territory that win, if they are also more than all others have."""
    return board.num_cells // num_players + 1


@functools.cache
def make_board(name: str) -> Board:
    """`square8` or `hex8`. Raises ConfigError for another name."""
    if name not in BOARDS:
        raise ConfigError(f"no board of RingRift is called '{name}'", f"boards: {', '.join(BOARDS)}")
    if name == "square8":
        places = [(column, row) for row in range(8) for column in range(8)]
        ahead = ((1, 0), (-1, 1), (0, 1), (1, 1))
        return Board(name, "square", 8, np.array(places), (*ahead, *_backwards(ahead)), (0, 2, 4, 6))
    radius = 4
    places = [(x, y) for y in range(-radius, radius + 1) for x in range(-radius, radius + 1) if abs(x + y) <= radius]
    steps = ((1, 0), (-1, 1), (0, 1), NOWHERE)
    return Board(
        name, "hex", 2 * radius + 1, np.array(places) + radius, (*steps, *_backwards(steps)), (0, 1, 2, 4, 5, 6)
    )


def _backwards(steps: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((-right, -down) for right, down in steps)


@functools.cache
def _index(name: str) -> dict[tuple[int, int], int]:
    return {(int(column), int(row)): cell for cell, (column, row) in enumerate(make_board(name).coordinates)}
