"""Orthogonal initialisation without a QR factorisation.

XLA's QR compiles slowly on CPU, and a batch of them (several seeds under `vmap`) can wait for ever beside other work
(docs/log.md). Gram-Schmidt is a loop of small products instead; done twice, it is as orthogonal as the arithmetic
allows ("twice is enough", Giraud, Langou and Rozložník 2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from stoix_like.types import Array


def orthogonal(gain: float) -> Callable[..., Array]:
    """An initialiser `(key, shape, dtype) -> [..., C]` of gain times a uniformly distributed orthogonal matrix.

    All axes but the last are the rows. The shorter side is orthonormal: columns of tall matrices, rows of wide ones.
    The matrices are those of `jax.nn.initializers.orthogonal` for the same key, up to float32 rounding.
    Source: Saxe et al. 2014 (arXiv:1312.6120).
    """

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        normal = jax.random.normal(key, (max(rows, columns), min(rows, columns)), dtype)
        matrix = orthonormal_columns(normal)
        return gain * (matrix if rows >= columns else matrix.T).reshape(shape)

    return init


def orthonormal_columns(matrix: Array) -> Array:
    """[N, K] with orthonormal columns that span those of the matrix [N, K], N >= K of full rank: the Q of its QR."""

    def add_column(k: int, basis: Array) -> Array:
        column = matrix[:, k]
        for _ in range(2):  # columns of the basis from k on are still zero
            column = column - basis @ (column @ basis)
        return basis.at[:, k].set(column / jnp.linalg.norm(column))

    return jax.lax.fori_loop(0, matrix.shape[1], add_column, jnp.zeros_like(matrix))
