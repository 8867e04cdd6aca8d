"""Means and deviations of the entries of an array that count."""

from __future__ import annotations

import jax.numpy as jnp

from stoix_like.types import Array


def masked_mean(x: Array, mask: Array) -> Array:
    """[] mean of the entries where the mask is true; 0 if there are none."""
    return jnp.where(mask, x, 0.0).sum() / jnp.maximum(mask.sum(), 1)


def standardize(x: Array, mask: Array) -> Array:
    """The entries where the mask is true with mean 0 and deviation 1, and 0 elsewhere. Same shape."""
    mean = masked_mean(x, mask)
    deviation = jnp.sqrt(masked_mean(jnp.square(x - mean), mask))
    return jnp.where(mask, (x - mean) / (deviation + 1e-8), 0.0)
