"""Sets of cells as words of bits, so that a rule is decided for all cells of a board at once.

The words of a set are arrays of one shape, which may have axes of their own: of players, of directions, of colours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.ringrift.boards import WORD, Board
from stoix_like.types import Array

_ONES = np.uint32(0xFFFFFFFF)
T = TypeVar("T")


class Cells(NamedTuple):
    """A set of cells, or an array of sets: `words` of one shape. `~` leaves bits beside the board: `&` them away."""

    words: tuple[Array, ...]  # W arrays of uint32; NumPy's for constants

    def __and__(self, other: Cells) -> Cells:
        return Cells(tuple(a & b for a, b in zip(self.words, other.words, strict=True)))

    def __or__(self, other: Cells) -> Cells:
        return Cells(tuple(a | b for a, b in zip(self.words, other.words, strict=True)))

    def __xor__(self, other: Cells) -> Cells:
        return Cells(tuple(a ^ b for a, b in zip(self.words, other.words, strict=True)))

    def __invert__(self) -> Cells:
        return Cells(tuple(~word for word in self.words))

    def at(self, *index: int | slice | EllipsisType | None) -> Cells:
        """The sets at an index of the axes."""
        return Cells(tuple(word[index] for word in self.words))

    def where(self, condition: Array) -> Cells:
        """The sets, empty where the condition is False."""
        keep = jnp.where(condition, _ONES, np.uint32(0))
        return Cells(tuple(word & keep for word in self.words))

    def union(self, axis: int) -> Cells:
        """The union of the sets along an axis."""
        return Cells(tuple(jnp.bitwise_or.reduce(word, axis=axis) for word in self.words))

    def any(self) -> Array:
        """Whether a set has a cell, of the shape of the words."""
        return functools.reduce(jnp.bitwise_or, self.words) != 0

    def size(self) -> Array:
        """Cells of each set, int32."""
        return functools.reduce(jnp.add, [jax.lax.population_count(word).astype(jnp.int32) for word in self.words])

    def lowest(self) -> Cells:
        """The lowest cell of each set; empty of an empty set."""
        found, is_open = [], jnp.ones_like(self.words[0]) != 0
        for word in self.words:
            found.append(jnp.where(is_open, word & -word, jnp.uint32(0)))
            is_open &= word == 0
        return Cells(tuple(found))

    def below(self) -> Cells:
        """All bits below the lowest cell of each set; all bits of an empty set."""
        found, is_open = [], jnp.ones_like(self.words[0]) != 0
        for word in self.words:
            found.append(jnp.where(is_open, (word & -word) - 1, jnp.uint32(0)))
            is_open &= word == 0
        return Cells(tuple(found))


def nothing(like: Cells) -> Cells:
    """Empty sets of the same shape."""
    return Cells(tuple(jnp.zeros_like(word) for word in like.words))


def stacked(sets: Sequence[Cells]) -> Cells:
    """Sets as one, with a first axis."""
    return Cells(tuple(jnp.stack(words) for words in zip(*(cells.words for cells in sets), strict=True)))


def joined(sets: Sequence[Cells]) -> Cells:
    """Arrays of sets as one, along their only axis."""
    return Cells(tuple(jnp.concatenate(words) for words in zip(*(cells.words for cells in sets), strict=True)))


def kept(function: Callable[[], T], one: Array) -> T:
    """What a function returns, computed once and kept, as it is.

    XLA would compute it anew in every kernel that reads some of it. It cannot see that a loop of `one` rounds, []
    int32, has a single one, if that is a number of the state. A step takes half the time with it.
    """
    before = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function))

    def compute(carry: tuple[Array, T]) -> tuple[Array, T]:
        return carry[0] + 1, function()

    result: T = jax.lax.while_loop(lambda carry: carry[0] < one, compute, (jnp.int32(0), before))[1]
    return result


def packed(cells: Cells) -> Array:
    """The words as one array, [..., W]."""
    return jnp.stack(cells.words, axis=-1)


def unpacked(words: Array) -> Cells:
    """[..., W] as a set."""
    return Cells(tuple(words[..., index] for index in range(words.shape[-1])))


def board_words(board: Board, cells: np.ndarray) -> np.ndarray:
    """Sets on the host: bools [..., C] as words [..., W] uint32."""
    words = np.zeros((*cells.shape[:-1], board.num_words), np.uint32)
    for cell, bit in enumerate(board.bits):
        words[..., bit // WORD] |= cells[..., cell].astype(np.uint32) << np.uint32(bit % WORD)
    return words


def host_cells(board: Board, cells: np.ndarray) -> Cells:
    """A constant set of bools [..., C]."""
    words = board_words(board, cells)
    return Cells(tuple(cast("Array", words[..., index]) for index in range(board.num_words)))


def all_cells(board: Board) -> Cells:
    """The set of all cells."""
    return host_cells(board, np.ones(board.num_cells, bool))


def as_bools(board: Board, cells: Cells) -> Array:
    """[..., C] bool of a set with the axes [...]."""
    words, bits = board.bits // WORD, (board.bits % WORD).astype(np.uint32)
    chosen = packed(cells)[..., words]
    return (chosen >> bits.reshape((1,) * (chosen.ndim - 1) + (-1,))) & 1 != 0


def shift(board: Board, cells: Cells, direction: int) -> Cells:
    """Each cell moved one step in a direction; those that leave the board are gone."""
    right, down = board.directions[direction]
    places, words = down * board.stride + right, cells.words
    moved = _up(words, places) if places > 0 else tuple(reversed(_down(words[::-1], -places)))
    return Cells(moved) & _entered(board, direction)


def _up(words: tuple[Array, ...], places: int) -> tuple[Array, ...]:
    """Bits moved to higher places."""
    up, carried = np.uint32(places), np.uint32(WORD - places)
    return tuple(
        word << up if below is None else (word << up) | (below >> carried)
        for word, below in zip(words, (None, *words[:-1]), strict=True)
    )


def _down(words: tuple[Array, ...], places: int) -> tuple[Array, ...]:
    """Bits moved to lower places; the words come, and are returned, from the highest."""
    down, carried = np.uint32(places), np.uint32(WORD - places)
    return tuple(
        word >> down if above is None else (word >> down) | (above << carried)
        for word, above in zip(words, (None, *words[:-1]), strict=True)
    )


def _entered(board: Board, direction: int) -> Cells:
    """The cells that can be entered in a direction: what is moved over the edge lands in others."""
    back = (direction + board.num_axes) % len(board.directions)
    return host_cells(board, np.array([board.neighbor(cell, back) >= 0 for cell in range(board.num_cells)]))


class Ahead(NamedTuple):
    """How `ahead` moves the bits of each direction: all lanes alike, so that they are computed side by side."""

    is_down: np.ndarray  # [D] bool
    up: np.ndarray  # [D] uint32, places to the left, of the word above if bits move down
    carried: np.ndarray  # [D] uint32, 32 less that
    left: Cells  # [D] the cells whose neighbour in this direction is on the board


def make_ahead(board: Board) -> Ahead:
    """The tables of `ahead`."""
    places = np.array([down * board.stride + right for right, down in board.directions])
    up = np.where(places > 0, WORD - places, -places).astype(np.uint32)
    on_board = [
        [board.neighbor(cell, direction) >= 0 for cell in range(board.num_cells)]
        for direction in range(len(board.directions))
    ]
    return Ahead(places > 0, up, np.uint32(WORD) - up, host_cells(board, np.array(on_board)))


def ahead(tables: Ahead, cells: Cells) -> Cells:
    """What each cell has one step ahead: sets [..., D or 1] as sets [..., D], by direction."""
    words, none = cells.words, jnp.zeros_like(cells.words[0])
    shape = (1,) * (none.ndim - 1) + (-1,)
    is_down, up, carried = (table.reshape(shape) for table in tables[:3])
    found = []
    for index, left in enumerate(tables.left.words):
        below = words[index - 1] if index else none
        above = words[index + 1] if index + 1 < len(words) else none
        high, low = jnp.where(is_down, above, words[index]), jnp.where(is_down, words[index], below)
        found.append(((high << up) | (low >> carried)) & left.reshape(shape))
    return Cells(tuple(found))
