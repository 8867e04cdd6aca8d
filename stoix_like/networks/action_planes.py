"""The network for boards whose actions are many and of few kinds: a residual torso, and policy planes of the cells.

AlphaZero's networks of chess and Go score actions by cell and plane (Silver et al. 2018, doi 10.1126/science.aar6404,
methods). Here the planes of a cell are gathered into the game's own list of actions, and an action that leads from one
cell to another has a product of what both cells say besides. A head of one matrix over all cells and actions would have
most of the network's weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from stoix_like.games import ActionPlaces, BoardLayout
from stoix_like.networks.layers import POLICY_GAIN, Dense
from stoix_like.networks.neighbors import residual_stack
from stoix_like.types import Array, Observation

PAIR_WIDTH = 16  # of what a start and a landing say of their pair


class BoardFeatures(NamedTuple):
    """What a torso makes of a position: of each cell, and of all."""

    cells: Array  # [B, C, D]
    summary: Array  # [B, 2 D + shared planes]: means and maxima over the cells, and what was the same on all


class ActionPlanesTorso(nn.Module):
    """BoardFeatures from planes [B, C, channels] and legal actions [B, A]: a residual stack over the cells.

    Each cell sees its planes, and which kinds of actions are legal from it. Planes that are the same on all cells are
    read once.
    """

    layout: BoardLayout
    width: int
    num_blocks: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> BoardFeatures:
        """BoardFeatures from an observation with leaves [B, ...]."""
        assert self.layout.action_places is not None  # narrows the type
        planes = observation.agent_view.astype(self.dtype)
        num_local = planes.shape[-1] - self.layout.num_shared_planes
        shared = planes[:, 0, num_local:]  # [B, shared planes]
        legal = legal_planes(self.layout.action_places, self.layout.num_cells, observation.action_mask)
        local = jnp.concatenate([planes[..., :num_local], legal.astype(self.dtype)], axis=-1)
        cells = Dense(self.width, dtype=self.dtype, name="planes")(local)
        cells += Dense(self.width, use_bias=False, dtype=self.dtype, name="shared")(shared)[:, None]
        cells = residual_stack(self.layout.neighbors, cells, self.num_blocks, self.dtype)
        return BoardFeatures(cells, jnp.concatenate([cells.mean(axis=1), cells.max(axis=1), shared], axis=-1))


class ActionPlanesHead(nn.Module):
    """Logits [B, A] from BoardFeatures: planes of the cells, pairs of cells, and of the whole what has no cell."""

    places: ActionPlaces

    @nn.compact
    def __call__(self, features: BoardFeatures) -> Array:
        """Logits [B, A]."""
        cells, summary = features.cells.astype(jnp.float32), features.summary.astype(jnp.float32)
        batch, num_cells = cells.shape[:2]
        by_plane = Dense(num_planes(self.places), gain=POLICY_GAIN, name="by_plane")(cells)  # [B, C, planes]
        of_all = Dense(num_without_cell(self.places), gain=POLICY_GAIN, name="of_all")(summary)
        # Only one side starts small: with both small neither would get a gradient.
        starts = Dense(PAIR_WIDTH, gain=1.0, name="starts")(cells)
        landings = Dense(PAIR_WIDTH, gain=POLICY_GAIN, name="landings")(cells)
        pairs = jnp.matmul(starts, jnp.swapaxes(landings, 1, 2)) * PAIR_WIDTH**-0.5  # [B, C, C]
        scores = jnp.concatenate([by_plane.reshape(batch, -1), of_all], axis=1)
        scores = _taken(scores, *_plane_tables(self.places, num_cells))
        return scores + _taken(pairs.reshape(batch, -1), *_pair_tables(self.places, num_cells))


def num_planes(places: ActionPlaces) -> int:
    """Planes of a cell."""
    return int(places.planes[places.cells >= 0].max()) + 1


def num_without_cell(places: ActionPlaces) -> int:
    """Actions that begin on no cell."""
    return int(np.sum(places.cells < 0))


def legal_planes(places: ActionPlaces, num_cells: int, legal: Array) -> Array:
    """[B, C, planes] bool: which kinds of actions are legal from each cell, from the legal actions [B, A]."""
    _, actions = _plane_tables(places, num_cells)
    return _padded(legal)[:, actions[: num_cells * num_planes(places)]].reshape(len(legal), num_cells, -1)


def _plane_tables(places: ActionPlaces, num_cells: int) -> tuple[np.ndarray, np.ndarray]:
    """(the score of each action among planes of cells and those of all [A], the action of each score; A: none)."""
    width = num_planes(places)
    scores = np.where(places.cells >= 0, places.cells * width + places.planes, num_cells * width + places.planes)
    return _both_ways(scores, num_cells * width + num_without_cell(places))


def _pair_tables(places: ActionPlaces, num_cells: int) -> tuple[np.ndarray, np.ndarray]:
    """(the score of each action among pairs of cells [A]; C C of what is no pair, the action of each pair; A: none)."""
    pairs = np.where(places.landings >= 0, places.cells * num_cells + places.landings, num_cells**2)
    return _both_ways(pairs, num_cells**2)


def _both_ways(scores: np.ndarray, num_scores: int) -> tuple[np.ndarray, np.ndarray]:
    actions = np.full(num_scores + 1, len(scores), np.int32)
    actions[scores] = np.arange(len(scores))
    return scores.astype(np.int32), actions[:-1]


def _taken(scores: Array, index: np.ndarray, inverse: np.ndarray) -> Array:
    """[B, A] of scores [B, S] at the index [A]; 0 at S. Each score is taken once at most, so the gradient is a gather
    by the `inverse` [S], too: XLA's scatter is slow on CPU."""

    @jax.custom_vjp
    def take(scores: Array) -> Array:
        return _padded(scores)[:, index]

    def backward(_: None, gradient: Array) -> tuple[Array]:
        return (_padded(gradient)[:, inverse],)

    take.defvjp(lambda scores: (take(scores), None), backward)
    found: Array = take(scores)
    return found


def _padded(rows: Array) -> Array:
    """[B, S + 1], with a 0 at the end of each row."""
    return jnp.pad(rows, ((0, 0), (0, 1)))
