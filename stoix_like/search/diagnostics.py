"""What decides whether a search helps: how many particles count, how many root actions are compared, how far it moves.

Particles whose root actions are equal are brought together by sorting, so that the cost grows with P log P and tens of
thousands of particles can be looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.types import Array


class SearchDiagnostics(NamedTuple):
    """Per environment."""

    effective_sample_size: Array  # [H, N] particles, after each depth; P at depths that were not reached
    distinct_root_actions: Array  # [N] int32, drawn at the root
    surviving_root_actions: Array  # [N] int32, among the particles as they ended
    trajectory_kl: Array  # [N] nats, of the final weights from what they were after the last resampling, or at first
    root_kl: Array  # [N] nats, of the final weights from the first ones, both summed over equal root actions
    model_steps: Array  # [N] int32, steps of unfinished particles


def diagnose(
    root_actions: Array,
    initial_root_actions: Array,
    weights: Array,
    base_weights: Array,
    initial_weights: Array,
    effective_sample_size: Array,
    model_steps: Array,
) -> SearchDiagnostics:
    """The diagnostics of N searches.

    Args:
        root_actions, weights: of the particles as they ended, [N, P, ...] and [N, P].
        initial_root_actions, initial_weights: as they were drawn, before any advantage was added.
        base_weights: of the particles as they ended, without the advantages since the last resampling.
        effective_sample_size, model_steps: passed on.
    """
    both = action_groups(jnp.concatenate([initial_root_actions, root_actions], axis=1))  # [N, 2 P]
    drawn, groups = jnp.split(both, 2, axis=1)
    return SearchDiagnostics(
        effective_sample_size=effective_sample_size,
        distinct_root_actions=_num_present(drawn),
        surviving_root_actions=_num_present(groups),
        trajectory_kl=_divergence(weights, base_weights),
        root_kl=_divergence(summed(weights, groups), summed(initial_weights, drawn)),
        model_steps=model_steps,
    )


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


def _num_present(groups: Array) -> Array:
    """How many of the numbers in [0, 2 P) there are among [N, P], [N] int32."""
    return jnp.sum(summed(jnp.ones_like(groups), groups) > 0, axis=-1, dtype=jnp.int32)


def summed(weights: Array, groups: Array) -> Array:
    """Weights [N, P] summed by group in [0, 2 P), [N, 2 P]."""
    num_envs, num_particles = weights.shape
    rows = jnp.arange(num_envs)[:, None]
    return jnp.zeros((num_envs, 2 * num_particles), weights.dtype).at[rows, groups].add(weights)


def _divergence(p: Array, q: Array) -> Array:
    """KL(p || q) over the last axis, nats; entries without mass in p add nothing."""
    ratio = jnp.log(jnp.maximum(p, 1e-37)) - jnp.log(jnp.maximum(q, 1e-37))
    return jnp.maximum(jnp.sum(jnp.where(p > 0.0, p * ratio, 0.0), axis=-1), 0.0)
