"""Layers over the cells of a board, in which each cell sees its neighbours.

Cells stand first, [C, B, D]: the cells that lie in one direction are then whole rows, and copying them is cheap. With
cells second XLA looks up every number by itself on CPU, and that takes longer than the products.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from stoix_like.networks.layers import HIDDEN_GAIN
from stoix_like.networks.orthogonal import orthogonal
from stoix_like.types import Array

RESIDUAL_GAIN = 0.1  # of the second layer of a block, so that a deep stack begins near the identity


class NeighborLayer(nn.Module):
    """[C, B, features] from cells [C, B, D]: each cell with its neighbours, times one matrix. Zeros off the board."""

    neighbors: np.ndarray  # [C, K], -1 off the board
    features: int
    gain: float = HIDDEN_GAIN
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, cells: Array) -> Array:
        """[C, B, features] from [C, B, D]."""
        num_cells, num_directions = self.neighbors.shape
        table = np.concatenate([np.arange(num_cells)[:, None], self.neighbors], axis=1)  # [C, K + 1]
        width = (num_directions + 1) * cells.shape[-1]
        kernel, bias = _Weights(width, self.features, self.gain, name="Dense_0")()
        cells, kernel, bias = (x.astype(self.dtype) for x in (cells, kernel, bias))
        return neighbor_product(table, cells, kernel) + bias[None, None]


class _Weights(nn.Module):
    """(kernel [rows, features], bias [features]) of a dense layer, where `layers.Dense` would keep them."""

    rows: int
    features: int
    gain: float
    is_outer: bool = True

    @nn.compact
    def __call__(self) -> tuple[Array, Array]:
        if self.is_outer:
            weights: tuple[Array, Array] = _Weights(self.rows, self.features, self.gain, False, name="Dense_0")()
            return weights
        kernel = self.param("kernel", orthogonal(self.gain), (self.rows, self.features))
        return kernel, self.param("bias", nn.initializers.zeros, (self.features,))


def neighbor_product(table: np.ndarray, cells: Array, kernel: Array) -> Array:
    """[C, B, features]: of each cell the sum over directions k of cell `table[c, k]` times the k-th rows of the kernel.

    Its gradient is written by hand: where no two cells have the same neighbour in one direction, as on all boards here,
    the way back is such a product, too, by the table of whose neighbour a cell is. XLA would scatter and add.

    Args:
        table: [C, K] of cells; -1 is none, and counts as zeros.
        cells: [C, B, D].
        kernel: [K D, features].
    """

    def forward(cells: Array, kernel: Array) -> Array:
        parts = kernel.reshape(table.shape[1], -1, kernel.shape[-1])  # [K, D, features]
        terms = [_with_zeros(cells @ part)[table[:, k]] for k, part in enumerate(parts)]
        return sum(terms[1:], terms[0])

    back = _way_back(table)
    if back is None:
        return forward(cells, kernel)
    product = jax.custom_vjp(forward)

    def backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
        cells, kernel = kept
        num_features, width = gradient.shape[-1], cells.shape[-1]  # F, D
        gathered = jnp.swapaxes(_with_zeros(gradient)[back], 1, 2).reshape(*gradient.shape[:2], -1)  # [C, B, K F]
        parts = kernel.reshape(-1, width, num_features)
        of_cells = gathered @ jnp.swapaxes(parts, 1, 2).reshape(-1, width)
        of_kernel = cells.reshape(-1, width).T @ gathered.reshape(-1, gathered.shape[-1])  # [D, K F]
        return of_cells, jnp.swapaxes(of_kernel.reshape(width, -1, num_features), 0, 1).reshape(kernel.shape)

    product.defvjp(lambda cells, kernel: (forward(cells, kernel), (cells, kernel)), backward)
    found: Array = product(cells, kernel)
    return found


def _way_back(table: np.ndarray) -> np.ndarray | None:
    """[C, K]: the cell whose k-th neighbour a cell is, -1 for none; None if one cell is that of two in a direction."""
    back = np.full_like(table, -1)
    cells, directions = np.nonzero(table >= 0)
    back[table[cells, directions], directions] = cells
    return back if (back >= 0).sum() == len(cells) else None


def _with_zeros(cells: Array) -> Array:
    """[C + 1, ...] with a row of zeros at the end, which -1 takes."""
    return jnp.concatenate([cells, jnp.zeros_like(cells[:1])])


def residual_stack(neighbors: np.ndarray, cells: Array, num_blocks: int, dtype: Any) -> Array:
    """[B, C, D] of cells [B, C, D] after so many blocks of two layers, and a ReLU. Within a module, whose layers these
    are."""
    width, cells = cells.shape[-1], jnp.swapaxes(cells, 0, 1)
    for _ in range(num_blocks):
        inner = NeighborLayer(neighbors, width, dtype=dtype)(nn.relu(cells))
        cells += NeighborLayer(neighbors, width, RESIDUAL_GAIN, dtype)(nn.relu(inner))
    return nn.relu(jnp.swapaxes(cells, 0, 1))
