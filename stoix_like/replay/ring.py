"""Single samples in and out: a flat ring whose writes are masked, for samples that become complete at different times.

The positions of a game can be learned from when its outcome is known, and games end at different times: each write
hands over rows of which only some count, and only those take places in the ring. One ring per logical shard of the
games, as in `sequences`, so that any number of devices samples the same rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.errors import ConfigError
from stoix_like.ops import trees
from stoix_like.types import Array, Key


class RingState(NamedTuple):
    """Rings of equal capacity, one per shard; each is written at its own place."""

    samples: Any  # leaves [shards, capacity / shards, ...]
    next_index: Array  # [shards] int32, where the next sample goes
    size: Array  # [shards] int32, samples kept


class Ring(NamedTuple):
    """A ring of samples as pure functions.

    Attributes:
        init: one sample, leaves [...] (arrays or ShapeDtypeStructs) -> empty state. Use under jit.
        add: (state, rows [M, ...] grouped by shard, mask [M]) -> state with the rows whose mask is True, in their
            order; they replace the oldest ones where there is no room. M / shards is at most the capacity of a shard.
        sample: (state, key) -> rows [B, ...], grouped by shard, uniform with replacement over what each shard keeps.
            Before `can_sample` the rows mean nothing.
        can_sample: state -> [] bool, whether every shard keeps a sample.
    """

    init: Callable[[Any], RingState]
    add: Callable[[RingState, Any, Array], RingState]
    sample: Callable[[RingState, Key], Any]
    can_sample: Callable[[RingState], Array]


def make_ring(*, capacity: int, batch_size: int, num_shards: int = 1) -> Ring:
    """A ring of the last `capacity` samples, of which `batch_size` are drawn at a time.

    Raises:
        ConfigError: a capacity or batch that the shards do not divide, or that is below 1.
    """
    if min(capacity, batch_size, num_shards) < 1 or capacity % num_shards or batch_size % num_shards:
        raise ConfigError(
            f"replay: {capacity} samples in batches of {batch_size} cannot be split over {num_shards} shards",
            "make capacity and batch_size multiples of the number of shards",
        )
    return Ring(
        init=functools.partial(_init, num_shards, capacity // num_shards),
        add=_add,
        sample=functools.partial(_sample, batch_size // num_shards),
        can_sample=lambda state: jnp.all(state.size > 0),
    )


def filled(template: RingState, rows: Any) -> RingState:
    """A ring that keeps these rows, [M, ...], on the host, in the shapes and types of the template.

    The shards get equal parts of the rows, but for the last ones, which may have one row less. Where rows are fewer
    than places, the rest is 0. Raises ConfigError if there is no row for every shard, or more rows than places.
    """
    num_shards, capacity = jax.tree.leaves(template.samples)[0].shape[:2]
    count = len(jax.tree.leaves(rows)[0])
    if not num_shards <= count <= num_shards * capacity:
        raise ConfigError(
            f"replay: {count:,} rows for {num_shards} shards of {capacity:,}",
            f"give {num_shards} to {num_shards * capacity:,} rows",
        )
    size = np.array([len(range(shard, count, num_shards)) for shard in range(num_shards)], np.int32)

    def place(stored: Any, values: Any) -> np.ndarray:
        placed = np.zeros(stored.shape, stored.dtype)
        for shard in range(num_shards):
            placed[shard, : size[shard]] = values[shard::num_shards]
        return placed

    samples = jax.tree.map(place, template.samples, rows)
    next_index: Any = (size % capacity).astype(np.int32)
    count_kept: Any = size
    return RingState(samples, next_index, count_kept)


def _init(num_shards: int, capacity: int, example: Any) -> RingState:
    samples = jax.tree.map(lambda x: jnp.zeros((num_shards, capacity, *x.shape), x.dtype), example)
    zeros = jnp.zeros((num_shards,), jnp.int32)
    return RingState(samples, zeros, jnp.copy(zeros))


def _add(state: RingState, rows: Any, mask: Array) -> RingState:
    num_shards, capacity = state.next_index.shape[0], jax.tree.leaves(state.samples)[0].shape[1]
    if mask.shape[0] > num_shards * capacity:
        raise ConfigError(
            f"replay: {mask.shape[0]:,} rows are added at once, and the ring keeps {num_shards * capacity:,}",
            "raise the capacity, or add fewer rows",
        )
    grouped = jax.tree.map(lambda x: x.reshape(num_shards, -1, *x.shape[1:]), (rows, mask))  # [shards, M / shards, ...]
    return RingState(*jax.vmap(functools.partial(_add_to_shard, capacity))(*state, *grouped))


def _add_to_shard(
    capacity: int, samples: Any, next_index: Array, size: Array, rows: Any, mask: Array
) -> tuple[Any, Array, Array]:
    before = jnp.cumsum(mask, dtype=jnp.int32) - 1  # place of a row among those that count
    places = jnp.where(mask, (next_index + before) % capacity, capacity)  # [M]; rows that do not count are dropped
    written = jax.tree.map(lambda kept, new: kept.at[places].set(new, mode="drop"), samples, rows)
    count = jnp.sum(mask, dtype=jnp.int32)
    return written, (next_index + count) % capacity, jnp.minimum(size + count, capacity)


def _sample(batch_size: int, state: RingState, key: Key) -> Any:
    def sample_shard(samples: Any, size: Array, shard_key: Key) -> Any:
        indices = jax.random.randint(shard_key, (batch_size,), 0, jnp.maximum(size, 1))
        return trees.take(samples, indices)

    keys = jax.random.split(key, state.size.shape[0])
    return trees.merge_leading(jax.vmap(sample_shard)(state.samples, state.size, keys))  # [shards * B / shards, ...]
