"""The best finished path found so far, kept from one decision to the next: for models that are deterministic.

A search with few particles may lose at the next step what it found at this one. A plan that is followed until a better
one is found makes the episode's return at least that of the best path any of its searches has finished.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.search.particles import Paths
from stoix_like.types import Array


class Plan(NamedTuple):
    """What to do from here on in N environments, at most H steps."""

    actions: Array  # [N, H] or [N, H, F] int32
    returns: Array  # [N, H], discounted return from each of these steps to the end
    remaining: Array  # [N] int32, steps to the end; 0: there is no plan


def no_plan(num_envs: int, horizon: int, action_shape: tuple[int, ...]) -> Plan:
    """The plan at the beginning of an episode."""
    actions = jnp.zeros((num_envs, horizon, *action_shape), jnp.int32)
    return Plan(actions, jnp.zeros((num_envs, horizon)), jnp.zeros((num_envs,), jnp.int32))


def better_plan(plan: Plan, paths: Paths, gamma: Array | float) -> Plan:
    """The plan, or the best of the finished paths [N, P, H] where that returns more; the plan among equals."""
    returns = returns_to_go(paths.rewards, gamma)  # [N, P, H]
    first = jnp.where(paths.is_finished, returns[..., 0], -jnp.inf)  # [N, P]
    best = jnp.argmax(first, axis=1)
    found = jnp.max(first, axis=1)
    rows = jnp.arange(best.shape[0])
    known = jnp.where(plan.remaining > 0, plan.returns[:, 0], -jnp.inf)
    replaces = found > known  # [N]

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(replaces.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

    return Plan(
        choose(paths.actions[rows, best], plan.actions),
        choose(returns[rows, best], plan.returns),
        choose(paths.num_steps[rows, best], plan.remaining),
    )


def returns_to_go(rewards: Array, gamma: Array | float) -> Array:
    """Discounted sums of rewards [..., H] from each step to the last, [..., H]."""

    def step(later: Array, reward: Array) -> tuple[Array, Array]:
        total = reward + gamma * later
        return total, total

    by_time = jnp.moveaxis(rewards, -1, 0)
    _, returns = jax.lax.scan(step, jnp.zeros_like(by_time[0]), by_time, reverse=True)
    return jnp.moveaxis(returns, 0, -1)


def after_step(plan: Plan) -> Plan:
    """The plan once its first action was taken."""
    return Plan(
        jnp.roll(plan.actions, -1, axis=1),
        jnp.roll(plan.returns, -1, axis=1),
        jnp.maximum(plan.remaining - 1, 0),
    )
