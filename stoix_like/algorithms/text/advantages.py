"""Advantages of tokens: generalised advantage estimation over those that the agent chose."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.types import Array


def of_episodes(
    episodes: Episodes, value: Array, reward_scale: Array | float, gamma: Array | float, gae_lambda: Array | float
) -> tuple[Array, Array]:
    """(advantages, targets of the values) [N, T, G] of the tokens of episodes with values [N, T, G] before them.

    A turn earns its reward and its penalty, times `reward_scale`, with its last token. For the others see
    `token_advantages`.
    """
    reward = (episodes.turns.reward + episodes.turns.penalty) * reward_scale
    reward, by_episode = on_last_token(reward, episodes.is_chosen), (value.shape[0], -1)
    of_tokens = (value.reshape(by_episode), reward.reshape(by_episode), episodes.is_chosen.reshape(by_episode))
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
        gamma, gae_lambda: per token.
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
