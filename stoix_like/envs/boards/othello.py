"""Othello on 8 x 8 cells. Actions are the cells, row by row from the top left, then the pass.

Rules as in pgx's `othello`: who cannot turn a stone must pass, and a pass is an action of its own; the game is over
when the board is full, when two passes follow each other, or when a player has no stone left. Each player's stones are
two words of 32 bits, rows 0 to 3 and rows 4 to 7, and all eight directions are searched at once by shifting them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.boards import tables
from stoix_like.games import BoardGame, BoardLayout
from stoix_like.types import Array, Observation

SIZE, NUM_CELLS, PASS = 8, 64, 64
_WORD = 32  # bits
_BITS = np.arange(_WORD, dtype=np.uint32)
#: Right, down left, down and down right; the other four directions are the same shifts the other way.
_SHIFTS = np.array([1, 7, 8, 9], np.uint32)
#: Stones that can be turned in these directions: those in the outer columns have nothing beside them. What is shifted
#: over the edge of the board lands in an outer column, so it is lost here as well.
_INNER = np.array([[0x7E7E7E7E, 0x7E7E7E7E, 0xFFFFFFFF, 0x7E7E7E7E]], np.uint32)
_ALL = np.uint32(0xFFFFFFFF)
#: Corners first, the cells beside them last, edges before the middle: the order that any beginner's book gives.
_QUARTER = np.array([[100, -20, 10, 5], [-20, -50, -2, -2], [10, -2, 1, 1], [5, -2, 1, 0]], np.float32)
_HALF = np.concatenate([_QUARTER, _QUARTER[:, ::-1]], axis=1)  # [4, 8]
_WORTH = np.concatenate([_HALF, _HALF[::-1]]).reshape(NUM_CELLS)
_A_REPLY = 8.0
_PASS_WORTH = -1000.0


class OthelloState(NamedTuple):
    """A position. `legal` follows from `stones`, and is kept because it is asked for more often than it changes."""

    stones: Array  # [2, 2] uint32: of the player to move, of the other one; bit = cell within the half of the board
    legal: Array  # [2] uint32, the cells where the player to move may put a stone
    player: Array  # [] int8, to move
    num_passes: Array  # [] int8, passes since the last stone


def make_othello() -> BoardGame:
    """Othello, with the rules of pgx's `othello`."""
    return BoardGame(
        name="othello",
        num_players=2,
        num_actions=NUM_CELLS + 1,
        max_plies=119,  # 60 stones; two passes after each other end the game: at most 59 stones, 58 passes between, 2
        init=_init,
        step=_step,
        observe=_observe,
        legal_actions=_legal_actions,
        player=lambda state: state.player.astype(jnp.int32),
        outcome=_outcome,
        is_over=_is_over,
        cells=_cells,
        preference=_preference,
        layout=BoardLayout(
            (SIZE, SIZE), "square", tables.square_neighbors(SIZE, SIZE), tables.cell_names(SIZE, SIZE, "pass")
        ),
        symmetries=tables.square_symmetries(SIZE, num_other_actions=1),
    )


def _init() -> OthelloState:
    first, second = (1 << 28) | (1 << 35), (1 << 27) | (1 << 36)
    stones = jnp.array([[first & 0xFFFFFFFF, first >> 32], [second & 0xFFFFFFFF, second >> 32]], jnp.uint32)
    return OthelloState(stones, _movable(stones), jnp.int8(0), jnp.int8(0))


def _step(state: OthelloState, action: Array) -> OthelloState:
    bit = jnp.uint32(1) << (action % _WORD).astype(jnp.uint32)
    stone = jnp.where(jnp.arange(2) == action // _WORD, bit, jnp.uint32(0))  # [2]; none for a pass
    mine, theirs = state.stones
    turned = _turned(stone, mine, theirs)
    stones = jnp.stack([theirs & ~turned, mine | stone | turned])
    num_passes = jnp.where(action == PASS, state.num_passes + 1, 0).astype(jnp.int8)
    return OthelloState(stones, _movable(stones), 1 - state.player, num_passes)


def _turned(stone: Array, mine: Array, theirs: Array) -> Array:
    """The other player's stones, [2] uint32, between a new `stone` and stones of `mine`, each [2]."""
    found = []
    for shift in (_shift_up, _shift_down):
        row, behind = _rows(stone, theirs, shift)
        is_closed = jnp.any((behind & mine[:, None]) != 0, axis=0)  # [4]
        found.append(jnp.bitwise_or.reduce(jnp.where(is_closed, row, jnp.uint32(0)), axis=1))
    return found[0] | found[1]


def _movable(stones: Array) -> Array:
    """The free cells, [2] uint32, where a stone of the player to move turns at least one other."""
    mine, theirs = stones
    # `reduce` keeps XLA from computing the search anew for each of the 64 cells that are read from its result.
    found = [jnp.bitwise_or.reduce(_rows(mine, theirs, shift)[1], axis=1) for shift in (_shift_up, _shift_down)]
    return (found[0] | found[1]) & ~(mine | theirs)


def _rows(stones: Array, theirs: Array, shift: Callable[[Array], Array]) -> tuple[Array, Array]:
    """The unbroken rows of the other player's stones that begin beside `stones` [2], and the cells behind them.

    Both [2, 4] uint32: by word, by direction.
    """
    inner = theirs[:, None] & _INNER  # [2, 4]
    row = inner & shift(jnp.broadcast_to(stones[:, None], (2, 4)))
    for _ in range(SIZE - 3):
        row |= inner & shift(row)
    return row, shift(row)


def _shift_up(words: Array) -> Array:
    """`words` [2, 4] moved to higher cells, each direction by its own number of cells."""
    low, high = words
    return jnp.stack([low << _SHIFTS, (high << _SHIFTS) | (low >> (_WORD - _SHIFTS))])


def _shift_down(words: Array) -> Array:
    low, high = words
    return jnp.stack([(low >> _SHIFTS) | (high << (_WORD - _SHIFTS)), high >> _SHIFTS])


def _bits(words: Array) -> Array:
    """[..., 2] words as [..., 64] bool."""
    return ((words[..., None] >> _BITS.reshape((1,) * words.ndim + (_WORD,))) & 1 != 0).reshape(
        *words.shape[:-1], NUM_CELLS
    )


def _legal_actions(state: OthelloState) -> Array:
    return jnp.concatenate([_bits(state.legal), jnp.all(state.legal == 0)[None]])


def _observe(state: OthelloState) -> Observation:
    return Observation(_bits(state.stones).T, _legal_actions(state))  # [64, 2]


def _is_over(state: OthelloState) -> Array:
    mine, theirs = state.stones
    return jnp.all((mine | theirs) == _ALL) | jnp.all(mine == 0) | (state.num_passes >= 2)


def _outcome(state: OthelloState) -> Array:
    counts = jnp.sum(jax.lax.population_count(state.stones).astype(jnp.int32), axis=1)  # [2]
    result = jnp.where(_is_over(state), jnp.sign(counts[0] - counts[1]), 0).astype(jnp.float32)
    return jnp.where(jnp.arange(2) == state.player, result, -result)


def _cells(state: OthelloState) -> Array:
    mine, theirs = _bits(state.stones)  # each [64]
    return jnp.where(mine, state.player, jnp.where(theirs, 1 - state.player, jnp.int8(-1)))


def _preference(state: OthelloState) -> Array:
    """A fixed worth of each cell (corners 100, beside them -20 and -50, then edges, then the middle), less 8 for each
    reply that the stone leaves to the other player; a pass comes last. Frozen: ratings are anchored on it."""
    after = jax.vmap(_step, in_axes=(None, 0))(state, jnp.arange(NUM_CELLS))
    num_replies = jnp.sum(jax.lax.population_count(after.legal).astype(jnp.int32), axis=1)  # [64]
    return jnp.append(_WORTH - _A_REPLY * num_replies, _PASS_WORTH).astype(jnp.float32)
