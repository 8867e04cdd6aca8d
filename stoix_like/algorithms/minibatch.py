"""Shuffled minibatches of a rollout, drawn within a fixed number of logical shards.

The environments are split into shards by their index, and every minibatch takes equally many rows of each. The number
of shards depends on the sizes alone, never on the devices, so one device and four give the same minibatches, and no
row has to travel when the environments are spread over devices.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.types import Array, Key

MOST_SHARDS = 8


def num_logical_shards(num_envs: int, rollout_length: int, num_minibatches: int) -> int:
    """The largest of 8, 4, 2, 1 that divides the environments and leaves whole minibatches in every shard."""
    fits = (
        shards
        for shards in (MOST_SHARDS, 4, 2, 1)
        if num_envs % shards == 0 and (num_envs * rollout_length // shards) % num_minibatches == 0
    )
    return next(fits)


def shard_rows(rollout: Any, num_shards: int) -> Any:
    """Leaves [T, N, ...] as [shards, N / shards * T, ...], environment-major."""

    def shard(x: Array) -> Array:
        length, num_envs = x.shape[:2]
        return jnp.swapaxes(x, 0, 1).reshape(num_shards, num_envs // num_shards * length, *x.shape[2:])

    return jax.tree.map(shard, rollout)


def shuffled_indices(key: Key, num_shards: int, rows_per_shard: int, num_minibatches: int) -> Array:
    """Row numbers [num_minibatches, shards, rows / num_minibatches]; every row of every shard once."""
    keys = jax.random.split(key, num_shards)
    rows = jax.vmap(lambda k: jax.random.permutation(k, rows_per_shard))(keys)  # [shards, rows]
    return jnp.moveaxis(rows.reshape(num_shards, num_minibatches, -1), 1, 0)


def take_minibatch(sharded: Any, indices: Array) -> Any:
    """Leaves [shards, rows, ...] at indices [shards, b] as [shards * b, ...]."""

    def take(x: Array) -> Array:
        chosen = jax.vmap(lambda rows, i: jnp.take(rows, i, axis=0))(x, indices)
        return chosen.reshape(-1, *x.shape[2:])

    return jax.tree.map(take, sharded)
