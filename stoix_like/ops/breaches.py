"""What only playing can show of an environment's broken promises: flags on the device, and the error on the host.

Without them a reward that is NaN would end in a loss that is not finite, and a mask without a legal action in illegal
moves. Checks that an abstract evaluation can make stand in `environment_contract`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.errors import UnsupportedEnvironmentError
from stoix_like.types import Array, Observation

#: {name: (what happened, after a number and the task; what to do)}
BREACHES = {
    "undeclared_truncations": (
        "episode(s) ended by LAST with a discount above 0, and can_truncate is False: the learner would bootstrap from"
        " the first observation of the next level",
        "set can_truncate=True if episodes are cut off, or discount 0 where they end",
    ),
    "decisions_without_action": (
        "time(s) the action_mask had no legal action where the episode went on",
        "allow at least one action, or end the episode: step_type LAST, discount 0",
    ),
    "non_finite_rewards": (
        "reward(s) were NaN or infinite",
        "return finite rewards from step; jax.config.update('jax_debug_nans', True) finds where a NaN begins",
    ),
    "non_finite_observations": (
        "observation(s) had a value that is NaN or infinite",
        "return finite observations from reset and step, such as 0 for what is unknown",
    ),
}


def breach(name: str, count: int, task_id: str) -> UnsupportedEnvironmentError:
    """What to raise where playing has shown `count` breaches."""
    what, hint = BREACHES[name]
    return UnsupportedEnvironmentError(f"{task_id}: {count:,} {what}", hint)


def non_finite_metric(name: str, task_id: str) -> UnsupportedEnvironmentError:
    """What to raise where the environment's own metric is NaN or infinite at the end of an episode."""
    return UnsupportedEnvironmentError(
        f"{task_id}: the episode metric '{name}' is not finite", "return a finite number from episode_metrics"
    )


def decision_breaches(observation: Observation, reward: Array) -> dict[str, Array]:
    """{name: bool, in the shape of the rewards} of decisions on an observation that led to these rewards."""
    leading = reward.shape
    has_action = jnp.any(observation.action_mask, axis=-1)
    return {
        "decisions_without_action": ~_all(has_action, leading),
        "non_finite_rewards": ~jnp.isfinite(reward),
        "non_finite_observations": ~is_finite(observation.agent_view, leading),
    }


def is_finite(tree: Any, leading: tuple[int, ...]) -> Array:
    """Whether all numbers of every leaf are finite, in the leading shape of the leaves."""
    return functools.reduce(jnp.logical_and, _finite_leaves(tree, leading), jnp.ones(leading, bool))


def _finite_leaves(tree: Any, leading: tuple[int, ...]) -> Iterator[Array]:
    for leaf in jax.tree.leaves(tree):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            yield _all(jnp.isfinite(leaf), leading)


def _all(flags: Array, leading: tuple[int, ...]) -> Array:
    return jnp.all(flags, axis=tuple(range(len(leading), flags.ndim)))
