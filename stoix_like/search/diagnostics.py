"""What decides whether a search helps: particles that count, root actions compared, how far the weights moved."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.ops.groups import action_groups, summed
from stoix_like.types import Array


class SearchDiagnostics(NamedTuple):
    """Per environment."""

    effective_sample_size: (
        Array  # [H, N] particles, after each depth, by evidence alone; 0 where no particle was left to move
    )
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
        root_actions: of the particles as they ended, [N, P, ...].
        initial_root_actions: of the particles as they were drawn, [N, P, ...].
        weights: of the particles as they ended, [N, P].
        base_weights: those without the advantages since the last resampling, [N, P].
        initial_weights: of the particles as they were drawn, before any advantage was added, [N, P].
        effective_sample_size: passed on.
        model_steps: passed on.
    """
    both = action_groups(jnp.concatenate([initial_root_actions, root_actions], axis=1))  # [N, 2 P]
    most = both.shape[1]
    drawn, groups = jnp.split(both, 2, axis=1)
    return SearchDiagnostics(
        effective_sample_size=effective_sample_size,
        distinct_root_actions=_num_present(drawn, most),
        surviving_root_actions=_num_present(groups, most),
        trajectory_kl=_divergence(weights, base_weights),
        root_kl=_divergence(summed(weights, groups, most), summed(initial_weights, drawn, most)),
        model_steps=model_steps,
    )


def _num_present(groups: Array, most: int) -> Array:
    """How many of the numbers in [0, most) there are among [N, P], [N] int32."""
    return jnp.sum(summed(jnp.ones_like(groups), groups, most) > 0, axis=-1, dtype=jnp.int32)


def _divergence(p: Array, q: Array) -> Array:
    """KL(p || q) over the last axis, nats; entries without mass in p add nothing."""
    ratio = jnp.log(jnp.maximum(p, 1e-37)) - jnp.log(jnp.maximum(q, 1e-37))
    return jnp.maximum(jnp.sum(jnp.where(p > 0.0, p * ratio, 0.0), axis=-1), 0.0)
