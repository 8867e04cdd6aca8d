"""How a method of `compare_search.py` plays a level set: compiled apart from the clock, its model steps counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms import searching
from stoix_like.evaluation.episodes import refuse_undeclared
from stoix_like.runtime.devices import plain_errors
from stoix_like.runtime.messages import SignOfLife, on_stderr
from stoix_like.runtime.playing import EpisodePlayer, frozen_levels
from stoix_like.search.model import Root, SearchConfig, SearchModel, Temperature, depth_of
from stoix_like.search.plan import Plan, no_plan
from stoix_like.types import (
    Array,
    Environment,
    EnvState,
    Key,
    MemoryPolicy,
    NetworkParams,
    Observation,
    Params,
    Policy,
)

_LESS_MEMORY = "let fewer levels be played at a time: --num-envs"


class Counted(NamedTuple):
    """What a counting search remembers within an episode."""

    plan: Plan | None  # if one is followed
    model_steps: Array  # [N] int32, so far


def counting_policy(
    env: Environment,
    model: SearchModel,
    config: SearchConfig,
    network_params: Callable[[Params], NetworkParams],
    temperature: Callable[[Params], Temperature],
    *,
    follows_plan: bool,
) -> MemoryPolicy:
    """`searching.search_policy`, or `searching.planning_policy`, deterministic, that counts its model steps."""
    config = config._replace(record_paths=follows_plan)

    def init(num_envs: int) -> Counted:
        plan = no_plan(num_envs, depth_of(config), env.action_spec.shape) if follows_plan else None
        return Counted(plan, jnp.zeros((num_envs,), jnp.int32))

    def act(
        params: Params, memory: Counted, env_state: EnvState, observation: Observation, key: Key, _deterministic: bool
    ) -> tuple[Array, Counted]:
        asked = network_params(params), temperature(params)
        action, output = searching.decide(model, config, *asked, key, Root(env_state, observation), True)
        plan = memory.plan
        if plan is not None:
            action, plan = searching.follow(plan, action, searching.recorded_paths(output), config.gamma)
        return action, Counted(plan, memory.model_steps + output.diagnostics.model_steps)

    return MemoryPolicy(init, act)


class Outcome(NamedTuple):
    """A level set played once, on the host."""

    returns: np.ndarray  # [E]
    lengths: np.ndarray  # [E] int32, decisions
    memory: Any  # [E, ...], of the policy
    seconds: float  # of playing


class Program:
    """A policy on a level set, compiled when it is first called, so that seeds share it and compiling is not timed."""

    def __init__(
        self, env: Environment, policy: Policy | MemoryPolicy, level_keys: Key, num_envs: int, *, deterministic: bool
    ) -> None:
        self._env = env
        self._player = EpisodePlayer(
            env,
            policy,
            frozen_levels(level_keys, num_envs),
            num_episodes=level_keys.shape[0],
            num_envs=num_envs,
            deterministic=deterministic,
            less_memory=_LESS_MEMORY,
        )

    def __call__(self, params: Params, key: Key) -> Outcome:
        """What became of it. The key is consumed.

        Raises:
            RunError: out of memory, or too large to be compiled.
            UnsupportedEnvironmentError: see `episodes.refuse_undeclared`.
        """
        with plain_errors("the levels cannot be played", _LESS_MEMORY):
            self._player.compile(params, key)
            began = time.monotonic()
            results, memory = self._player(params, key, watch=SignOfLife(on_stderr))
            seconds = time.monotonic() - began
        refuse_undeclared(self._env, results)
        return Outcome(np.asarray(results.episode_return), np.asarray(results.episode_length), memory, seconds)
