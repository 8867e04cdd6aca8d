"""Plays a level set with a method of `compare_search.py`: counts its model steps, and times it without compilation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms import searching
from stoix_like.evaluation.episodes import refuse_undeclared
from stoix_like.runtime.evaluators.episode_player import EpisodePlayer, frozen_levels, play_to_end
from stoix_like.runtime.hardware.devices import reraise_device_errors
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

_MEMORY_HINT = "let fewer levels be played at a time: --num-envs"


class CountingMemory(NamedTuple):
    """The memory of a counting search within an episode."""

    plan: Plan | None  # None if the search follows none
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
    """A deterministic `searching.search_policy` or `searching.planning_policy` that counts its model steps."""
    config = config._replace(record_paths=follows_plan)

    def init(num_envs: int) -> CountingMemory:
        plan = no_plan(num_envs, depth_of(config), env.action_spec.shape) if follows_plan else None
        return CountingMemory(plan, jnp.zeros((num_envs,), jnp.int32))

    def act(
        params: Params,
        memory: CountingMemory,
        env_state: EnvState,
        observation: Observation,
        key: Key,
        _deterministic: bool,
    ) -> tuple[Array, CountingMemory]:
        root = Root(env_state, observation)
        action, output = searching.decide(model, config, network_params(params), temperature(params), key, root, True)
        plan = memory.plan
        if plan is not None:
            action, plan = searching.follow(plan, action, searching.recorded_paths(output), config.gamma)
        return action, CountingMemory(plan, memory.model_steps + output.diagnostics.model_steps)

    return MemoryPolicy(init, act)


class LevelSetResult(NamedTuple):
    """The results of a level set that was played once, on the host."""

    returns: np.ndarray  # [E]
    lengths: np.ndarray  # [E] int32, decisions
    memory: Any  # [E, ...], of the policy at the end of the episodes
    seconds: float  # of playing, without compilation


class CompiledPolicy:
    """A policy on a level set. It is compiled at its first call, before timing, and all seeds share the program."""

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
            memory_hint=_MEMORY_HINT,
        )

    def __call__(self, params: Params, key: Key, report: Callable[[str], None] | None = None) -> LevelSetResult:
        """Plays the levels and returns the results. The key is consumed, `report` receives the progress.

        Raises:
            RunError: the device has too little memory, or the program is too large to be compiled.
            UnsupportedEnvironmentError: see `episodes.refuse_undeclared`.
        """
        with reraise_device_errors("the levels cannot be played", _MEMORY_HINT):
            self._player.compile(params, key)
            start = time.monotonic()
            results, memory = play_to_end(self._player.play(params, key), report)
            seconds = time.monotonic() - start
        refuse_undeclared(self._env, results)
        return LevelSetResult(np.asarray(results.episode_return), np.asarray(results.episode_length), memory, seconds)
