"""Hex on 11 x 11 cells with the swap rule. Actions are the cells, row by row from the top left, then the swap.

Rules as in pgx's `hex`: player 0 connects the top and the bottom, player 1 the left and the right. Instead of its first
stone player 1 may swap: the other player's stone becomes its own, mirrored at the diagonal from the top left.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.boards import tables
from stoix_like.games import BoardGame, BoardLayout
from stoix_like.types import Array, Observation

SIZE, NUM_CELLS, SWAP = 11, 121, 121
NEIGHBORS = tables.hex_neighbors(SIZE, SIZE)  # [121, 6]
_NAMES = np.arange(1, NUM_CELLS + 1, dtype=np.int8)  # of the group that a new stone of player 0 begins


def _centre_distance() -> np.ndarray:
    down, right = np.divmod(np.arange(NUM_CELLS), SIZE)
    down, right = down - SIZE // 2, right - SIZE // 2
    return np.maximum(np.maximum(abs(down), abs(right)), abs(down + right)).astype(np.float32)  # [121], in moves


_CENTRE_DISTANCE = _centre_distance()
_WORTH_A_SWAP = 3  # a first stone this near the centre is taken
_BLOCKED = 1000.0  # the cost of a cell with a stone in the way: more than any path


class HexState(NamedTuple):
    """A position."""

    groups: Array  # [121] int8, 0: empty; the same number for connected stones: above 0 player 0, below 0 player 1
    num_plies: Array  # [] int8
    is_connected: Array  # [] bool: who moved last has won


def make_hex_11x11() -> BoardGame:
    """Hex, with the rules and the planes of pgx's `hex`."""
    cells = np.arange(NUM_CELLS, dtype=np.int32)
    return BoardGame(
        name="hex_11x11",
        num_players=2,
        num_actions=NUM_CELLS + 1,
        max_plies=NUM_CELLS + 1,
        init=lambda: HexState(jnp.zeros((NUM_CELLS,), jnp.int8), jnp.int8(0), jnp.bool_(False)),
        step=_step,
        observe=_observe,
        legal_actions=_legal_actions,
        player=_player,
        outcome=_outcome,
        is_over=lambda state: state.is_connected,
        cells=lambda state: jnp.where(state.groups > 0, 0, jnp.where(state.groups < 0, 1, -1)).astype(jnp.int8),
        preference=_preference,
        layout=BoardLayout((SIZE, SIZE), "hex", NEIGHBORS, tables.cell_names(SIZE, SIZE, "swap")),
        # Mirrored boards exchange who connects which sides, so only the half turn is left.
        symmetries=tables.with_cell_actions(np.stack([cells, cells[::-1]]), num_other_actions=1),
    )


def _player(state: HexState) -> Array:
    return state.num_plies.astype(jnp.int32) % 2


def _sign(state: HexState) -> Array:
    """1 if player 0 is to move, -1 if player 1 is. [] int8."""
    return (1 - 2 * (state.num_plies % 2)).astype(jnp.int8)


def _step(state: HexState, action: Array) -> HexState:
    cell, sign = jnp.minimum(action, NUM_CELLS - 1), _sign(state)
    name = sign * (cell + 1).astype(jnp.int8)
    beside = jnp.asarray(NEIGHBORS)[cell]  # [6]
    groups_beside = jnp.where(beside >= 0, state.groups[beside], jnp.int8(0))
    is_joined = jnp.arange(NUM_CELLS) == cell  # [121]
    for group in groups_beside:
        is_joined |= (state.groups == group) & (group * sign > 0)
    groups = jnp.where(is_joined, name, state.groups)
    ends = jnp.where(sign > 0, is_joined, is_joined.reshape(SIZE, SIZE).T.reshape(-1))  # [121], own sides above, below
    is_swap = action == SWAP
    is_connected = jnp.any(ends[:SIZE]) & jnp.any(ends[-SIZE:]) & ~is_swap
    mirrored = jnp.where(state.groups.reshape(SIZE, SIZE).T.reshape(-1) != 0, -_NAMES, jnp.int8(0))
    return HexState(jnp.where(is_swap, mirrored, groups), state.num_plies + jnp.int8(1), is_connected)


def _legal_actions(state: HexState) -> Array:
    return jnp.concatenate([state.groups == 0, (state.num_plies == 1)[None]])


def _observe(state: HexState) -> Observation:
    """Planes: own stones, the other's, whether player 1 is to move, whether it may swap."""
    groups = state.groups * _sign(state)
    second, can_swap = (jnp.broadcast_to(x, (NUM_CELLS,)) for x in (_player(state) == 1, state.num_plies == 1))
    return Observation(jnp.stack([groups > 0, groups < 0, second, can_swap], axis=-1), _legal_actions(state))


def _outcome(state: HexState) -> Array:
    lost = jnp.arange(2) == _player(state)
    return jnp.where(state.is_connected, jnp.where(lost, -1.0, 1.0), 0.0).astype(jnp.float32)


def _preference(state: HexState) -> Array:
    """The fewest stones that a connection through the cell still needs, the own one and that of the other player (a
    stone there blocks it) added, fewer is better; then nearness to the centre. The swap is preferred if the first stone
    lies within three cells of the centre. Frozen: ratings are anchored on it."""
    board = (state.groups * _sign(state)).reshape(SIZE, SIZE)  # above 0 own
    downwards = jnp.where(state.num_plies % 2 == 0, board, board.T)  # the player to move connects top and bottom
    own, other = _missing_stones(downwards), _missing_stones(-downwards.T).T  # each [11, 11]
    needed = jnp.where(state.num_plies % 2 == 0, own + other, (own + other).T).reshape(-1)  # [121]
    is_central = jnp.any((state.groups != 0) & (_CENTRE_DISTANCE <= _WORTH_A_SWAP))
    worth = -needed - _CENTRE_DISTANCE / NUM_CELLS
    return jnp.append(worth, jnp.where(is_central, 0.0, -4.0 * _BLOCKED)).astype(jnp.float32)


def _missing_stones(board: Array) -> Array:
    """For each cell, how many stones a connection of top and bottom through it still needs. [11, 11] float32.

    `board` [11, 11] is above 0 on the stones that connect and below 0 on those in their way, which cost `_BLOCKED`.
    """
    cost = jnp.where(board > 0, 0.0, jnp.where(board < 0, _BLOCKED, 1.0))
    costs = jnp.stack([cost, cost[::-1, ::-1]])  # [2, 11, 11], from the top and, turned, from the bottom
    start = jnp.where(jnp.arange(SIZE)[None, :, None] == 0, costs, 2.0 * _BLOCKED)

    def spread(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        reached, _ = carry
        wide = jnp.pad(reached, ((0, 0), (1, 1), (1, 1)), constant_values=2.0 * _BLOCKED)  # [2, 13, 13]
        beside = [wide[:, 1 + d : 1 + d + SIZE, 1 + r : 1 + r + SIZE] for d, r in tables.HEX_DIRECTIONS]
        after = jnp.minimum(reached, jnp.min(jnp.stack(beside), axis=0) + costs)
        return after, jnp.any(after != reached)

    top, bottom = jax.lax.while_loop(lambda carry: carry[1], spread, (start, jnp.bool_(True)))[0]
    return jnp.minimum(top + bottom[::-1, ::-1] - cost, 2.0 * _BLOCKED)
