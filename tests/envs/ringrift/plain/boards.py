"""The four boards of RingRift as tables: cells, rays, neighbours, and the numbers that depend on board and players.

A cell is (x, y) on a square board and a cube coordinate (x, y, z) with x + y + z = 0 on a hexagonal one. Cells are
ordered by (y, x).
"""

import functools
from dataclasses import dataclass

Cell = tuple[int, ...]

#: One direction of each axis, so chosen that it leads on in the order of the cells. Lines run along these.
SQUARE_AXES = ((1, 0), (0, 1), (1, 1), (-1, 1))
HEXAGON_AXES = ((1, 0, -1), (0, 1, -1), (-1, 1, 0))
#: Squares that share a side. Territory spreads over these; over all neighbours on hexagons.
SQUARE_SIDES = ((1, 0), (0, 1), (-1, 0), (0, -1))

SIZES = {"square8": 8, "square19": 19, "hex8": 4, "hexagonal": 12}  # side of a square, radius of a hexagon
RINGS = {"square8": 18, "square19": 72, "hex8": 18, "hexagonal": 96}  # of each player
SMALL_BOARDS = ("square8", "hex8")


@dataclass(frozen=True, eq=False)
class Board:
    """Tables of one board. `rays[cell][direction]` are the cells from there to the edge, nearest first."""

    name: str
    cells: tuple[Cell, ...]
    index: dict[Cell, int]  # place of each cell in the order
    num_axes: int  # directions 0 .. num_axes - 1 are the axes, the others their opposites in the same order
    rays: dict[Cell, tuple[tuple[Cell, ...], ...]]
    beside: dict[Cell, tuple[Cell, ...]]  # one step of a stack or of a sliding marker
    sides: dict[Cell, tuple[Cell, ...]]  # neighbours by territory
    rings_per_player: int


def shifted(cell, direction):
    return tuple(part + step for part, step in zip(cell, direction, strict=True))


def square_cells(size):
    return [(x, y) for y in range(size) for x in range(size)]


def hexagon_cells(radius):
    span = range(-radius, radius + 1)
    return [(x, y, -x - y) for y in span for x in span if abs(x + y) <= radius]


def ray(cell, direction, cells):
    """The cells after `cell` in one direction, up to the edge."""
    found = []
    cell = shifted(cell, direction)
    while cell in cells:
        found.append(cell)
        cell = shifted(cell, direction)
    return tuple(found)


@functools.cache
def make_board(name):
    is_square = name.startswith("square")
    cells = square_cells(SIZES[name]) if is_square else hexagon_cells(SIZES[name])
    axes = SQUARE_AXES if is_square else HEXAGON_AXES
    directions = (*axes, *(tuple(-step for step in axis) for axis in axes))
    sides = SQUARE_SIDES if is_square else directions
    index = {cell: place for place, cell in enumerate(cells)}
    rays = {cell: tuple(ray(cell, direction, index) for direction in directions) for cell in cells}
    return Board(
        name=name,
        cells=tuple(cells),
        index=index,
        num_axes=len(axes),
        rays=rays,
        beside={cell: tuple(path[0] for path in rays[cell] if path) for cell in cells},
        sides={
            cell: tuple(near for near in (shifted(cell, side) for side in sides) if near in index) for cell in cells
        },
        rings_per_player=RINGS[name],
    )


def line_length(board, num_players):
    return 3 if board.name in SMALL_BOARDS and num_players > 2 else 4


def ring_victory(board, num_players):
    """Eliminated rings that win: two thirds of the own rings and a third of all others'."""
    return board.rings_per_player * (num_players + 1) // 3


def territory_victory(board, num_players):
    """Cells of territory that win, if they are more than all other players' together."""
    return len(board.cells) // num_players + 1
