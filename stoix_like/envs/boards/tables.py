"""Tables of boards, made once on the host: neighbours, symmetries, names of cells."""

from __future__ import annotations

import numpy as np

from stoix_like.games import Symmetries

_SQUARE_DIRECTIONS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
HEX_DIRECTIONS = ((-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0))


def square_neighbors(rows: int, columns: int) -> np.ndarray:
    """[C, 8] int32: the cells around each cell; -1 off the board."""
    return _neighbors(rows, columns, _SQUARE_DIRECTIONS)


def hex_neighbors(rows: int, columns: int) -> np.ndarray:
    """[C, 6] int32: the cells around each cell of a board of hexagons, whose rows shift right; -1 off the board."""
    return _neighbors(rows, columns, HEX_DIRECTIONS)


def _neighbors(rows: int, columns: int, directions: tuple[tuple[int, int], ...]) -> np.ndarray:
    table = np.full((rows * columns, len(directions)), -1, np.int32)
    for cell in range(rows * columns):
        for index, (down, right) in enumerate(directions):
            row, column = cell // columns + down, cell % columns + right
            if 0 <= row < rows and 0 <= column < columns:
                table[cell, index] = row * columns + column
    return table


def square_symmetries(size: int, num_other_actions: int) -> Symmetries:
    """The eight symmetries of a square board whose first actions are its cells; other actions (pass) stay."""
    board = np.arange(size * size).reshape(size, size)
    turned = [np.rot90(board, turns) for turns in range(4)]
    cells = np.stack([b.reshape(-1) for b in [*turned, *(b[:, ::-1] for b in turned)]]).astype(np.int32)
    return with_cell_actions(cells, num_other_actions)


def with_cell_actions(cells: np.ndarray, num_other_actions: int) -> Symmetries:
    """Symmetries of a game whose first actions are its cells, from `cells` [S, C]; other actions stay."""
    others = np.arange(cells.shape[1], cells.shape[1] + num_other_actions)
    actions = np.concatenate([cells, np.broadcast_to(others, (len(cells), num_other_actions))], axis=1)
    return Symmetries(cells, actions.astype(np.int32))


def cell_names(rows: int, columns: int, *others: str) -> tuple[str, ...]:
    """Names of the cells, `a1` at the top left, then of other actions."""
    names = [f"{chr(ord('a') + column)}{row + 1}" for row in range(rows) for column in range(columns)]
    return (*names, *others)


def lines(rows: int, columns: int, length: int) -> np.ndarray:
    """[L, length] int32: the cells of every straight line of that length, from the top or the left."""
    found = []
    for cell in range(rows * columns):
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            last_row, last_column = cell // columns + down * (length - 1), cell % columns + right * (length - 1)
            if last_row < rows and 0 <= last_column < columns:
                found.append([cell + step * (down * columns + right) for step in range(length)])
    return np.array(found, np.int32)
