"""A limit of steps that truncates: LAST with the environment's own discount, so that the value is bootstrapped.

The elapsed time is not shown in the observation. That is right for a limit that is only there to end episodes, since
the task goes on as far as the value is concerned; a limit that belongs to the task must be the task's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.errors import ConfigError
from stoix_like.types import LAST, Array, Environment, EnvState, Key, TimeStep


class TimeLimitState(NamedTuple):
    """The environment's state and the steps since its reset."""

    inner: EnvState
    steps: Array  # [] int32


def with_time_limit(env: Environment, max_episode_steps: int) -> Environment:
    """The environment with a truncation after `max_episode_steps` steps; where it ends by itself, that end stays.

    Raises:
        ConfigError: a limit below 1.
    """
    if max_episode_steps < 1:
        raise ConfigError(f"environment.max_episode_steps: must be at least 1, got {max_episode_steps}", "raise it")

    def limited(reset: Callable[[Key], tuple[EnvState, TimeStep]]) -> Callable[[Key], tuple[TimeLimitState, TimeStep]]:
        def limited_reset(key: Key) -> tuple[TimeLimitState, TimeStep]:
            inner, timestep = reset(key)
            return TimeLimitState(inner, jnp.int32(0)), timestep

        return limited_reset

    def step(state: TimeLimitState, action: Array) -> tuple[TimeLimitState, TimeStep]:
        inner, timestep = env.step(state.inner, action)
        steps = state.steps + 1
        step_type = jnp.where(steps >= max_episode_steps, jnp.int8(LAST), timestep.step_type)
        return TimeLimitState(inner, steps), timestep._replace(step_type=step_type)

    inner_rekey, inner_render = env.rekey, env.render
    return env._replace(
        reset=limited(env.reset),
        step=step,
        can_truncate=True,
        episode_metrics=lambda state, timestep: env.episode_metrics(state.inner, timestep),
        rekey=None if inner_rekey is None else lambda state, key: state._replace(inner=inner_rekey(state.inner, key)),
        time_limit=max_episode_steps if env.time_limit is None else min(env.time_limit, max_episode_steps),
        animate=None if env.animate is None else _animate_inner(env.animate),
        held_out=None if env.held_out is None else limited(env.held_out),
        render=None if inner_render is None else lambda state: inner_render(state.inner),
        ceiling=None,  # of the task's own limit
    )


def _animate_inner(animate: Callable[[list[EnvState], str], None]) -> Callable[[list[EnvState], str], None]:
    return lambda states, path: animate([state.inner for state in states], path)
