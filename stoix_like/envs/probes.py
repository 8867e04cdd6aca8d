"""Tiny environments whose values and best policies are known in closed form, for testing learners and plumbing.

The first five are the probes of rejax (keraJLi/rejax, test/test_algos.py): each isolates one thing that a learner must
get right. Then one that truncates, and one whose levels carry tags. `PROBES` lists them by name; task ids are
`probe/<name>`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.types import FIRST, LAST, MID, ActionSpec, Array, Environment, Key, Observation, TimeStep


class ProbeState(NamedTuple):
    """What the first six probes remember."""

    sign: Array  # [] float32, -1 or 1
    steps: Array  # [] int32 since the reset
    key: Key


class TaggedState(NamedTuple):
    """A level that can be recognised."""

    tag: Array  # [2] uint32, the words of the key that made the level: different keys, different tags
    length: Array  # [] int32, steps that this level lasts
    steps: Array  # [] int32 since the reset
    key: Key


def make_constant_reward() -> Environment:
    """One action, one step, reward 1: V = 1. Tests that the critic learns a constant."""
    return _one_step_probe(1, observe=lambda sign: 0.0 * sign, reward=lambda sign, _action: jnp.ones_like(sign))


def make_observation_reward() -> Environment:
    """One action, one step, observation x = -1 or 1, reward x: V(x) = x. Tests that the critic reads its input."""
    return _one_step_probe(1, observe=lambda sign: sign, reward=lambda sign, _action: sign)


def make_delayed_reward() -> Environment:
    """One action, two steps seen as x = 0, then 1; reward 1 at the end: V(0) = gamma, V(1) = 1. Tests bootstrapping."""

    def step(state: ProbeState, _action: Array) -> tuple[ProbeState, TimeStep]:
        state = state._replace(steps=state.steps + 1)
        is_end = state.steps >= 2
        return state, _timestep(is_end, is_end, ~is_end, state.steps, num_values=1)

    def reset(key: Key) -> tuple[ProbeState, TimeStep]:
        state = _probe_state(key)
        return state, _first(state.steps, num_values=1)

    return Environment(reset, step, ActionSpec(1), deterministic=True, rekey=_rekey, time_limit=2)


def make_action_reward() -> Environment:
    """Two actions, one step, reward -1 for action 0 and 1 for action 1: pi = (0, 1), V = 1. Tests the policy alone."""
    return _one_step_probe(2, observe=lambda sign: 0.0 * sign, reward=lambda _sign, action: 2.0 * action - 1.0)


def make_action_observation_reward() -> Environment:
    """Two actions, one step, x = -1 or 1, reward 1 if the action is 1 exactly when x is 1, else -1.

    Best: action 0 at x = -1, action 1 at x = 1, V = 1. The best policy that ignores x is worth 0.
    """
    return _one_step_probe(2, observe=lambda sign: sign, reward=lambda sign, action: sign * (2.0 * action - 1.0))


def make_truncated_constant(num_steps: int = 5) -> Environment:
    """One action, reward 1 at every step, truncated after `num_steps` steps (LAST with discount 1); x = 0 always.

    With bootstrapping V = 1 / (1 - gamma) everywhere. A learner that takes the truncation for an end finds at most
    (1 - gamma^num_steps) / (1 - gamma).
    """

    def step(state: ProbeState, _action: Array) -> tuple[ProbeState, TimeStep]:
        state = state._replace(steps=state.steps + 1)
        return state, _timestep(state.steps >= num_steps, 1.0, 1.0, 0.0, num_values=1)

    def reset(key: Key) -> tuple[ProbeState, TimeStep]:
        return _probe_state(key), _first(0.0, num_values=1)

    return Environment(
        reset, step, ActionSpec(1), can_truncate=True, deterministic=True, rekey=_rekey, time_limit=num_steps
    )


def make_tagged_levels(max_length: int = 8) -> Environment:
    """Levels that are recognised by a tag and last 1 to `max_length` steps, drawn uniformly; one action.

    The observation is (length, steps, fraction), the fraction in [0, 1) made of the tag. The last step's reward is the
    fraction, all others are 0, so V = gamma^(length - steps - 1) * fraction. `extras["tag"]` is the level being played.
    """

    def timestep(state: TaggedState) -> TimeStep:
        fraction = (state.tag[1] >> 8).astype(jnp.float32) / 2**24  # 24 bits: exact in float32
        view = jnp.stack([state.length.astype(jnp.float32), state.steps.astype(jnp.float32), fraction])
        is_end = state.steps >= state.length
        made = _timestep(is_end, jnp.where(is_end, fraction, 0.0), ~is_end, view, num_values=1)
        step_type = jnp.where(state.steps == 0, jnp.int8(FIRST), made.step_type)
        return made._replace(step_type=step_type, extras={"tag": state.tag})

    def reset(key: Key) -> tuple[TaggedState, TimeStep]:
        length_key, state_key = jax.random.split(key)
        length = jax.random.randint(length_key, (), 1, max_length + 1)
        state = TaggedState(jax.random.key_data(key), length, jnp.int32(0), state_key)
        return state, timestep(state)

    def step(state: TaggedState, _action: Array) -> tuple[TaggedState, TimeStep]:
        state = state._replace(steps=state.steps + 1)
        return state, timestep(state)

    return Environment(
        reset,
        step,
        ActionSpec(1),
        deterministic=True,
        episode_metrics=lambda state, _timestep: {"level_length": state.length.astype(jnp.float32)},
        rekey=lambda state, key: state._replace(key=key),
        time_limit=max_length,
    )


PROBES: dict[str, Callable[..., Environment]] = {
    "constant_reward": make_constant_reward,
    "observation_reward": make_observation_reward,
    "delayed_reward": make_delayed_reward,
    "action_reward": make_action_reward,
    "action_observation_reward": make_action_observation_reward,
    "truncated_constant": make_truncated_constant,
    "tagged_levels": make_tagged_levels,
}


def _one_step_probe(
    num_values: int, observe: Callable[[Array], Array], reward: Callable[[Array, Array], Array]
) -> Environment:
    def reset(key: Key) -> tuple[ProbeState, TimeStep]:
        state = _probe_state(key)
        return state, _first(observe(state.sign), num_values)

    def step(state: ProbeState, action: Array) -> tuple[ProbeState, TimeStep]:
        state = state._replace(steps=state.steps + 1)
        return state, _timestep(True, reward(state.sign, action), 0.0, observe(state.sign), num_values)

    return Environment(reset, step, ActionSpec(num_values), deterministic=True, rekey=_rekey, time_limit=1)


def _probe_state(key: Key) -> ProbeState:
    sign_key, state_key = jax.random.split(key)
    return ProbeState(jax.random.rademacher(sign_key, (), jnp.float32), jnp.int32(0), state_key)


def _rekey(state: ProbeState, key: Key) -> ProbeState:
    return state._replace(key=key)


def _first(x: Array | float, num_values: int) -> TimeStep:
    return _timestep(False, 0.0, 1.0, x, num_values)._replace(step_type=jnp.int8(FIRST))


def _timestep(
    is_end: Array | bool, reward: Array | float, discount: Array | float, x: Array | float, num_values: int
) -> TimeStep:
    view = {"features": jnp.atleast_1d(jnp.asarray(x, jnp.float32))}  # [1], or [3] for tagged levels
    return TimeStep(
        step_type=jnp.where(is_end, jnp.int8(LAST), jnp.int8(MID)),
        reward=jnp.asarray(reward, jnp.float32),
        discount=jnp.asarray(discount, jnp.float32),
        observation=Observation(view, jnp.ones((num_values,), bool)),
        extras={},
    )
