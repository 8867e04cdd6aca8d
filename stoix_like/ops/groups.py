"""Equal actions among particles: numbered by sorting, so that the cost grows with P log P, and summed over."""

from __future__ import annotations

import jax
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
    # By vmap, as below: rows may be spread over devices, and each is scattered into itself alone.
    return jax.vmap(lambda into, where, x: into.at[where].set(x))(jnp.zeros_like(numbers), order, numbers)


def summed(weights: Array, groups: Array, num_groups: int) -> Array:
    """Weights [N, P] summed by group in [0, num_groups), [N, num_groups]."""
    empty = jnp.zeros((weights.shape[0], num_groups), weights.dtype)
    total: Array = jax.vmap(lambda into, where, x: into.at[where].add(x))(empty, groups, weights)
    return total
