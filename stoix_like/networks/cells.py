"""The torso for worlds of cells in which one cell is the player's: a board's stack, read where the player stands."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from stoix_like.games import BoardLayout
from stoix_like.networks.board import BoardTorso
from stoix_like.types import Array, Observation

_STEPS = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])


def square_layout(num_rows: int, num_cols: int) -> BoardLayout:
    """A square board whose cells have four neighbours."""
    places = np.stack(np.divmod(np.arange(num_rows * num_cols), num_cols), axis=-1)[:, None] + _STEPS  # [C, 4, 2]
    inside = ((places >= 0) & (places < [num_rows, num_cols])).all(axis=-1)
    neighbors = np.where(inside, places @ [num_cols, 1], -1).astype(np.int32)
    return BoardLayout((num_rows, num_cols), "square", neighbors, ())


class CellsTorso(BoardTorso):
    """[B, C * 4 + 3 * width] from `cells` [B, R, C, K], whose last plane marks the player, and `actions_left` [B].

    Beside what `BoardTorso` reads of the whole there are the features of the player's cell, where a move begins.
    """

    @nn.compact
    def __call__(self, observation: Observation) -> Array:
        """[B, C * 4 + 3 * width] from an observation with leaves [B, ...]."""
        view = observation.agent_view
        planes = view["cells"].reshape(view["cells"].shape[0], -1, view["cells"].shape[-1]).astype(self.dtype)
        left = jnp.broadcast_to(view["actions_left"].astype(self.dtype)[:, None, None], (*planes.shape[:2], 1))
        cells = self._cells(jnp.concatenate([planes, left], axis=-1))
        of_player = (cells * planes[..., -1:]).sum(axis=1)
        return jnp.concatenate([self._summary(cells), of_player], axis=-1)
