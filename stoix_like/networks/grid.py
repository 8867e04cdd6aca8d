"""The torso for mazes: what the cells look like flows through the maze, and the agent reads it where it stands.

A stack of convolutions sees as far as it is deep; a shortest path in a 10x10 maze is up to about 35 cells long. So a
3x3 convolution gives each cell features, from which a learned source and a learned cost per cell follow; `propagate`
carries them along the corridors; and an MLP reads the agent's cell and its four neighbours, as in value iteration
networks (Tamar et al. 2016, arXiv 1602.02867). That a wall lets nothing through is given, as the action mask is; what
attracts, what a step costs and what to do about it is learned.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from stoix_like.networks.layers import MLP, Conv3x3, Dense
from stoix_like.networks.propagation import BLOCKED, propagate
from stoix_like.types import Array, Observation

CELL_FEATURES, CHANNELS = 16, 8
#: Sources must differ by more than the cost of the longest way (about 30 cells of 0.4), or the far end is not heard.
SOURCE_SCALE = 15.0
MIN_COST = 0.05
WALL_SOURCE, WALL_COST = BLOCKED / 10, -BLOCKED
GLIMPSE = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))  # the agent's cell, then up, right, down, left


def planes(agent_view: Any) -> Array:
    """[B, R, C, 3] float32: one-hot walls, agent and target."""
    rows, columns = agent_view["walls"].shape[1:]
    marks = [agent_view["walls"].astype(jnp.float32)]
    for name in ("agent_position", "target_position"):
        row = jax.nn.one_hot(agent_view[name].row, rows)  # [B, R]
        column = jax.nn.one_hot(agent_view[name].col, columns)  # [B, C]
        marks.append(row[:, :, None] * column[:, None, :])
    return jnp.stack(marks, axis=-1)


class GridTorso(nn.Module):
    """[B, width] from a maze observation: `walls`, `agent_position`, `target_position`, `step_count`.

    Attributes:
        width: of the two layers of the reading MLP.
        num_steps: steps of propagation, the longest way that is felt, in cells.
        time_limit: what `step_count` is divided by, steps.
        platform: "cpu" or another, see `Conv3x3` and `propagate`.
        dtype: of the dense arithmetic; propagation is float32, since it adds up over many cells.
    """

    width: int
    num_steps: int
    time_limit: int
    platform: str
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> Array:
        """[B, width] from an observation with leaves [B, ...]."""
        view = observation.agent_view
        cells = nn.relu(Conv3x3(CELL_FEATURES, self.platform, dtype=self.dtype)(planes(view)))  # [B, R, C, 16]
        values = self._values(cells, view["walls"])  # [R, C, B, CHANNELS]
        near_values, near_cells = _glimpse(values, cells, view["agent_position"])  # [B, 5, CHANNELS], [B, 5, 16]
        # Differences say where to go; clipped, because a wall or the border only needs to be lower.
        slopes = jnp.clip(near_values[:, 1:] - near_values[:, :1], -4.0, 4.0)
        fraction = view["step_count"].astype(jnp.float32) / self.time_limit  # [B]
        parts = [near_values[:, 0] / SOURCE_SCALE, slopes, near_cells.astype(jnp.float32), fraction]
        flat = jnp.concatenate([p.reshape(fraction.shape[0], -1) for p in parts], axis=-1)
        return MLP((self.width, self.width), dtype=self.dtype)(flat)

    def _values(self, cells: Array, walls: Array) -> Array:
        batch, rows, columns = walls.shape
        source = SOURCE_SCALE * Dense(CHANNELS, gain=1.0, dtype=self.dtype, name="source")(cells)
        cost = Dense(CHANNELS, gain=1.0, dtype=self.dtype, name="cost")(cells).astype(jnp.float32)
        wall = walls[..., None]
        source = jnp.where(wall, WALL_SOURCE, source.astype(jnp.float32))
        cost = jnp.where(wall, WALL_COST, MIN_COST + jax.nn.softplus(cost - 1.0))
        source, cost = (x.transpose(1, 2, 0, 3).reshape(rows, columns, -1) for x in (source, cost))
        return propagate(source, cost, self.num_steps, self.platform).reshape(rows, columns, batch, CHANNELS)


def _glimpse(values: Array, cells: Array, position: Any) -> tuple[Array, Array]:
    """[B, 5, CHANNELS] of values [R, C, B, ...] and [B, 5, D] of cells [B, R, C, D], at and around the position."""
    values = jnp.pad(values, ((1, 1), (1, 1), (0, 0), (0, 0)), constant_values=BLOCKED)
    cells = jnp.pad(cells, ((0, 0), (1, 1), (1, 1), (0, 0)))
    down, right = np.array(GLIMPSE).T + 1  # [5] each; 1 for the border

    def look(values: Array, cells: Array, row: Array, column: Array) -> tuple[Array, Array]:
        return values[row + down, column + right], cells[row + down, column + right]

    # By vmap, so that environments spread over devices look at their own alone.
    near: tuple[Array, Array] = jax.vmap(look, in_axes=(2, 0, 0, 0))(values, cells, position.row, position.col)
    return near
