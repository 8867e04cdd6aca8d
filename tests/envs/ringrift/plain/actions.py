"""Every decision a player can take, as one small tuple each.

Tuples of different names but equal contents compare equal, so the two that hold nothing hold their name.
"""

from typing import NamedTuple

from envs.ringrift.plain.boards import Cell


class Place(NamedTuple):
    """`count` rings from the hand onto an empty cell, or one onto a stack."""

    cell: Cell
    count: int


class Move(NamedTuple):
    """A plain move, an overtaking capture or a segment of a chain: the stack on the way, if any, is overtaken."""

    start: Cell
    landing: Cell


class Slide(NamedTuple):
    """A recovery: a marker moves one step, into a line or, where no slide makes one, anywhere."""

    start: Cell
    landing: Cell


class Strike(NamedTuple):
    """A recovery: a marker is given up for the top ring of the stack beside it."""

    start: Cell
    target: Cell


class Line(NamedTuple):
    """Collapses all cells of a line, in the order of cells. A ring is paid for it."""

    cells: tuple[Cell, ...]


class Segment(NamedTuple):
    """Collapses only so many cells of a longer line as a line needs. It is free."""

    cells: tuple[Cell, ...]


class Region(NamedTuple):
    """Claims a region. `colour` owns the markers of its border, 0 if it has none."""

    colour: int
    cells: frozenset[Cell]


class Pay(NamedTuple):
    """Names the stack that pays for a line or a region, gives up its cap, or yields a buried ring."""

    cell: Cell


class Skip(NamedTuple):
    """Declines a placement, a capture after a move, a recovery, or further regions."""

    name: str = "skip"


class Swap(NamedTuple):
    """The players exchange their colours; the second colour is still to move."""

    name: str = "swap"
