"""Equal actions among particles: numbered by sorting, so that the cost grows with P log P, and summed over."""

from __future__ import annotations

import jax.numpy as jnp

from stoix_like.types import Array


def action_groups(actions: Array) -> Array:
    """[N, P] int32 in [0, P): equal numbers for equal actions [N, P] or [N, P, F], without gaps."""
    columns = actions[..., None] if actions.ndim == 2 else actions
    order = jnp.lexsort(tuple(jnp.moveaxis(columns, -1, 0)), axis=-1)  # [N, P]
    ordered = jnp.take_along_axis(columns, order[..., None], axis=1)
    differs = jnp.any(ordered[:, 1:] != ordered[:, :-1], axis=-1)
    numbers = jnp.cumsum(differs, axis=-1, dtype=jnp.int32)
    numbers = jnp.pad(numbers, ((0, 0), (1, 0)))  # [N, P], of the ordered particles
    rows = jnp.arange(actions.shape[0])[:, None]
    return jnp.zeros(order.shape, jnp.int32).at[rows, order].set(numbers)


def summed(weights: Array, groups: Array, num_groups: int) -> Array:
    """Weights [N, P] summed by group in [0, num_groups), [N, num_groups]."""
    rows = jnp.arange(weights.shape[0])[:, None]
    return jnp.zeros((weights.shape[0], num_groups), weights.dtype).at[rows, groups].add(weights)
