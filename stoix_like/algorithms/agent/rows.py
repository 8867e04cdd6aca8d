"""Which episodes are still played. Those that are over leave the batch, so that the others take less time.

What is compiled has fixed sizes, so a rollout is a row of loops, each over a smaller share of the episodes than the one
before, and ends a loop when the next one has room for all that go on. Rows stay in their shard, and so on their device.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.types import Array

SHARES = (1.0, 0.75, 0.5, 0.25)  # of the episodes, in the loops one after the other
LEAST_ROWS = 16  # of a shard: fewer are not worth a loop of their own


def batch_sizes(num_rows: int) -> tuple[int, ...]:
    """The rows of a shard in the loops, falling."""
    sizes = {math.ceil(num_rows * share) for share in SHARES}
    return tuple(sorted((size for size in sizes if size >= min(LEAST_ROWS, num_rows)), reverse=True))


def num_going_on(is_over: Array, num_shards: int) -> Array:
    """[] int32, the episodes that go on, of rows [N], in the shard with the most."""
    return jnp.max(jnp.sum(~is_over.reshape(num_shards, -1), axis=1, dtype=jnp.int32))


def choose(is_over: Array, num_shards: int, size: int) -> Array:
    """[shards, size] the rows of each shard that are kept, counted within it: those that go on, and then others."""
    return jnp.argsort(is_over.reshape(num_shards, -1), axis=1, stable=True)[:, :size]


def take(x: Array, kept: Array, axis: int = 0) -> Array:
    """The rows `kept` [shards, size] of an array with N rows along an axis."""
    num_shards = kept.shape[0]
    by_shard = x.reshape(*x.shape[:axis], num_shards, -1, *x.shape[axis + 1 :])
    taken = jax.vmap(lambda x, rows: jnp.take(x, rows, axis=axis), in_axes=(axis, 0), out_axes=axis)(by_shard, kept)
    return taken.reshape(*x.shape[:axis], -1, *x.shape[axis + 1 :])


def take_rows(tree: Any, kept: Array) -> Any:
    """The rows `kept` [shards, size] of a pytree of arrays with N rows first."""
    return jax.tree.map(lambda x: take(x, kept), tree)
