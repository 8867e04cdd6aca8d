"""Hex on 11 x 11 cells with the swap rule. Actions are the cells, row by row from the top left, then the swap.

Rules as in pgx's `hex`: player 0 connects the top and the bottom, player 1 the left and the right. Instead of its first
stone player 1 may swap: the other player's stone becomes its own, mirrored at the diagonal from the top left.
"""

from __future__ import annotations

from typing import NamedTuple

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
_OWN_NEIGHBOR, _OTHER_NEIGHBOR = 2.0, 1.0
_WORTH_A_SWAP, _SWAP_WORTH = 3, 100.0  # a first stone this near the centre is taken


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
    """Nearness to the centre, 2 for each own stone beside the cell and 1 for each of the other's; the swap if the first
    stone lies within three cells of the centre. Frozen: ratings are anchored on it."""
    beside = jnp.where(NEIGHBORS >= 0, (state.groups * _sign(state))[NEIGHBORS], jnp.int8(0))  # [121, 6]
    num_own, num_other = jnp.sum(beside > 0, axis=1), jnp.sum(beside < 0, axis=1)  # each [121]
    worth = _OWN_NEIGHBOR * num_own + _OTHER_NEIGHBOR * num_other - _CENTRE_DISTANCE
    is_central = jnp.any((state.groups != 0) & (_CENTRE_DISTANCE <= _WORTH_A_SWAP))
    return jnp.append(worth, jnp.where(is_central, _SWAP_WORTH, -_SWAP_WORTH)).astype(jnp.float32)
