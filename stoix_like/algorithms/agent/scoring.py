"""Scores of an agent on levels: success of one sample, and of the best of several (Pass@k)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.metrics import episode_return, success
from stoix_like.algorithms.agent.playing import WorldState
from stoix_like.algorithms.agent.random_speaker import random_speaker
from stoix_like.algorithms.agent.setup import Agent
from stoix_like.algorithms.agent.speaking import Speaker, model_speaker
from stoix_like.evaluation import levels
from stoix_like.ops.masked import masked_mean
from stoix_like.ops.pass_at_k import pass_at_k
from stoix_like.types import Array, Key, NetworkParams

KS = (1, 2, 4, 8)  # of Pass@k, as far as there are samples
SUCCESS = "solve_rate"  # the metric of a world that says whether an episode succeeded


def make_items(agent: Agent, level_set: str | None, num_levels: int) -> np.ndarray:
    """[E, ...] the keys of the levels that are scored, as integers: a frozen set, by default the first `num_levels`.

    Raises ConfigError as `levels.level_set`.
    """
    task_id = agent.dialogue.world.env.task_id
    name = level_set or f"{levels.family_of(task_id)}-{num_levels}"
    return np.asarray(jax.random.key_data(levels.level_set(name, task_id).keys))


def score(agent: Agent, num_samples: int, params: NetworkParams, items: Any, keys: Key) -> dict[str, Array]:
    """{name: [N]} of levels `items`, each played `num_samples` times with sampled tokens.

    `score` is the mean success, `pass_at_k` that of the best of k samples (unbiased), `well_formed` the share of turns
    with a well-formed answer, `length` the mean number of turns. Samples of a level have chances of their own in the
    world, whatever groups have in training. A world that does not tell success has its return for a score.
    """
    rules, lexicon = agent.rules, agent.lexicon
    prompt, ends = jnp.asarray(lexicon.prompt), jnp.asarray(lexicon.ends)
    speaker = model_speaker(agent.model._replace(critic=None), params, prompt, ends, rules.slots, agent.temperature)
    episodes, world = _play(agent, num_samples, speaker, items, keys)
    succeeded = _by_level(_success(agent, episodes, world), num_samples)  # [N, samples]
    count = jnp.round(succeeded.sum(axis=1)).astype(jnp.int32)
    found = {"score": succeeded.mean(axis=1)}
    if SUCCESS in success(agent.dialogue, world):
        found[SUCCESS] = found["score"]
        found |= {f"pass_at_{k}": pass_at_k(count, num_samples, k) for k in KS if k <= num_samples}
    turns, num_tokens = episodes.turns, episodes.is_chosen.sum(axis=2)
    of_turns = {"well_formed": turns.is_well_formed, "cut": turns.was_cut, "answer_length": num_tokens}
    of_turns = {name: _by_level(x, num_samples).astype(jnp.float32) for name, x in of_turns.items()}
    was_played = _by_level(turns.was_played, num_samples)  # [N, samples, T]
    found |= {name: jax.vmap(masked_mean)(x, was_played) for name, x in of_turns.items()}
    found["actions"] = _by_level(world.num_actions, num_samples).mean(axis=1)
    found["length"] = _by_level(turns.was_played.sum(axis=1), num_samples).mean(axis=1)
    return found


def random_success(agent: Agent, num_samples: int, items: Any, keys: Key) -> Array:
    """[N] mean success of random actions on levels `items`, in answers of the format."""
    speaker = random_speaker(agent.dialogue, agent.lexicon, agent.rules.slots, agent.rules.actions_per_turn)
    episodes, world = _play(agent, num_samples, speaker, items, keys)
    return _by_level(_success(agent, episodes, world), num_samples).mean(axis=1)


def _play(agent: Agent, num_samples: int, speaker: Speaker, items: Any, keys: Key) -> tuple[Episodes, WorldState]:
    rules = agent.rules._replace(group_size=num_samples, shares_noise=False)
    level_keys = jax.random.wrap_key_data(jnp.asarray(items))
    lexicon = jax.tree.map(jnp.asarray, agent.lexicon)
    return rollout(agent.dialogue, lexicon, rules, speaker, level_keys, keys, held_out=True)


def _success(agent: Agent, episodes: Episodes, world: WorldState) -> Array:
    """[N] float32, 1 where an episode succeeded; in a world that does not say so, its return."""
    metrics = success(agent.dialogue, world)
    return metrics[SUCCESS] if SUCCESS in metrics else episode_return(episodes)


def _by_level(x: Array, num_samples: int) -> Array:
    return x.reshape(-1, num_samples, *x.shape[1:])
