"""Policies that learn nothing: what a learner must beat. They take the place of a learner's policy."""

from __future__ import annotations

import jax.numpy as jnp

from stoix_like.ops import distributions
from stoix_like.types import Array, EnvState, Key, Observation, Params


def random_legal(
    _params: Params, _env_state: EnvState, observation: Observation, key: Key, _deterministic: bool
) -> Array:
    """Actions [N] or [N, F], uniform over the legal ones; `deterministic` is ignored."""
    mask = observation.action_mask
    logits = distributions.masked_logits(jnp.zeros(mask.shape), mask)
    return distributions.sample(key, logits, factored=mask.ndim == 3)


def largest_item_first(
    _params: Params, _env_state: EnvState, observation: Observation, _key: Key, _deterministic: bool
) -> Array:
    """Actions [N] of a greedy packer on BinPack: the largest item that fits anywhere, in the smallest space it fits.

    From observations with `ems` and `items` in the agent's view (EMS-major mask [N, E * I]); ties go to the first.
    """
    ems, items = observation.agent_view["ems"], observation.agent_view["items"]
    item_volume = items.x_len * items.y_len * items.z_len  # [N, I], shares of the container
    ems_volume = (ems.x2 - ems.x1) * (ems.y2 - ems.y1) * (ems.z2 - ems.z1)  # [N, E]
    legal = observation.action_mask.reshape(*ems_volume.shape, -1)  # [N, E, I]
    best_volume = jnp.max(jnp.where(legal, item_volume[:, None], -1.0), axis=(1, 2), keepdims=True)
    is_best = legal & (item_volume[:, None] == best_volume)
    cost = jnp.where(is_best, ems_volume[:, :, None], jnp.inf)
    return jnp.argmin(cost.reshape(cost.shape[0], -1), axis=1).astype(jnp.int32)
