"""Masked categorical distributions, joint or factored: the one door to distrax.

Logits arrive as arrays. Illegal entries hold the most negative finite float32, so that their probability and their
gradient are exactly zero and nothing is ever infinite: -inf would make NaN out of 0 * log 0 in the entropy, and a fill
such as -1e9 is not representable in half precision.

A factored action is `num_factors` independent categoricals: log-probabilities and entropies are summed over factors.
"""

from __future__ import annotations

import distrax
import jax.numpy as jnp

from stoix_like.types import Array, Key

MASK_FILL = float(jnp.finfo(jnp.float32).min)


def masked_logits(logits: Array, mask: Array) -> Array:
    """The logits as float32 with `MASK_FILL` where the mask is False. Same shape as both, [..., A].

    A row that is masked as a whole becomes uniform (all entries equal), never NaN.
    """
    return jnp.where(mask, logits.astype(jnp.float32), MASK_FILL)


def _categorical(logits: Array, factored: bool) -> distrax.Distribution:
    categorical = distrax.Categorical(logits=logits)
    return distrax.Independent(categorical, reinterpreted_batch_ndims=1) if factored else categorical


def sample(key: Key, logits: Array, *, factored: bool = False) -> Array:
    """One action per row, int32: [...] from [..., A], or [..., F] from [..., F, A]. The key is consumed."""
    return _categorical(logits, factored).sample(seed=key).astype(jnp.int32)


def mode(logits: Array) -> Array:
    """The most probable action, int32, the first among equals; over the last axis, so factors are kept."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def act(key: Key, logits: Array, deterministic: bool, *, factored: bool = False) -> Array:
    """`mode` if deterministic, else `sample`. The choice is made while tracing."""
    return mode(logits) if deterministic else sample(key, logits, factored=factored)


def log_prob(logits: Array, action: Array, *, factored: bool = False) -> Array:
    """Log-probability of the action in nats, summed over factors: [...] from logits [..., A] or [..., F, A]."""
    return _categorical(logits, factored).log_prob(action)


def entropy(logits: Array, *, factored: bool = False) -> Array:
    """Entropy over the legal actions in nats, summed over factors; 0 when one action is legal."""
    return _categorical(logits, factored).entropy()
