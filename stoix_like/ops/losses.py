"""Losses of policies and value functions, per element; callers take the mean."""

from __future__ import annotations

import jax.numpy as jnp

from stoix_like.types import Array


def clipped_surrogate(log_prob: Array, old_log_prob: Array, advantage: Array, clip_eps: Array | float) -> Array:
    """PPO's policy loss per element, to be minimised (Schulman et al. 2017, arXiv 1707.06347, eq. 7).

    Args:
        log_prob: log-probabilities of the actions taken, nats, [...].
        old_log_prob: the same under the policy that took them.
        advantage: [...]; no gradient is expected through it.
        clip_eps: half width of the interval around 1 in which the probability ratio may pay.
    """
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


def squared_error(value: Array, target: Array) -> Array:
    """Half the squared distance, per element [...]."""
    return 0.5 * jnp.square(value - target)


def clipped_squared_error(value: Array, old_value: Array, target: Array, clip_eps: Array | float) -> Array:
    """Half the larger squared distance of the value and of the value held within clip_eps of the old one.

    `clip_eps` is in reward units, so it suits only returns of known size; `squared_error` is the default.
    """
    held = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
    return jnp.maximum(squared_error(value, target), squared_error(held, target))


def approximate_kl(log_prob: Array, old_log_prob: Array) -> Array:
    """Estimate of KL(old || new) per sample, nats, never negative: (ratio - 1) - log ratio (Schulman, "Approximating KL
    divergence", 2020, estimator k3)."""
    log_ratio = log_prob - old_log_prob
    return jnp.expm1(log_ratio) - log_ratio


def explained_variance(value: Array, target: Array) -> Array:
    """1 - Var(target - value) / Var(target) over all axes; 1 is perfect, 0 no better than a constant."""
    return 1.0 - jnp.var(target - value) / jnp.maximum(jnp.var(target), 1e-8)
