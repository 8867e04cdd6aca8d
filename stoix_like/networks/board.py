"""Torsos for boards: what a network sees of a position, as tables of the board allow.

`LineTorso` is told which lines win: for each line how far either player is, and which cells would complete one. These
features matter more than depth or width in connect four. `BoardTorso` is told the neighbours of each cell alone, and
fits every board, hexagonal ones too: a residual stack in which gathered neighbours are multiplied by one matrix. No
convolution, whose gradient inside `lax.scan` is 50 times slower on CPU, and no batch normalisation, whose running
means would be one more state.

Both return one vector per position. Planes 0 and 1 are the mover's cells and those of others.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from stoix_like.games import BoardLayout, Lines
from stoix_like.networks.layers import MLP, Dense
from stoix_like.networks.neighbors import NeighborLayer, residual_stack
from stoix_like.types import Array, Observation


class LineTorso(nn.Module):
    """[B, widths[-1]] from planes [B, C, channels]: line features, then an MLP."""

    lines: Lines
    widths: tuple[int, ...]
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> Array:
        """[B, widths[-1]] from an observation with leaves [B, ...]."""
        return MLP(self.widths, dtype=self.dtype)(line_features(self.lines, observation.agent_view))


def line_features(lines: Lines, planes: Array) -> Array:
    """What the lines say of positions, [B, features] of 0 and 1, from planes [B, C, channels].

    For each line, how many of its cells the mover has (1 to K - 1) if nobody else has one, and the same of the others;
    for each cell, whose it is, whether it can be taken now, and whether it would complete a line of the mover or of
    others, at all and now.
    """
    num_cells, length = planes.shape[1], lines.cells.shape[1]
    incidence = np.zeros((num_cells, len(lines.cells)), np.float32)  # [C, L]
    incidence[lines.cells, np.arange(len(lines.cells))[:, None]] = 1.0
    own, other = planes[..., 0].astype(jnp.float32), planes[..., 1].astype(jnp.float32)  # [B, C]
    own_counts, other_counts = own @ incidence, other @ incidence  # [B, L]
    own_counts, other_counts = (
        jnp.where(other_counts > 0.0, 0.0, own_counts),
        jnp.where(own_counts > 0.0, 0.0, other_counts),
    )
    taken = own + other
    now = _can_be_taken(lines, taken)
    parts = [planes.reshape(planes.shape[0], -1).astype(jnp.float32), now]
    for counts in (own_counts, other_counts):
        parts += [(counts == number).astype(jnp.float32) for number in range(1, length)]
        completes = ((counts == length - 1).astype(jnp.float32) @ incidence.T > 0.0) * (1.0 - taken)
        parts += [completes, completes * now]
    return jnp.concatenate(parts, axis=-1)


def _can_be_taken(lines: Lines, taken: Array) -> Array:
    """[B, C] of 0 and 1: empty cells whose cell below is taken, if there is gravity."""
    if lines.below is None:
        return 1.0 - taken
    supported = jnp.where(jnp.asarray(lines.below < 0)[None], 1.0, taken[:, lines.below])
    return (1.0 - taken) * supported


class BoardTorso(nn.Module):
    """[B, C * 4 + 2 * width] from planes [B, C, channels]: a residual stack over the cells.

    The vector has four numbers of every cell, from which a policy over cells or columns is read, and the mean and the
    maximum of all features over the cells, as in KataGo (Wu 2019, arXiv 1902.10565, §3.3), for what is global.
    """

    layout: BoardLayout
    width: int
    num_blocks: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> Array:
        """[B, C * 4 + 2 * width] from an observation with leaves [B, ...]."""
        planes = observation.agent_view.astype(self.dtype)
        on_board = jnp.ones((*planes.shape[:2], 1), planes.dtype)  # tells the border from an empty neighbour
        neighbors = self.layout.neighbors
        cells = jnp.swapaxes(jnp.concatenate([planes, on_board], axis=-1), 0, 1)
        cells = jnp.swapaxes(NeighborLayer(neighbors, self.width, dtype=self.dtype)(cells), 0, 1)
        cells = residual_stack(neighbors, cells, self.num_blocks, self.dtype)
        local = nn.relu(Dense(4, dtype=self.dtype)(cells))
        parts = [local.reshape(planes.shape[0], -1), cells.mean(axis=1), cells.max(axis=1)]
        return jnp.concatenate(parts, axis=-1)
