"""Advantages and value targets from rewards, discounts and values, with termination and truncation kept apart."""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from stoix_like.types import Array


class Advantages(NamedTuple):
    """Generalised advantages and the value targets they imply (advantage + value)."""

    advantage: Array  # [T, ...]
    target: Array  # [T, ...]


def gae(
    r_t: Array, discount_t: Array, is_last_t: Array, v_tm1: Array, v_t: Array, lambda_: Array | float
) -> Advantages:
    """Generalised advantage estimates, time on axis 0 (Schulman et al. 2016, arXiv 1506.02438, eq. 16).

    delta = r + discount * V(s') - V(s); a = delta + lambda * discount * (1 - last) * a'.

    A termination has discount 0: nothing is bootstrapped. A truncation is a last step with discount > 0: V(s') of the
    true final observation is bootstrapped, and the sum stops there, because the next row is another episode.

    Args:
        r_t: rewards [T, ...].
        discount_t: gamma times the environment's discount [T, ...].
        is_last_t: True where the episode ended with this step [T, ...].
        v_tm1: values of the observations acted on [T, ...].
        v_t: values of the observations reached [T, ...]; at a truncation, of the true final observation.
        lambda_: scalar in [0, 1].
    """
    chex.assert_equal_shape([r_t, discount_t, is_last_t, v_tm1, v_t])
    deltas = r_t + discount_t * v_t - v_tm1
    carry_on = discount_t * jnp.logical_not(is_last_t) * lambda_

    def step(advantage: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, factor = row
        advantage = delta + factor * advantage
        return advantage, advantage

    _, advantage = jax.lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, carry_on), reverse=True, unroll=8)
    return Advantages(advantage, advantage + v_tm1)


def standardize(x: Array) -> Array:
    """The values shifted and scaled to mean 0 and deviation 1 over all axes; constants become 0, never NaN."""
    centred = x - jnp.mean(x)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred)) + 1e-8)
