"""The actions of RingRift as one list, with what each means as tables on the host.

Blocks in order: placing one, two and three rings on each cell; pairs of cells, for moves, captures, chains and recovery
(the board says which); whole lines and parts of longer ones, by their first cell and axis; regions by colour and first
cell; the cell that pays; skip; and, if the game has it, the swap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stoix_like.envs.ringrift.boards import MAX_PLACED, WORD, Board
from stoix_like.envs.ringrift.sets import board_words
from stoix_like.envs.ringrift.state import Rules

PLACE, PAIR, WHOLE, SEGMENT, REGION, PAY, SKIP, SWAP = 0, 1, 2, 3, 4, 5, 6, 7


class Actions(NamedTuple):
    """What each action means, [A, ...], and where its bit stands among the sets of legal actions.

    The sets are rows: three of places, one by distance and direction of pairs, one by axis of whole lines and of
    parts, one by colour of regions, one of payments, and one whose lowest cells are skip and swap.
    """

    kind: np.ndarray  # [A] int32
    number: np.ndarray  # [A] int32: rings to place, colour of a region, axis of a line, direction of a pair
    start: np.ndarray  # [A] int32, cell; -1: none
    landing: np.ndarray  # [A] int32, cell; -1: none
    first: np.ndarray  # [A, W] uint32, the set of the start alone
    last: np.ndarray  # [A, W] uint32, the set of the landing alone
    between: np.ndarray  # [A, W] uint32: passed by a pair; from the start to the edge, of a line; of a part, its cells
    row: np.ndarray  # [A] int32, of the sets of legal actions
    bit: np.ndarray  # [A] int32, the place in the row

    @property
    def total(self) -> int:
        """A."""
        return len(self.kind)


class _Entry(NamedTuple):
    kind: int
    number: int
    start: int
    landing: int
    between: tuple[int, ...]
    row: int


def make_actions(rules: Rules) -> Actions:
    """All actions on the board of a game."""
    entries = [*_places(rules.board), *_pairs(rules.board), *_lines(rules), *_others(rules)]
    start = np.array([entry.start for entry in entries])
    landing = np.array([entry.landing for entry in entries])
    bits = rules.board.bits
    cells = np.arange(rules.board.num_cells)
    between = np.array([np.isin(cells, entry.between) for entry in entries])
    return Actions(
        kind=np.array([entry.kind for entry in entries], np.int32),
        number=np.array([entry.number for entry in entries], np.int32),
        start=start.astype(np.int32),
        landing=landing.astype(np.int32),
        first=board_words(rules.board, cells == start[:, None]),
        last=board_words(rules.board, cells == landing[:, None]),
        between=board_words(rules.board, between),
        row=np.array([entry.row for entry in entries], np.int32),
        bit=np.where(np.array([entry.kind for entry in entries]) == SWAP, bits[1], bits[np.maximum(start, 0)]),
    )


def num_rows(rules: Rules) -> int:
    """Sets of legal actions."""
    return _first_row(rules, SKIP) + 1


def _first_row(rules: Rules, kind: int) -> int:
    board = rules.board
    sizes = {
        PLACE: MAX_PLACED,
        PAIR: board.max_distance * len(board.directions),
        WHOLE: board.num_axes,
        SEGMENT: board.num_axes,
        REGION: rules.num_players + 1,
        PAY: 1,
    }
    return sum(size for other, size in sizes.items() if other < kind)


def _places(board: Board) -> list[_Entry]:
    return [
        _Entry(PLACE, count + 1, cell, -1, (), count) for count in range(MAX_PLACED) for cell in range(board.num_cells)
    ]


def _pairs(board: Board) -> list[_Entry]:
    entries = []
    for distance in range(1, board.max_distance + 1):
        for direction in range(len(board.directions)):
            row = MAX_PLACED + (distance - 1) * len(board.directions) + direction
            for cell in range(board.num_cells):
                path = [board.neighbor(cell, direction, step) for step in range(1, distance + 1)]
                if path[-1] >= 0:
                    entries.append(_Entry(PAIR, direction, cell, path[-1], tuple(path[:-1]), row))
    return entries


def _lines(rules: Rules) -> list[_Entry]:
    entries = []
    for kind in (WHOLE, SEGMENT):
        for axis in range(rules.board.num_axes):
            for cell in range(rules.board.num_cells):
                ray = [cell]
                while (following := rules.board.neighbor(ray[-1], axis)) >= 0:
                    ray.append(following)
                if len(ray) >= rules.line_length:
                    cells = tuple(ray if kind == WHOLE else ray[: rules.line_length])
                    entries.append(_Entry(kind, axis, cell, -1, cells, _first_row(rules, kind) + axis))
    return entries


def _others(rules: Rules) -> list[_Entry]:
    cells = range(rules.board.num_cells)
    entries = [
        _Entry(REGION, colour, cell, -1, (), _first_row(rules, REGION) + colour)
        for colour in range(rules.num_players + 1)
        for cell in cells
    ]
    entries += [_Entry(PAY, 0, cell, -1, (), _first_row(rules, PAY)) for cell in cells]
    entries.append(_Entry(SKIP, 0, -1, -1, (), _first_row(rules, SKIP)))
    if rules.has_swap:
        entries.append(_Entry(SWAP, 0, -1, -1, (), _first_row(rules, SKIP)))
    return entries


def places_in_words(actions: Actions, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(word, bit) of each action in the words of the sets of legal actions: the first of each set, then the second."""
    return actions.bit // WORD * rows + actions.row, (actions.bit % WORD).astype(np.uint32)


def actions_by_bit(actions: Actions, rows: int, num_words: int) -> np.ndarray:
    """[rows, 32 W] int32: the action of each bit of the sets of legal actions; 0 where there is none."""
    table = np.zeros((rows, num_words * WORD), np.int32)
    table[actions.row, actions.bit] = np.arange(actions.total)
    return table
