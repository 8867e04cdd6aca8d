"""The rule by which a configuration changes with its number of environments. Imports only the standard library."""

from __future__ import annotations

from typing import TypeVar

from stoix_like.config.layers import resolve
from stoix_like.config.sections.runs import AlphaZeroConfig, PPOConfig, SPOConfig

Config = TypeVar("Config", PPOConfig, SPOConfig, AlphaZeroConfig)

MOST_TIMES = 8  # the environments for which rates still grow
SHORT_ROLLOUT = 16  # steps below which PPO's rollouts are not halved


def scale_to_envs(config: Config, num_envs: int) -> Config:
    """The configuration for another number of environments, `k` times as many, with what has to change with them.

    - `num_minibatches`, `epochs` and `num_updates` stay: an update has as many gradient steps, of k times the samples.
    - `actor_lr` and `critic_lr` grow with the third root of k: they double at 8 times, and grow no further.
    - PPO's rollouts are half as long from 8 times on, but not shorter than 16 steps: there are levels enough.
    - The replay and the batches of SPO and AlphaZero grow with k, so samples are learned from as often as before.
    - A `reset_pool_size` that is a number grows with k, so levels are used again as often as before.

    docs/scaling.md says what it rests on. Raises ConfigError if the result is no valid configuration.
    """
    times = num_envs / config.environment.num_envs
    rates = min(max(times, 1.0 / MOST_TIMES), MOST_TIMES) ** (1 / 3)
    core, optimization = config.training_core, config.optimization
    leaves: dict[str, float | int] = {
        "num_envs": num_envs,
        "actor_lr": _rounded(optimization.actor_lr * rates),
        "critic_lr": _rounded(optimization.critic_lr * rates),
    }
    pool = config.environment.reset_pool_size
    if isinstance(pool, int):
        leaves["reset_pool_size"] = max(1, round(pool * times))
    if isinstance(config, PPOConfig):
        if times >= MOST_TIMES and core.rollout_length > SHORT_ROLLOUT:
            leaves["rollout_length"] = max(core.rollout_length // 2, SHORT_ROLLOUT)
    else:
        section = config.spo if isinstance(config, SPOConfig) else config.alphazero
        for name in ("replay_buffer_size", "batch_size"):
            leaves[name] = max(1, round(getattr(section, name) * times))
    return resolve(config, leaves)


def _rounded(rate: float) -> float:
    """Four significant digits, as a preset would have."""
    return float(f"{rate:.4g}")
