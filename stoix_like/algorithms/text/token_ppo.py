"""PPO over tokens: whole episodes of an agent that writes, advantages of each token it chose, clipped updates.

What the world wrote and what an answer is forced to begin with has no part in any loss, unless `loss_mask` is "all".
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.metrics import episode_metrics
from stoix_like.algorithms.agent.playing import WorldState
from stoix_like.algorithms.agent.scoring import make_items, score
from stoix_like.algorithms.agent.setup import make_agent
from stoix_like.algorithms.agent.speaking import model_speaker
from stoix_like.algorithms.optimizer import OptimizerState, apply_gradients, linear_decay
from stoix_like.algorithms.text import batches
from stoix_like.algorithms.text.batches import TokenRows
from stoix_like.algorithms.text.token_loss import ANSWER_ENTROPY, ANSWER_TOKENS, explained_variance, loss_sum
from stoix_like.algorithms.text.token_rows import compute_rows
from stoix_like.algorithms.text.token_state import Setup, TokenPPOState, init, make_hyper, settings_of
from stoix_like.config.sections.agent_runs import AgentConfig
from stoix_like.errors import ConfigError
from stoix_like.language.tokenizers import Tokenizer
from stoix_like.ops import masked, trees
from stoix_like.types import Array, Key, Learner, Metrics, NetworkParams, TextWorld, role_key


def make(world: TextWorld, tokenizer: Tokenizer, config: AgentConfig) -> Learner:
    """A learner of an agent in a world, with the configuration's numbers.

    Raises ConfigError as `make_agent` and `make_items`, or for a configuration of another algorithm.
    """
    if not isinstance(config, AgentConfig):
        raise ConfigError(
            f"token_ppo.make: a {type(config).__name__} is of another algorithm", "make it with agent_config(...)"
        )
    agent = make_agent(world, tokenizer, config, config.token_ppo.critic)
    setup = Setup(agent, settings_of(config, agent))
    num_groups = config.environment.num_envs // config.agent.group_size
    evaluation = config.evaluation
    return Learner(
        init=functools.partial(init, setup, make_hyper(config), num_groups),
        update=functools.partial(update, setup),
        shared=("lexicon", "tokenizer", *(("reference",) if setup.settings.has_reference else ())),
        sharded=("groups",),
        score=functools.partial(score, agent, config.agent.num_eval_samples),
        items=make_items(agent, evaluation.level_set, max(1, evaluation.num_eval_episodes)),
        seeds="map",
    )


def update(setup: Setup, state: TokenPPOState) -> tuple[TokenPPOState, Metrics]:
    """(the state one update later, metrics): play one episode in each row, then `epochs` passes over the tokens."""
    episodes, world = collect(setup, state)
    rows = compute_rows(setup, state, episodes)
    params, optimizer, metrics = optimize(setup, state, rows)
    counts = state.counts.plus(
        generated=episodes.is_chosen.sum(),
        trained=rows.is_chosen.sum() * setup.settings.epochs,
        world_steps=episodes.turns.num_actions.sum(),
    )
    factor = linear_decay(setup.settings.decays_rates, state.step, state.hyper.num_updates)
    metrics |= episode_metrics(setup.agent.dialogue, setup.agent.rules, episodes, world) | counts.metrics()
    metrics["trainer/learning_rate"] = state.hyper.actor_lr * factor
    if setup.settings.learns_values:
        metrics["trainer/explained_variance"] = explained_variance(rows)
    return state._replace(params=params, optimizer=optimizer, counts=counts, step=state.step + 1), metrics


def collect(setup: Setup, state: TokenPPOState) -> tuple[Episodes, WorldState]:
    """(N episodes of the current policy, the worlds at their ends)."""
    agent, lexicon = setup.agent, state.lexicon
    ends, slots = lexicon.ends, agent.rules.slots
    speaker = model_speaker(agent.model, state.params, lexicon.prompt, ends, slots, agent.temperature)
    root = role_key(state.key, "agent", state.step)
    levels, keys = group_keys(root, state.groups)
    return rollout(agent.dialogue, lexicon, agent.rules, speaker, levels, keys)


def group_keys(root: Key, groups: Array) -> tuple[Key, Key]:
    """(keys [M] of levels, keys [M] of all else) of groups [M] by their numbers."""
    both = jax.vmap(lambda group: jax.random.split(jax.random.fold_in(root, group)))(groups)  # [M, 2]
    return both[:, 0], both[:, 1]


class _Learning(NamedTuple):
    params: NetworkParams
    optimizer: OptimizerState


def optimize(setup: Setup, state: TokenPPOState, rows: TokenRows) -> tuple[NetworkParams, OptimizerState, Metrics]:
    """(parameters, optimiser state, metrics) after all passes over the rows."""
    settings = setup.settings
    factor = linear_decay(settings.decays_rates, state.step, state.hyper.num_updates)
    learns_policy = state.step >= state.hyper.critic_warmup_updates
    loss = functools.partial(loss_sum, setup, state.hyper, state.lexicon.prompt)

    def step(learning: _Learning, indices: Array) -> tuple[_Learning, Metrics]:
        parts = batches.take_rows(rows, indices, settings.num_microbatches)
        if settings.standardization == "minibatch":
            parts = parts._replace(advantage=masked.standardize(parts.advantage, parts.is_chosen))
        gradient, metrics = batches.mean_gradient(loss, learning.params, parts)
        gradient = jax.tree.map(lambda x: jnp.where(learns_policy, x, 0.0), gradient._replace(critic=None))._replace(
            critic=gradient.critic
        )
        params, optimizer = apply_gradients(*learning, gradient, state.hyper, factor)
        of_policy = trees.where(learns_policy, optimizer.actor, learning.optimizer.actor)  # its steps are not counted
        return _Learning(params, optimizer._replace(actor=of_policy)), metrics

    def epoch(learning: _Learning, key: Key) -> tuple[_Learning, Metrics]:
        dealt = batches.dealt_rows(key, rows.packed.length, settings.num_shards, settings.num_minibatches)
        return jax.lax.scan(step, learning, dealt)

    keys = jax.random.split(role_key(state.key, "shuffle", state.step), settings.epochs)
    learning, every = jax.lax.scan(epoch, _Learning(state.params, state.optimizer), keys)
    metrics = jax.tree.map(jnp.mean, every)
    metrics[ANSWER_ENTROPY] /= jnp.maximum(metrics.pop(ANSWER_TOKENS), 1e-9)
    return learning.params, learning.optimizer, metrics
