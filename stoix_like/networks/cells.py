"""The torso for worlds of cells with a player: the stack of `BoardTorso`, read where the player stands as well."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from stoix_like.networks.board import cell_features, summary
from stoix_like.types import Array, Observation

_STEPS = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])


def square_neighbors(num_rows: int, num_cols: int) -> np.ndarray:
    """[R * C, 4] the cells above, below, left and right of each cell; -1 outside."""
    places = np.stack(np.divmod(np.arange(num_rows * num_cols), num_cols), axis=-1)[:, None] + _STEPS  # [C, 4, 2]
    inside = ((places >= 0) & (places < [num_rows, num_cols])).all(axis=-1)
    return np.where(inside, places @ [num_cols, 1], -1).astype(np.int32)


class CellsTorso(nn.Module):
    """[B, R * C * 4 + 3 * width] from `cells` [B, R, C, K], `player` [B, R, C] and `actions_left` [B].

    Beside what `BoardTorso` has of the whole there are the features of the player's cell, where a move begins.
    """

    width: int
    num_blocks: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> Array:
        """[B, R * C * 4 + 3 * width] from an observation with leaves [B, ...]."""
        view = observation.agent_view
        batch, rows, columns, _ = view["cells"].shape
        left = jnp.broadcast_to(view["actions_left"][:, None, None, None], (batch, rows, columns, 1))
        planes = jnp.concatenate([view["cells"], view["player"][..., None], left], axis=-1)
        planes = planes.reshape(batch, rows * columns, -1).astype(self.dtype)
        cells = cell_features(planes, square_neighbors(rows, columns), self.width, self.num_blocks)
        of_player = (cells * view["player"].reshape(batch, -1, 1).astype(self.dtype)).sum(axis=1)
        return jnp.concatenate([summary(cells), of_player], axis=-1)
