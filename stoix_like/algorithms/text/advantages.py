"""Advantages of tokens that the agent chose: by a critic, over tokens or over turns and tokens, or within a group."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.types import Array


def of_episodes(
    episodes: Episodes, value: Array, reward_scale: Array | float, gamma: Array | float, gae_lambda: Array | float
) -> tuple[Array, Array]:
    """`of_turns` of the tokens that the agent chose, where a turn earns its reward and its penalty, times the scale."""
    reward = (episodes.turns.reward + episodes.turns.penalty) * reward_scale
    return of_turns(reward, episodes.is_chosen, value, gamma, gae_lambda)


def of_turns(
    reward: Array, is_chosen: Array, value: Array, gamma: Array | float, gae_lambda: Array | float
) -> tuple[Array, Array]:
    """(advantages, targets of the values) [N, T, G] of the chosen tokens of episodes with values [N, T, G] before them.

    A turn earns its reward [N, T] with its last token. For the others see `token_advantages`.
    """
    reward, by_episode = on_last_token(reward, is_chosen), (value.shape[0], -1)
    of_tokens = (value.reshape(by_episode), reward.reshape(by_episode), is_chosen.reshape(by_episode))
    advantage, target = token_advantages(*of_tokens, gamma, gae_lambda)
    return advantage.reshape(value.shape), target.reshape(value.shape)


def on_last_token(reward: Array, is_chosen: Array) -> Array:
    """[N, T, G]: rewards of turns [N, T] on the last chosen token of the turn, and 0 elsewhere."""
    follows = jnp.flip(jnp.cumsum(jnp.flip(is_chosen, -1), axis=-1), -1)  # chosen tokens from here to the end
    return jnp.where(is_chosen & (follows == 1), reward[..., None], 0.0)


def token_advantages(
    value: Array, reward: Array, is_chosen: Array, gamma: Array | float, gae_lambda: Array | float
) -> tuple[Array, Array]:
    """(advantages, targets of the values) [N, L] of the chosen tokens of episodes, 0 elsewhere.

    Schulman et al. 2016 (arXiv 1506.02438), equation 16, where a step is a chosen token, and the state after it is that
    before the next chosen one, in the same turn or a later one. What stands between has no part, whatever its values.
    Every episode ends, so nothing follows the last token.

    Args:
        value: [N, L], of the state before each token.
        reward: [N, L], after it.
        is_chosen: [N, L] bool.
        gamma: per token.
        gae_lambda: per token.
    """

    def step(carry: tuple[Array, Array], column: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        next_value, next_advantage = carry
        value, reward, chosen = column
        advantage = reward + gamma * next_value - value + gamma * gae_lambda * next_advantage
        return (jnp.where(chosen, value, next_value), jnp.where(chosen, advantage, next_advantage)), advantage

    nothing = jnp.zeros(value.shape[0])
    _, advantage = jax.lax.scan(step, (nothing, nothing), (value.T, reward.T, is_chosen.T), reverse=True)
    advantage = jnp.where(is_chosen, advantage.T, 0.0)
    return advantage, jnp.where(is_chosen, advantage + value, 0.0)


def bilevel_advantages(
    value: Array,
    reward: Array,
    is_chosen: Array,
    gamma: Array | float,
    gae_lambda: Array | float,
    turn_gamma: Array | float,
) -> tuple[Array, Array]:
    """(advantages, targets of the values) [N, T, G] of the chosen tokens of episodes, 0 elsewhere.

    First over turns: the value of a turn is that before its last chosen token, and a step is a turn in which a token
    was chosen, whatever its reward. The target of a turn, its advantage and its value, then takes the place of its
    reward, and `token_advantages` are found within each turn alone. (VAGEN's bi-level estimation, in RAGEN's
    `core_algos.py`, which takes the tokens with a reward other than 0 for the ends of turns.)

    Args:
        value: [N, T, G], of the state before each token.
        reward: [N, T], of each turn.
        is_chosen: [N, T, G] bool.
        gamma: per token.
        gae_lambda: per token, and per turn.
        turn_gamma: per turn.
    """
    of_turns = on_last_token(jnp.ones_like(reward), is_chosen) > 0.0
    turn_value, has_token = jnp.where(of_turns, value, 0.0).sum(axis=-1), is_chosen.any(axis=-1)
    _, turn_target = token_advantages(turn_value, reward, has_token, turn_gamma, gae_lambda)
    by_turn = (-1, value.shape[-1])
    rewards = on_last_token(turn_target, is_chosen).reshape(by_turn)
    found = token_advantages(value.reshape(by_turn), rewards, is_chosen.reshape(by_turn), gamma, gae_lambda)
    advantage, target = (x.reshape(value.shape) for x in found)
    return advantage, target


def group_advantages(episode_return: Array, group_size: int, *, leave_one_out: bool) -> Array:
    """[N] advantages of whole episodes over the others of their groups; members stand side by side.

    The return less the group's mean, over its deviation (GRPO, Shao et al. 2024, arXiv 2402.03300, section 4.1.2), or
    less the mean of the other members (RLOO, Ahmadian et al. 2024, arXiv 2402.14740, equation 8).
    """
    returns = episode_return.reshape(-1, group_size)
    above = returns - returns[:, :1]  # so that equal returns have a mean without rounding
    above -= above.mean(axis=1, keepdims=True)
    if leave_one_out:
        return (above * (group_size / max(group_size - 1, 1))).reshape(-1)
    deviation = jnp.sqrt(jnp.square(above).mean(axis=1, keepdims=True))
    return jnp.where(deviation > 0.0, above / (deviation + 1e-6), 0.0).reshape(-1)


def is_in_spread_groups(episode_return: Array, group_size: int, share: float) -> Array:
    """[N] bool: the episode is in one of the groups with the largest deviations of returns, a `share` of all groups.

    At least one group is kept. Of groups with equal deviations the first ones are. (StarPO-S in RAGEN, arXiv
    2504.20073, section 3.2.)
    """
    returns = episode_return.reshape(-1, group_size)
    deviation = (returns - returns[:, :1]).std(axis=1)  # 0, without rounding, of equal returns
    num_kept = max(1, math.floor(share * deviation.shape[0] + 1e-9))  # 0.29 * 100 is less than 29
    kept = jnp.zeros(deviation.shape, bool).at[jax.lax.top_k(deviation, num_kept)[1]].set(True)
    return jnp.repeat(kept, group_size)
