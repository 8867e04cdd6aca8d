"""Scores of a policy, one per episode, from whole episodes of raw environments.

Episodes are played in rounds: all environments of a round start from a fresh reset and the round ends when the slowest
has finished, so every episode counted is its environment's first. Counting episodes as they finish in auto-resetting
environments would favour short ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.ops import trees
from stoix_like.ops.breaches import BREACHES, breach, decision_breaches, non_finite_metric
from stoix_like.ops.environment_contract import check_environment
from stoix_like.types import Array, Environment, EnvState, Key, MemoryPolicy, Observation, Params, Policy, TimeStep

MOST_STEPS = 100_000  # a guard against tasks that never end; steps


class EpisodeResults(NamedTuple):
    """One row per episode, in the order of the keys."""

    episode_return: Array  # [E] float32, reward units, undiscounted
    episode_length: Array  # [E] int32, steps
    env_metrics: dict[str, Array]  # [E] each, `env.episode_metrics` at the final step
    is_unfinished: Array  # [E] bool, cut after MOST_STEPS steps: neither return nor length are of a whole episode
    is_truncated: Array  # [E] bool, ended by LAST with a discount above 0
    breaches: dict[str, Array]  # [E] bool each, what the environment broke: see `refuse_breaches`


class Playing(NamedTuple):
    """A round of N episodes on its way."""

    state: EnvState  # [N, ...]
    timestep: TimeStep  # [N, ...]
    done: Array  # [N] bool
    memory: Any  # [N, ...], of the policy
    results: EpisodeResults  # [N]
    step: Array  # [], so far


def evaluate(
    env: Environment,
    policy: Policy | MemoryPolicy,
    params: Params,
    key: Key,
    *,
    num_episodes: int,
    num_envs: int | None = None,
    deterministic: bool = True,
) -> EpisodeResults:
    """Results [E] of `num_episodes` episodes on fresh levels, played `num_envs` at a time. Pure; jit it.

    An episode that has not ended after `MOST_STEPS` steps is cut, and marked as `is_unfinished`.

    Raises:
        ValueError: num_episodes is not a multiple of num_envs (default: all at once).
        UnsupportedEnvironmentError: see `check_environment`.
    """
    level_key, play_key = jax.random.split(key)
    level_keys = jax.random.split(level_key, num_episodes)
    return evaluate_levels(
        env, policy, params, level_keys, play_key, num_envs=num_envs or num_episodes, deterministic=deterministic
    )


def evaluate_levels(
    env: Environment,
    policy: Policy | MemoryPolicy,
    params: Params,
    level_keys: Key,
    key: Key,
    *,
    num_envs: int,
    deterministic: bool = True,
) -> EpisodeResults:
    """Results [E] on the levels that `env.reset` makes of `level_keys` [E], `num_envs` at a time. Pure; jit it.

    Raises:
        ValueError: E is not a multiple of num_envs.
        UnsupportedEnvironmentError: see `check_environment`.
    """
    num_episodes = level_keys.shape[0]
    if num_episodes % num_envs:
        raise ValueError(f"{num_episodes} episodes are not a multiple of {num_envs} environments")
    num_rounds = num_episodes // num_envs

    def play_round(keys: tuple[Key, Key]) -> EpisodeResults:
        round_levels, round_key = keys
        start = begin(env, policy, round_levels)
        return advance(env, policy, params, start, round_key, MOST_STEPS, deterministic=deterministic).results

    rounds = (level_keys.reshape(num_rounds, num_envs), jax.random.split(key, num_rounds))
    played: EpisodeResults = trees.merge_leading(jax.lax.map(play_round, rounds))
    return played


def begin(env: Environment, policy: Policy | MemoryPolicy, level_keys: Key) -> Playing:
    """A round of N episodes before its first step, on the levels of `level_keys` [N].

    Raises:
        UnsupportedEnvironmentError: see `check_environment`.
    """
    check_environment(env, carries_timestep=True)
    state, timestep = jax.vmap(env.evaluation_reset)(level_keys)
    zeros = jnp.zeros(level_keys.shape, jnp.float32)
    env_metrics = jax.tree.map(jnp.zeros_like, jax.eval_shape(jax.vmap(env.episode_metrics), state, timestep))
    never = zeros.astype(bool)
    breaches = dict.fromkeys(BREACHES, never)
    results = EpisodeResults(zeros, zeros.astype(jnp.int32), env_metrics, zeros == 0.0, never, breaches)
    memory = remembering(policy).init(level_keys.shape[0])
    return Playing(state, timestep, zeros.astype(bool), memory, results, jnp.int32(0))


def advance(
    env: Environment,
    policy: Policy | MemoryPolicy,
    params: Params,
    playing: Playing,
    key: Key,
    most_steps: Array | int,
    *,
    deterministic: bool = True,
) -> Playing:
    """The round when all have finished, or `most_steps` steps later. Pure; jit it.

    Each step has a key of its own, so with the same `key` it is the same whether it is played at once or in pieces.

    Args:
        env: raw.
        policy: chooses the actions.
        params: of the policy.
        playing: N episodes from `begin`, or from the call before.
        key: of the round, the same in every call.
        most_steps: of each episode in this call; episodes need not end, so the caller decides when to give up.
        deterministic: most probable actions, or sampled ones.
    """
    act, end = remembering(policy).act, playing.step + most_steps

    def goes_on(playing: Playing) -> Array:
        return jnp.any(~playing.done) & (playing.step < end)

    def step(playing: Playing) -> Playing:
        step_key = jax.random.fold_in(key, playing.step)
        observation = playing.timestep.observation
        action, memory = act(params, playing.memory, playing.state, observation, step_key, deterministic)
        memory = trees.where(~playing.done, memory, playing.memory)
        return _advance(env, playing._replace(memory=memory), action)

    played: Playing = jax.lax.while_loop(goes_on, step, playing)
    return played


def refuse_breaches(env: Environment, results: EpisodeResults) -> None:
    """Refuses results, on the host, of an environment that has broken its contract.

    Raises:
        UnsupportedEnvironmentError: an episode was truncated and `can_truncate` is False, had a decision without a
            legal action, or a reward, an observation or a metric of the environment that is not finite.
    """
    for name, flags in results.breaches.items():
        if count := int(np.sum(flags)):
            raise breach(name, count, env.task_id)
    for name, values in results.env_metrics.items():
        if not np.isfinite(values).all():
            raise non_finite_metric(name, env.task_id)


def remembering(policy: Policy | MemoryPolicy) -> MemoryPolicy:
    """The policy as one that remembers, if only nothing."""
    return policy if isinstance(policy, MemoryPolicy) else _without_memory(policy)


def _without_memory(policy: Policy) -> MemoryPolicy:
    def act(
        params: Params, memory: Any, env_state: EnvState, observation: Observation, key: Key, deterministic: bool
    ) -> tuple[Array, Any]:
        return policy(params, env_state, observation, key, deterministic), memory

    return MemoryPolicy(lambda _num_envs: (), act)


def _advance(env: Environment, playing: Playing, action: Array) -> Playing:
    state, timestep = jax.vmap(env.step)(playing.state, action)
    alive = ~playing.done
    before = playing.results
    env_metrics: dict[str, Any] = jax.vmap(env.episode_metrics)(state, timestep)
    is_last = timestep.last()
    is_truncated = jnp.where(alive, is_last & (timestep.discount > 0.0), before.is_truncated)
    shown = decision_breaches(playing.timestep.observation, timestep.reward)
    breaches = {name: before.breaches[name] | (alive & flags) for name, flags in shown.items()}
    breaches["undeclared_truncations"] = is_truncated & (not env.can_truncate)
    results = EpisodeResults(
        before.episode_return + jnp.where(alive, timestep.reward, 0.0),
        before.episode_length + alive,
        trees.where(alive, env_metrics, before.env_metrics),
        before.is_unfinished & ~is_last,
        is_truncated,
        breaches,
    )
    # Finished environments are frozen: their states may not be valid to step again.
    state, timestep = trees.where(alive, (state, timestep), (playing.state, playing.timestep))
    done = playing.done | is_last
    return Playing(state, timestep, done, playing.memory, results, playing.step + 1)
