"""The network for worlds of cells with a player that moves in four directions.

One MLP takes all cells, placed relative to the player and rotated so that the direction it judges points up. A level
that is rotated by quarter turns has the same value and permuted logits, as in the networks of Cohen & Welling (2016,
arXiv 1602.07576); a mirrored one has not. What this gains is in docs/log.md, under text worlds.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from stoix_like.networks.layers import MLP, POLICY_GAIN, VALUE_GAIN, Dense
from stoix_like.types import Array, Observation

NUM_DIRECTIONS = 4  # up, down, left, right: the order of the actions


def turned_cells(size: int) -> np.ndarray:
    """[4, size ** 2] the cells of a square, counted row by row, as they lie when up, down, left or right points up."""
    square = np.arange(size**2).reshape(size, size)
    return np.stack([np.rot90(square, turns) for turns in (0, 2, 3, 1)]).reshape(NUM_DIRECTIONS, -1)


def surroundings(cells: Array, player: Array) -> Array:
    """[B, (2 * N - 1) ** 2, K] the cells around the player, row by row, with it in the middle. Zeros beyond the world.

    Args:
        cells: [B, R, C, K].
        player: [B, R, C], 1 at one cell. N is the greater of R and C.
    """
    batch, rows, columns, width = cells.shape
    reach = max(rows, columns) - 1
    padded = jnp.pad(cells, ((0, 0), (reach, reach), (reach, reach), (0, 0)))
    row, column = jnp.divmod(jnp.argmax(player.reshape(batch, -1), axis=-1), columns)  # [B]
    near = jnp.arange(2 * reach + 1)
    places = (row[:, None] + near[None])[:, :, None] * padded.shape[2] + (column[:, None] + near[None])[:, None]
    return jnp.take_along_axis(padded.reshape(batch, -1, width), places.reshape(batch, -1, 1), axis=1)


class CellsTorso(nn.Module):
    """[B, 4, widths[-1]] from `cells` [B, R, C, K], `player` [B, R, C] and `actions_left` [B]: the world as the player
    sees it when it faces up, down, left and right, each through the same MLP."""

    widths: tuple[int, ...]
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> Array:
        """[B, 4, widths[-1]] from an observation with leaves [B, ...]."""
        view = observation.agent_view
        in_world = jnp.ones((*view["cells"].shape[:3], 1), view["cells"].dtype)  # tells the border from a free cell
        around = surroundings(jnp.concatenate([view["cells"], in_world], axis=-1), view["player"])
        size = round(around.shape[1] ** 0.5)
        turned = around[:, turned_cells(size)]  # [B, 4, size ** 2, K + 1]
        turned = turned.reshape(*turned.shape[:2], -1)
        left = jnp.broadcast_to(view["actions_left"][:, None, None], (*turned.shape[:2], 1))
        return MLP(self.widths, dtype=self.dtype)(jnp.concatenate([turned, left], axis=-1).astype(self.dtype))


class DirectionHead(nn.Module):
    """Logits [B, 4] from the features [B, 4, D] of each direction, by one layer for all of them."""

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """[B, 4] from [B, 4, D]."""
        return Dense(1, gain=POLICY_GAIN)(features.astype(jnp.float32))[..., 0]


class DirectionValueHead(nn.Module):
    """Values [B] from the features [B, 4, D]: of their mean and maximum over the directions."""

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """[B] from [B, 4, D]."""
        features = features.astype(jnp.float32)
        of_all = jnp.concatenate([features.mean(axis=1), features.max(axis=1)], axis=-1)
        return Dense(1, gain=VALUE_GAIN)(of_all)[:, 0]
