"""Pretraining: a model learns the format of answers from a speaker that knows nothing else.

An untrained model never writes a valid answer, so everything that is learned later begins with this one: its answers
are well-formed and its actions are random. Modes and renderings take turns, an update each.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.counting import TRAINED_TOKENS, Count
from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.random_speaker import random_speaker
from stoix_like.algorithms.agent.scoring import make_items, random_success, score
from stoix_like.algorithms.agent.setup import Agent, make_agent
from stoix_like.algorithms.minibatch import num_logical_shards
from stoix_like.algorithms.optimizer import OptimizerState, apply_gradients, init_optimizer, linear_decay
from stoix_like.algorithms.text import batches
from stoix_like.algorithms.text.batches import TokenRows
from stoix_like.algorithms.text.reading import pack_rows
from stoix_like.algorithms.text.token_ppo import group_keys
from stoix_like.algorithms.text.world_model import supervised_loss_sum
from stoix_like.config.checks.access import get_leaf, replace_leaves
from stoix_like.config.sections.agent_runs import PretrainConfig
from stoix_like.language.dialogue import Lexicon
from stoix_like.language.tokenizers import Tokenizer
from stoix_like.networks.transformer.model import kernels
from stoix_like.types import Array, Key, Learner, Metrics, NetworkParams, TextWorld, role_key

#: Those of `all_renderings`, which every world of cells has.
ALL_RENDERINGS = ("grid", "coordinates", "both")


class PretrainHyper(NamedTuple):
    """Numbers that may differ between lanes and that a sweep may replace without recompiling. [] float32."""

    actor_lr: Array
    critic_lr: Array  # not read: there is no critic
    max_grad_norm: Array
    weight_decay: Array
    warmup_updates: Array
    num_updates: Array  # updates over which the rate falls to 0


class PretrainState(NamedTuple):
    """Everything that an update reads and writes. Of it, lexicons and tokenizer are inputs and are not saved."""

    params: NetworkParams
    hyper: PretrainHyper
    key: Key  # the root, never changed
    step: Array  # [] int32, updates done
    optimizer: OptimizerState
    trained: Count  # tokens
    groups: Array  # [N] int32, the numbers of the episodes, divided over the devices
    lexicons: tuple[Lexicon, ...]  # one for each of the setup's agents
    tokenizer: Array  # [32] uint8, the hash of the vocabulary, an input too


class Setup(NamedTuple):
    """What the functions of this module need beside the state."""

    agents: tuple[Agent, ...]  # alike but for mode and rendering; the first is the configuration's own
    num_steps: int  # gradient steps of an update
    num_parts: int  # of the rows of a gradient step, whose gradients are added up
    decays_rates: bool


def make(world: TextWorld, tokenizer: Tokenizer, config: PretrainConfig) -> Learner:
    """A learner of the format in a world. Raises ConfigError as `make_agent` and `make_items`."""
    setup = Setup(
        agents=make_agents(world, tokenizer, config),
        num_steps=config.pretrain.gradient_steps,
        num_parts=config.training_core.num_minibatches,
        decays_rates=config.optimization.decay_learning_rates,
    )
    evaluation, own = config.evaluation, setup.agents[0]

    def scored(params: NetworkParams, items: Any, keys: Key) -> dict[str, Array]:
        found = score(own, config.agent.num_eval_samples, params, items, keys)
        by_chance = random_success(own, config.agent.num_eval_samples, items, keys)
        return found | {"solve_rate": found["score"], "random_solve_rate": by_chance, "score": found["well_formed"]}

    return Learner(
        init=functools.partial(init, setup, make_hyper(config), config.environment.num_envs),
        update=functools.partial(update, setup),
        shared=("lexicons", "tokenizer"),
        sharded=("groups",),
        score=scored,
        items=make_items(own, evaluation.level_set, max(1, evaluation.num_eval_episodes)),
        seeds="map",
    )


def make_agents(world: TextWorld, tokenizer: Tokenizer, config: PretrainConfig) -> tuple[Agent, ...]:
    """The agents of all modes and renderings that are learned, the configuration's own first."""
    own, section = config.agent, config.pretrain
    modes = world.prompts if section.all_modes else (own.mode,)
    renderings = {own.rendering, *(ALL_RENDERINGS if section.all_renderings else ())}
    pairs: list[tuple[str, str]] = [(own.mode, own.rendering)]
    pairs += [(mode, rendering) for mode in modes for rendering in world.pieces if rendering in renderings]
    pairs += [(own.mode, section.second_rendering)] if section.second_rendering else []
    agents = []
    for mode, rendering in dict.fromkeys(pairs):
        leaves: dict[str, Any] = {"mode": mode, "rendering": rendering, "group_size": 1}
        if (mode, rendering) != (own.mode, own.rendering):
            leaves |= {"answer_length": None, "state_length": None}  # the configured ones are of its own
        agents.append(make_agent(world, tokenizer, replace_leaves(config, leaves)))
    return tuple(agents)


def make_hyper(config: PretrainConfig) -> PretrainHyper:
    """The numbers of the configuration, float32 on the host."""
    values: dict[str, Any] = {name: np.float32(get_leaf(config, name)) for name in PretrainHyper._fields}
    return PretrainHyper(**values)


def init(setup: Setup, hyper: PretrainHyper, num_episodes: int, key: Key) -> PretrainState:
    """A fresh state from the root key."""
    params = setup.agents[0].model.init(role_key(key, "params"))
    return PretrainState(
        params=params,
        hyper=jax.tree.map(jnp.asarray, hyper),
        key=key,
        step=jnp.int32(0),
        optimizer=init_optimizer(params),
        trained=Count.zero(),
        groups=jnp.arange(num_episodes, dtype=jnp.int32),
        lexicons=tuple(jax.tree.map(jnp.asarray, agent.lexicon) for agent in setup.agents),
        tokenizer=jnp.asarray(setup.agents[0].tokenizer_hash),
    )


def update(setup: Setup, state: PretrainState) -> tuple[PretrainState, Metrics]:
    """(the state one update later, metrics): random play in one mode and rendering, and gradient steps on it.

    Rows of agents whose prompts are equally long are made equally long as well, and read by one program.
    """
    hyper, index = state.hyper, state.step % len(setup.agents)
    factor = linear_decay(setup.decays_rates, state.step, hyper.num_updates)
    factor *= jnp.minimum(1.0, (state.step + 1) / jnp.maximum(hyper.warmup_updates, 1.0))
    lengths = [agent.rules.slots.prompt for agent in setup.agents]
    groups = [[n for n, length in enumerate(lengths) if length == of_group] for of_group in dict.fromkeys(lengths)]
    where = [(g, group.index(n)) for n in range(len(lengths)) for g, group in enumerate(groups) if n in group]
    of_group, place = jnp.array(where)[index]
    branches = [functools.partial(_learn, setup, state, factor, group, place) for group in groups]
    learning, metrics, num_tokens = jax.lax.switch(of_group, branches)
    trained = state.trained.plus(num_tokens)
    metrics |= {"trainer/learning_rate": hyper.actor_lr * factor, TRAINED_TOKENS: trained.metric()}
    after = state._replace(params=learning.params, optimizer=learning.optimizer, trained=trained, step=state.step + 1)
    return after, metrics


class _Learning(NamedTuple):
    params: NetworkParams
    optimizer: OptimizerState


def _learn(
    setup: Setup, state: PretrainState, factor: Array, group: list[int], place: Array
) -> tuple[_Learning, Metrics, Array]:
    """(what was learned, metrics, number of tokens) of an update of the agent at a place in a group.

    The prompts of a group are equally long.
    """
    slots = [setup.agents[n].rules.slots for n in group]
    sizes = max(one.per_row for one in slots), max(one.answer for one in slots)
    plays = [functools.partial(_play, setup.agents[n], state, state.lexicons[n], *sizes) for n in group]
    rows, metrics = jax.lax.switch(place, plays)
    prompt = jnp.stack([state.lexicons[n].prompt for n in group])[place]
    learning, of_steps = _fit(setup, state, prompt, rows, factor)
    return learning, metrics | of_steps, rows.is_chosen.sum()


def _play(
    agent: Agent, state: PretrainState, lexicon: Lexicon, row_length: int, answer_length: int
) -> tuple[TokenRows, Metrics]:
    """(rows of random play with so many slots, and so many of their answers, metrics)."""
    speaker = random_speaker(agent.dialogue, lexicon, agent.rules.slots, agent.rules.actions_per_turn)
    levels, keys = group_keys(role_key(state.key, "agent", state.step), state.groups)
    episodes, _ = rollout(agent.dialogue, lexicon, agent.rules, speaker, levels, keys)
    metrics = {
        "actor/episodes_count": jnp.float32(episodes.tokens.shape[0]),
        "actor/episode_length_sum": episodes.turns.was_played.sum().astype(jnp.float32),
    }
    return _rows(agent, episodes, row_length, answer_length), metrics


def _fit(
    setup: Setup, state: PretrainState, prompt: Array, rows: TokenRows, factor: Array
) -> tuple[_Learning, Metrics]:
    """(what was learned, means of metrics) of gradient steps on the rows of one update."""
    num_episodes, num_rows = state.groups.shape[0], rows.chosen.shape[0]
    num_shards = num_logical_shards(num_episodes, num_rows // num_episodes, setup.num_steps * setup.num_parts)
    shuffle = role_key(state.key, "shuffle", state.step)
    dealt = batches.dealt_rows(shuffle, rows.packed.length, num_shards, setup.num_steps)
    model, is_kernel, hyper = setup.agents[0].model, kernels(state.params), state.hyper
    shares = batches.SHARES_OF_CONVERSATIONS if len(setup.agents) > 1 else None  # rows of modes differ in length

    def loss(params: NetworkParams, part: TokenRows) -> tuple[Array, Metrics]:
        return supervised_loss_sum(model, prompt, params, part.packed, part.chosen, part.is_chosen)

    def step(learning: _Learning, indices: Array) -> tuple[_Learning, Metrics]:
        parts = batches.take_rows(rows, indices, setup.num_parts)
        gradient, metrics = batches.mean_gradient(loss, learning.params, parts, shares)
        found = apply_gradients(*learning, gradient, hyper, factor, hyper.weight_decay, is_kernel)
        return _Learning(*found), metrics

    learning, every = jax.lax.scan(step, _Learning(state.params, state.optimizer), dealt)
    return learning, jax.tree.map(jnp.mean, every)


def _rows(agent: Agent, episodes: Episodes, row_length: int, answer_length: int) -> TokenRows:
    """The rows of episodes, of which every written token is learned."""
    packed = pack_rows(agent.rules.slots, episodes.tokens, episodes.is_valid)
    shape = packed.before.shape

    def wide(x: Array, slots: int) -> Array:
        return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, slots - x.shape[-1])])

    packed = packed._replace(tokens=wide(packed.tokens, row_length), before=wide(packed.before, answer_length))
    chosen, is_chosen = (wide(x.reshape(shape), answer_length) for x in (episodes.chosen, episodes.is_chosen))
    nothing, no = jnp.zeros(chosen.shape), jnp.zeros(chosen.shape, bool)
    return TokenRows(packed, chosen, is_chosen, nothing, nothing, nothing, nothing, is_answer=no, reference=nothing)
