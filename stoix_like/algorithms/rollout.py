"""Playing: one scan over time of a policy in auto-resetting environments, and what its finished episodes were worth.

Knows neither environment nor network: both arrive as functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.auto_reset import AutoReset, ResetDraws
from stoix_like.ops.breaches import BREACHES, breach, decision_breaches, non_finite_metric
from stoix_like.types import Array, EnvState, Key, Metrics, Observation

#: {metric: breach of the environment's contract that it counts}. They are refused, and not logged.
BREACH_METRICS = {f"actor/{name}_count": name for name in BREACHES}

#: Paths of a State whose arrays have leading axis N (`Learner.sharded`), if its field `rollout` is a RolloutState. The
#: level pool is not among them: any environment may take any level.
SHARDED = ("rollout.env_state", "rollout.observation", "rollout.episodes")


class RunningEpisodes(NamedTuple):
    """The unfinished episodes, carried across updates: cutting them at the border would favour short ones."""

    episode_return: Array  # [N] float32, reward units
    episode_length: Array  # [N] int32, steps


class RolloutState(NamedTuple):
    """Where playing stopped and goes on."""

    env_state: EnvState  # [N, ...]
    observation: Observation  # [N, ...], of the next decision
    pool: Any  # LevelPool
    episodes: RunningEpisodes


class Transition(NamedTuple):
    """One decision and what followed. Stacked by `collect` to [T, N, ...]."""

    observation: Observation  # [N, ...], acted on
    action: Array  # [N] or [N, F] int32
    record: Any  # [N, ...], what was noted when acting: PPO's log-probability, SPO's search targets
    reward: Array  # [N]
    discount: Array  # [N], the environment's own
    is_last: Array  # [N] bool
    next_observation: Observation | None  # [N, ...], the true final one; None if the environment cannot truncate


class _Finished(NamedTuple):
    """Per step: which episodes ended, and their totals."""

    is_last: Array  # [T, N] bool
    episode_return: Array  # [T, N]
    episode_length: Array  # [T, N]
    env_metrics: dict[str, Array]  # [T, N] each, `env.episode_metrics`
    levels_reused: Array  # [T]
    breaches: dict[str, Array]  # [T] each


ActFunction = Callable[[EnvState, Observation, Key], tuple[Array, Any]]  # -> action, record; all [N, ...]


def start(auto_reset: AutoReset, key: Key) -> RolloutState:
    """Fresh environments with empty running totals. Use under jit."""
    env_state, timestep, pool = auto_reset.init(key)
    zeros = jnp.zeros_like(timestep.reward, dtype=jnp.float32)
    episodes = RunningEpisodes(zeros, jnp.zeros_like(zeros, dtype=jnp.int32))
    return RolloutState(env_state, timestep.observation, pool, episodes)


def collect(
    auto_reset: AutoReset, act: ActFunction, state: RolloutState, key: Key, pool_key: Key, length: int
) -> tuple[RolloutState, Transition, Metrics]:
    """(state after, transitions [T, N, ...], metrics `actor/...` of the episodes that finished).

    Before playing the pool of fresh levels is filled once, and what is random about restarts is drawn for all steps.
    """

    def step(carry: RolloutState, drawn: tuple[Key, ResetDraws]) -> tuple[RolloutState, tuple[Transition, _Finished]]:
        return _step(auto_reset, act, carry, *drawn)

    state = state._replace(pool=auto_reset.refill(state.pool, pool_key))
    state, (transitions, finished) = jax.lax.scan(step, state, auto_reset.draw(key, length))
    return state, transitions, _episode_metrics(finished)


def _step(
    auto_reset: AutoReset, act: ActFunction, carry: RolloutState, act_key: Key, draws: ResetDraws
) -> tuple[RolloutState, tuple[Transition, _Finished]]:
    action, record = act(carry.env_state, carry.observation, act_key)
    env_state, timestep, pool, levels_reused = auto_reset.step(carry.env_state, action, carry.pool, draws)
    is_last = timestep.last()
    episode_return = carry.episodes.episode_return + timestep.reward
    episode_length = carry.episodes.episode_length + 1
    transition = Transition(
        observation=carry.observation,
        action=action,
        record=record,
        reward=timestep.reward,
        discount=timestep.discount,
        is_last=is_last,
        next_observation=timestep.extras.get("next_obs"),
    )
    env_metrics = timestep.extras["episode_metrics"]
    can_truncate = transition.next_observation is not None
    breaches = decision_breaches(carry.observation, timestep.reward)  # {name: [N]}
    breaches["undeclared_truncations"] = is_last & (timestep.discount > 0.0) & (not can_truncate)
    counts = {name: jnp.sum(flags, dtype=jnp.int32) for name, flags in breaches.items()}
    finished = _Finished(is_last, episode_return, episode_length, env_metrics, levels_reused, counts)
    running = RunningEpisodes(jnp.where(is_last, 0.0, episode_return), jnp.where(is_last, 0, episode_length))
    return RolloutState(env_state, timestep.observation, pool, running), (transition, finished)


def _episode_metrics(finished: _Finished) -> Metrics:
    done = finished.is_last

    def total(x: Array) -> Array:
        return jnp.sum(jnp.where(done, x.astype(jnp.float32), 0.0))

    metrics = {"actor/episodes_count": total(jnp.ones_like(finished.episode_return))}
    lengths = finished.episode_length.astype(jnp.float32)
    for name, values in (("return", finished.episode_return), ("length", lengths)):
        metrics[f"actor/episode_{name}_sum"] = total(values)
        metrics[f"actor/episode_{name}_max"] = jnp.max(values, initial=-jnp.inf, where=done)
        metrics[f"actor/episode_{name}_min"] = jnp.min(values, initial=jnp.inf, where=done)
    metrics |= {f"actor/{name}_sum": total(values) for name, values in finished.env_metrics.items()}
    metrics["actor/levels_reused_sum"] = jnp.sum(finished.levels_reused).astype(jnp.float32)
    for metric, name in BREACH_METRICS.items():
        metrics[metric] = jnp.sum(finished.breaches[name]).astype(jnp.float32)
    return metrics


def refuse_breaches(metrics: Metrics, task_id: str) -> Metrics:
    """The metrics without `BREACH_METRICS`, on the host, if these are all 0.

    Raises:
        UnsupportedEnvironmentError: one of them is above 0, or a sum over episodes is not finite.
    """
    for metric, name in BREACH_METRICS.items():
        if count := int(np.sum(metrics.get(metric, 0))):
            raise breach(name, count, task_id)
    for name, value in metrics.items():
        if name.startswith("actor/") and name.endswith("_sum") and not np.isfinite(value).all():
            raise non_finite_metric(name.removeprefix("actor/").removesuffix("_sum"), task_id)
    return {name: value for name, value in metrics.items() if name not in BREACH_METRICS}
