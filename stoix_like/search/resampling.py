"""Which particles go on: ancestors drawn by weight, and how many particles the weights are worth.

`particles.resample_if_due` decides when to resample, and copies the ancestors.

Systematic resampling is the default: it draws one number per environment, and a particle of weight w gets floor(P w) or
ceil(P w) descendants, so it adds less variance than multinomial draws (Douc and Cappe 2005, arXiv cs/0507025).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from stoix_like.types import Array, Key


def systematic(key: Key, log_weights: Array) -> Array:
    """Ancestors [N, P] int32, ascending, from log-weights [N, P] that need not be normalised. The key is consumed."""
    num_envs, num_particles = log_weights.shape
    offset = jax.random.uniform(key, (num_envs, 1))
    points = (jnp.arange(num_particles, dtype=jnp.float32)[None] + offset) / num_particles  # [N, P]
    return _ancestors(log_weights, points)


def multinomial(key: Key, log_weights: Array) -> Array:
    """Ancestors [N, P] int32, ascending, drawn independently by weight. The key is consumed."""
    points = jnp.sort(jax.random.uniform(key, log_weights.shape), axis=-1)
    return _ancestors(log_weights, points)


def _ancestors(log_weights: Array, points: Array) -> Array:
    """The particle in whose share of [0, 1) each point lies; never one of weight 0, whatever the rounding."""
    weights = jax.nn.softmax(log_weights, axis=-1)
    ends = jnp.cumsum(weights, axis=-1)  # [N, P]
    ends = jax.lax.cummax(ends, axis=1) / ends[:, -1:]
    found = jax.vmap(lambda e, p: jnp.searchsorted(e, p, side="right"))(ends, points).astype(jnp.int32)
    indices = jnp.arange(log_weights.shape[1], dtype=jnp.int32)[None]
    usable = jax.lax.cummax(jnp.where(weights > 0.0, indices, 0), axis=1)  # the last particle with weight, up to here
    return jnp.take_along_axis(usable, jnp.minimum(found, log_weights.shape[1] - 1), axis=1)


def effective_sample_size(log_weights: Array) -> Array:
    """1 / sum of squared weights, [N] in [1, P], from log-weights [N, P]."""
    weights = jax.nn.softmax(log_weights, axis=-1)
    return 1.0 / jnp.sum(jnp.square(weights), axis=-1)
