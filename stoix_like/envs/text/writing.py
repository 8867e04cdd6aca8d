"""How the states of each world are written: pieces of text that a compiled program looks up, for each rendering.

"grid" has the symbols of the world's own `render`. A blank stands before each of them, and the line break belongs to
the last one of a row, so that byte-pair tokenizers find the same tokens in the pieces as in the whole text.
"coordinates" is the sentence of `render` without commas between cells, and "both" is one after the other. "positions",
of FrozenLake alone, leaves out of that sentence the holes, and has the player's own symbol. "grid_positions", of
FrozenLake and Sokoban, is the grid and a sentence of what moves and of where it should come; answers tell the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from stoix_like.envs.text.frozen_lake import FrozenLakeState
from stoix_like.envs.text.grids import Position, on_cell
from stoix_like.envs.text.sokoban import SokobanState
from stoix_like.envs.text.sudoku import SIZE, SudokuState
from stoix_like.types import Array, EnvState, Pieces

LAKE_SYMBOLS, ROOM_SYMBOLS, SUDOKU_SYMBOLS = "_OGPX√", "_#OX√PS", ".1234|"
_END = " .\n"
_LAKE_PLAYER = "PX√"  # on ice, in a hole, at the goal


class _Clause(NamedTuple):
    """Of a sentence: a phrase, and names of cells."""

    phrases: tuple[str, ...]
    most: int  # names that follow
    names: Callable[[Any], Array]  # state -> these
    which: Callable[[Any], Array] | None = None  # state -> [] which phrase it is; None = the only one


def lake_pieces(size: int) -> dict[str, Pieces]:
    """{rendering: pieces} of FrozenLake. Cells are counted from 0."""
    cells = _Cells((size, size), first=0, none=" no cell")
    most_holes = size**2 - 2  # not start or goal
    player = _Clause(("Player (P) is at",), 2, lambda state: cells.at(state.position))
    holes = _Clause((" ; holes (O) are at",), 2 * most_holes, lambda state: cells.marked(state.lake.holes))
    goal = _Clause((" ; goal (G) is at",), 2, lambda state: cells.at(state.lake.goal))
    phrases = tuple(f"Player ({symbol}) is at" for symbol in _LAKE_PLAYER)
    where = player._replace(phrases=phrases, which=_lake_player)
    found = _renderings(
        _grid(LAKE_SYMBOLS, LAKE_SYMBOLS, size**2, _lake_symbols), _sentence(cells, [player, holes, goal])
    )
    positions = _sentence(cells._replace(none=None), [where, goal])
    return found | {
        "positions": positions,
        "grid_positions": _joined(found["grid"], positions)._replace(told=positions),
    }


def room_pieces(num_rows: int, num_cols: int, num_boxes: int) -> dict[str, Pieces]:
    """{rendering: pieces} of Sokoban. Cells are counted from 0, the border included, whose cells are all walls."""
    inside = _Cells((num_rows - 2, num_cols - 2), first=1)
    clauses = [
        _Clause(("Player (P) is at",), 2, lambda state: inside.at(Position(*(x - 1 for x in state.room.player)))),
        _Clause((" ; box (X) is at",), 2 * num_boxes, lambda state: inside.at(_marked(state.room.boxes, num_boxes))),
        _Clause(
            (" ; target (O) is at",), 2 * num_boxes, lambda state: inside.at(_marked(state.room.targets, num_boxes))
        ),
    ]
    found = _renderings(_grid(ROOM_SYMBOLS, "#", num_rows * num_cols, _room_symbols), _sentence(inside, clauses))
    return found | {"grid_positions": found["both"]._replace(told=found["coordinates"])}


def sudoku_pieces(num_empty: int) -> dict[str, Pieces]:
    """{rendering: pieces} of Sudoku with so many empty cells at first. Cells are counted from 1."""
    cells = _Cells((SIZE, SIZE), first=1, none=" none")
    empty = _Clause(("Empty cells:",), 2 * num_empty, lambda state: cells.marked(state.cells == 0))
    return _renderings(_grid(SUDOKU_SYMBOLS, "|", SIZE * 7, _sudoku_symbols), _sentence(cells, [empty]))


def _renderings(grid: Pieces, coordinates: Pieces) -> dict[str, Pieces]:
    return {"grid": grid, "coordinates": coordinates, "both": _joined(grid, coordinates)}


def _joined(grid: Pieces, coordinates: Pieces) -> Pieces:
    """One after the other. No text is in both."""

    def write(state: EnvState) -> Array:
        after = coordinates.write(state)
        return jnp.concatenate([grid.write(state), jnp.where(after < 0, -1, after + len(grid.texts))])

    def most_tokens(lengths: Sequence[int]) -> int:
        first = len(grid.texts)
        return _most(grid, lengths[:first]) + _most(coordinates, lengths[first:])

    texts, longest = (*grid.texts, *coordinates.texts), grid.longest + coordinates.longest
    return Pieces(texts, write, longest, most_tokens)


def _most(pieces: Pieces, lengths: Sequence[int]) -> int:
    """The most tokens of a state, from those of each text."""
    return pieces.longest * max(lengths) if pieces.most_tokens is None else pieces.most_tokens(lengths)


def _grid(symbols: str, last_symbols: str, num_cells: int, place: Callable[[Any], Array]) -> Pieces:
    """Pieces of a grid: every symbol, and once more with a line break if it may be the last one of a row.

    `place` returns which symbol stands where, [R, C], of so many cells.
    """
    texts = (*(f" {symbol}" for symbol in symbols), *(f" {symbol}\n" for symbol in last_symbols))
    breaks = [texts.index(f" {symbol}\n") if symbol in last_symbols else -1 for symbol in symbols]

    def write(state: EnvState) -> Array:
        placed = place(state)
        last = jnp.array(breaks)[placed[:, -1:]]  # [R, 1]
        return jnp.concatenate([placed[:, :-1], last], axis=1).reshape(-1).astype(jnp.int32)  # [R * C]

    return Pieces(texts, write, num_cells)


def _lake_symbols(state: FrozenLakeState) -> Array:
    symbol, holes = LAKE_SYMBOLS.index, state.lake.holes
    is_player, is_goal = (on_cell(place, holes.shape) for place in (state.position, state.lake.goal))
    player = jnp.array([symbol(name) for name in _LAKE_PLAYER])[_lake_player(state)]
    others = jnp.where(is_goal, symbol("G"), jnp.where(holes, symbol("O"), symbol("_")))
    return jnp.where(is_player, player, others)  # [R, C]


def _lake_player(state: FrozenLakeState) -> Array:
    """[] int32: which of the player's symbols it has."""
    here, goal, holes = state.position, state.lake.goal, state.lake.holes
    is_goal = (here.row == goal.row) & (here.col == goal.col)
    names = [_LAKE_PLAYER.index(symbol) for symbol in "X√P"]
    return jnp.where(holes[here.row, here.col], names[0], jnp.where(is_goal, names[1], names[2])).astype(jnp.int32)


def _room_symbols(state: SokobanState) -> Array:
    symbol, (walls, targets, boxes, player) = ROOM_SYMBOLS.index, state.room
    on_target = jnp.where(boxes, symbol("√"), symbol("O"))
    others = jnp.where(targets, on_target, jnp.where(boxes, symbol("X"), symbol("_")))
    players = jnp.where(targets, symbol("S"), symbol("P"))
    return jnp.where(on_cell(player, walls.shape), players, jnp.where(walls, symbol("#"), others))  # [R, C]


def _sudoku_symbols(state: SudokuState) -> Array:
    left, right = jnp.split(state.cells.astype(jnp.int32), 2, axis=1)  # each [4, 2]; a number is its own index
    bar = jnp.full((SIZE, 1), SUDOKU_SYMBOLS.index("|"))
    return jnp.concatenate([bar, left, bar, right, bar], axis=1)  # [4, 7]


class _Cells(NamedTuple):
    """Names of cells: " (r," for every row, then "c)" for every column, then what is said where none is named."""

    shape: tuple[int, int]  # rows and columns
    first: int  # the number of the first row and column
    none: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        rows, columns = (range(self.first, self.first + length) for length in self.shape)
        names = (*(f" ({row}," for row in rows), *(f"{column})" for column in columns))
        return names if self.none is None else (*names, self.none)

    def at(self, places: Position) -> Array:
        """[2 * K] int32: the names of one cell or of K, which are given as indices of rows and columns."""
        return jnp.stack([places.row, self.shape[0] + places.col], axis=-1).reshape(-1)

    def marked(self, mask: Array) -> Array:
        """[2 * R * C + 1] int32: the names of the cells marked in [R, C], row by row, or `none`."""
        every = self.at(Position(*np.indices(self.shape, np.int32).reshape(2, -1)))  # [2 * R * C]
        names = jnp.where(jnp.repeat(mask.reshape(-1), 2), every, -1)
        none = jnp.where(mask.any(), -1, sum(self.shape))
        return jnp.append(names, none)


def _marked(cells: Array, num: int) -> Position:
    """The first `num` cells marked in a room [R, C], row by row, as indices inside of its border."""
    mask = cells[1:-1, 1:-1]
    counted = jnp.cumsum(mask.reshape(-1))[None]  # [1, R * C]
    return Position.of_cell(jnp.argmax(counted == jnp.arange(1, num + 1)[:, None], axis=1), mask.shape[1])


def _sentence(cells: _Cells, clauses: Sequence[_Clause]) -> Pieces:
    """Pieces of a sentence of clauses."""
    texts = (*cells.texts, *(phrase for clause in clauses for phrase in clause.phrases), _END)
    longest = sum(1 + clause.most for clause in clauses) + 1

    def write(state: EnvState) -> Array:
        parts = []
        for clause in clauses:
            first = texts.index(clause.phrases[0])
            phrase = first if clause.which is None else first + clause.which(state)
            parts += [jnp.asarray(phrase)[None], clause.names(state)]
        return jnp.concatenate([*parts, jnp.array([texts.index(_END)])]).astype(jnp.int32)

    def most_tokens(lengths: Sequence[int]) -> int:
        """Each phrase once, and after it as many of the longest names as may follow, or what is said if none does."""
        num_rows, num_names = cells.shape[0], sum(cells.shape)
        name = max(lengths[:num_rows]) + max(lengths[num_rows:num_names])  # of a cell: two texts
        none = max(lengths[num_names : len(cells.texts)], default=0)
        length = dict(zip(texts, lengths, strict=True))
        phrases = sum(max(length[phrase] for phrase in clause.phrases) for clause in clauses)
        return phrases + length[_END] + sum(max(clause.most // 2 * name, none) for clause in clauses)

    return Pieces(texts, write, longest, most_tokens)
