"""Metrics of episodes: returns and success, and the signs by which a collapse of the language is seen early."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.loop import AgentRules
from stoix_like.algorithms.agent.playing import WorldState
from stoix_like.language.dialogue import Dialogue
from stoix_like.ops.masked import masked_mean
from stoix_like.types import Array, Metrics


def success(dialogue: Dialogue, world: WorldState) -> dict[str, Array]:
    """{name: [N] float32}, the world's own metrics of its episodes, such as `solve_rate`."""
    metrics = jax.vmap(dialogue.world.env.episode_metrics)(world.env_state, world.timestep)
    return {name: value.astype(jnp.float32) for name, value in metrics.items()}


def episode_return(episodes: Episodes) -> Array:
    """[N] float32, rewards and penalties."""
    return (episodes.turns.reward + episodes.turns.penalty).sum(axis=1)


def episode_metrics(dialogue: Dialogue, rules: AgentRules, episodes: Episodes, world: WorldState) -> Metrics:
    """`actor/...` of the episodes of an update. The length of an episode is its number of turns."""
    turns, num_tokens = episodes.turns, episodes.is_chosen.sum(axis=2)  # [N, T]
    returns, lengths = episode_return(episodes), turns.was_played.sum(axis=1).astype(jnp.float32)
    metrics = {"actor/episodes_count": jnp.float32(returns.shape[0]), "actor/levels_reused_sum": jnp.float32(0.0)}
    for name, values in (("return", returns), ("length", lengths)):
        metrics[f"actor/episode_{name}_sum"] = values.sum()
        metrics[f"actor/episode_{name}_max"] = values.max()
        metrics[f"actor/episode_{name}_min"] = values.min()
    metrics |= {f"actor/{name}_sum": values.sum() for name, values in success(dialogue, world).items()}
    of_turns = {
        "well_formed": turns.is_well_formed,
        "cut": turns.was_cut,
        "answer_length": num_tokens,
        "actions_per_turn": turns.num_actions,
    }
    metrics |= {f"actor/{name}": masked_mean(x.astype(jnp.float32), turns.was_played) for name, x in of_turns.items()}
    metrics["actor/valid_actions"] = _share(turns.num_named, turns.num_segments)
    metrics["actor/effective_actions"] = _share(turns.num_effective, turns.num_actions)
    if rules.group_size > 1:
        spread = jnp.std(returns.reshape(-1, rules.group_size), axis=1)
        metrics["actor/groups_without_spread"] = jnp.mean((spread < 1e-6).astype(jnp.float32))
    metrics["actor/log_prob"] = masked_mean(episodes.log_prob, episodes.is_chosen)
    return metrics


def _share(part: Array, whole: Array) -> Array:
    """Of counts, 0 of nothing."""
    return part.sum() / jnp.maximum(whole.sum(), 1).astype(jnp.float32)
