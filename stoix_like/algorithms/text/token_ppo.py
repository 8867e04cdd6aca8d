"""PPO over tokens: whole episodes of an agent that writes, advantages of each token it chose, clipped updates.

Sources: Schulman et al. 2017 (arXiv 1707.06347); the upper clip of its own from DAPO (Yu et al. 2025, arXiv
2503.14476); the value clip as in verl. What the world wrote and what an answer is forced to begin with has no part in
any loss.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.counting import Counts
from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.metrics import episode_metrics
from stoix_like.algorithms.agent.playing import WorldState
from stoix_like.algorithms.agent.scoring import make_items, score
from stoix_like.algorithms.agent.setup import Agent, make_agent
from stoix_like.algorithms.agent.speaking import model_speaker
from stoix_like.algorithms.minibatch import num_logical_shards
from stoix_like.algorithms.optimizer import OptimizerState, apply_gradients, init_optimizer, linear_decay
from stoix_like.algorithms.text import advantages, batches
from stoix_like.algorithms.text.batches import TokenRows
from stoix_like.algorithms.text.reading import PackedRows, pack_rows, read_rows
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.sections.agent_runs import AgentConfig
from stoix_like.errors import ConfigError
from stoix_like.language.dialogue import Lexicon
from stoix_like.language.tokenizers import Tokenizer
from stoix_like.ops import losses, masked
from stoix_like.types import Array, Key, Learner, Metrics, NetworkParams, TextWorld, role_key

ANSWER_ENTROPY = "trainer/answer_entropy"
ANSWER_TOKENS = "trainer/answer_tokens"  # of a minibatch, by which the entropy is divided; not reported


class TokenPPOHyper(NamedTuple):
    """Numbers that may differ between lanes and that a sweep may replace without recompiling. [] float32."""

    actor_lr: Array
    critic_lr: Array
    max_grad_norm: Array
    clip_eps: Array  # below 1
    clip_eps_high: Array  # above 1
    value_clip_eps: Array  # read only if the configuration sets it
    ent_coef: Array
    vf_coef: Array
    gamma: Array  # per token
    gae_lambda: Array  # per token
    reward_scale: Array
    num_updates: Array  # updates over which the rates fall to 0


class TokenPPOState(NamedTuple):
    """Everything that an update reads and writes. Of it, lexicon and tokenizer are inputs and are not saved."""

    params: NetworkParams
    hyper: TokenPPOHyper
    key: Key  # the root, never changed
    step: Array  # [] int32, updates done
    optimizer: OptimizerState
    counts: Counts
    groups: Array  # [M] int32, the numbers of the groups, divided over the devices
    lexicon: Lexicon
    tokenizer: Array  # [32] uint8, the hash of the vocabulary, an input too


class TokenPPOSettings(NamedTuple):
    """What the compiled program is made for, beside the agent."""

    epochs: int
    num_minibatches: int
    num_microbatches: int
    num_shards: int
    clips_value: bool
    decays_rates: bool
    standardization: str  # "batch", "minibatch" or "none"
    entropy_of: str  # the tokens with a bonus: "all" or "answer"


class Setup(NamedTuple):
    """What the functions of this module need beside the state."""

    agent: Agent
    settings: TokenPPOSettings


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
        shared=("lexicon", "tokenizer"),
        sharded=("groups",),
        score=functools.partial(score, agent, config.agent.num_eval_samples),
        items=make_items(agent, evaluation.level_set, max(1, evaluation.num_eval_episodes)),
        seeds="map",
    )


def settings_of(config: AgentConfig, agent: Agent) -> TokenPPOSettings:
    """The fixed part of the program."""
    core, optimization, group_size = config.training_core, config.optimization, config.agent.group_size
    rows_per_group = group_size * (1 if agent.rules.slots.is_conversation else agent.rules.slots.turns)
    num_groups = config.environment.num_envs // group_size
    parts = core.num_minibatches * config.token_ppo.num_microbatches
    return TokenPPOSettings(
        epochs=core.epochs,
        num_minibatches=core.num_minibatches,
        num_microbatches=config.token_ppo.num_microbatches,
        num_shards=num_logical_shards(num_groups, rows_per_group, parts),
        clips_value=optimization.value_clip_eps is not None,
        decays_rates=optimization.decay_learning_rates,
        standardization=optimization.standardize_advantages,
        entropy_of=config.token_ppo.entropy_of,
    )


def make_hyper(config: AgentConfig) -> TokenPPOHyper:
    """The numbers of the configuration, float32 on the host; a null one becomes 0 and is not read."""
    values: dict[str, Any] = {name: np.float32(get_leaf(config, name) or 0.0) for name in TokenPPOHyper._fields}
    return TokenPPOHyper(**values)


def init(setup: Setup, hyper: TokenPPOHyper, num_groups: int, key: Key) -> TokenPPOState:
    """A fresh state from the root key."""
    params = setup.agent.model.init(role_key(key, "params"))
    return TokenPPOState(
        params=params,
        hyper=jax.tree.map(jnp.asarray, hyper),
        key=key,
        step=jnp.int32(0),
        optimizer=init_optimizer(params),
        counts=Counts.zero(),
        groups=jnp.arange(num_groups, dtype=jnp.int32),
        lexicon=jax.tree.map(jnp.asarray, setup.agent.lexicon),
        tokenizer=jnp.asarray(setup.agent.tokenizer_hash),
    )


def update(setup: Setup, state: TokenPPOState) -> tuple[TokenPPOState, Metrics]:
    """(the state one update later, metrics): play one episode in each row, then `epochs` passes over the tokens."""
    episodes, world = collect(setup, state)
    rows = compute_rows(setup, state, episodes)
    params, optimizer, metrics = optimize(setup, state, rows)
    counts = state.counts.plus(
        generated=episodes.is_chosen.sum(),
        trained=episodes.is_chosen.sum() * setup.settings.epochs,
        world_steps=episodes.turns.num_actions.sum(),
    )
    factor = linear_decay(setup.settings.decays_rates, state.step, state.hyper.num_updates)
    metrics |= episode_metrics(setup.agent.dialogue, setup.agent.rules, episodes, world) | counts.metrics()
    metrics["trainer/learning_rate"] = state.hyper.actor_lr * factor
    metrics["trainer/explained_variance"] = _explained_variance(rows)
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


def compute_rows(setup: Setup, state: TokenPPOState, episodes: Episodes) -> TokenRows:
    """The rows of episodes with values, advantages (standardised if over the batch) and targets of the values."""
    slots, hyper = setup.agent.rules.slots, state.hyper
    packed = pack_rows(slots, episodes.tokens, episodes.is_valid)
    value = episodes.value.reshape(packed.before.shape)  # [R, T', G]
    if setup.agent.model.critic == "separate":
        value = _values(setup, state, packed)
    by_row, is_chosen = value.shape, episodes.is_chosen
    by_turn = value.reshape(episodes.value.shape)
    numbers = (hyper.reward_scale, hyper.gamma, hyper.gae_lambda)
    advantage, target = advantages.of_episodes(episodes, by_turn, *numbers)
    if setup.settings.standardization == "batch":
        advantage = masked.standardize(advantage, is_chosen)
    return TokenRows(
        packed,
        chosen=episodes.chosen.reshape(by_row),
        is_chosen=is_chosen.reshape(by_row),
        log_prob=episodes.log_prob.reshape(by_row),
        value=value,
        advantage=advantage.reshape(by_row),
        target=target.reshape(by_row),
        is_answer=batches.answer_tokens(state.lexicon.spans, episodes).reshape(by_row),
    )


def _values(setup: Setup, state: TokenPPOState, packed: PackedRows) -> Array:
    """[R, T', G] of all rows, as many at a time as a gradient step reads."""
    num_parts = setup.settings.num_minibatches * setup.settings.num_microbatches

    def read(part: PackedRows) -> Array:
        return cast(Array, read_rows(setup.agent.model, state.params, state.lexicon.prompt, part)[1])

    parts = jax.tree.map(lambda x: x.reshape(num_parts, -1, *x.shape[1:]), packed)
    values = jax.lax.map(lambda part: batches.at_least_length(part, read), parts)
    return cast(Array, values.reshape(packed.before.shape))


class _Learning(NamedTuple):
    params: NetworkParams
    optimizer: OptimizerState


def optimize(setup: Setup, state: TokenPPOState, rows: TokenRows) -> tuple[NetworkParams, OptimizerState, Metrics]:
    """(parameters, optimiser state, metrics) after all passes over the rows."""
    settings = setup.settings
    factor = linear_decay(settings.decays_rates, state.step, state.hyper.num_updates)
    loss = functools.partial(loss_sum, setup, state.hyper, state.lexicon.prompt)

    def step(learning: _Learning, indices: Array) -> tuple[_Learning, Metrics]:
        parts = batches.take_rows(rows, indices, settings.num_microbatches)
        if settings.standardization == "minibatch":
            parts = parts._replace(advantage=masked.standardize(parts.advantage, parts.is_chosen))
        gradient, metrics = batches.mean_gradient(loss, learning.params, parts)
        return _Learning(*apply_gradients(*learning, gradient, state.hyper, factor)), metrics

    def epoch(learning: _Learning, key: Key) -> tuple[_Learning, Metrics]:
        dealt = batches.dealt_rows(key, rows.packed.length, settings.num_shards, settings.num_minibatches)
        return jax.lax.scan(step, learning, dealt)

    keys = jax.random.split(role_key(state.key, "shuffle", state.step), settings.epochs)
    learning, every = jax.lax.scan(epoch, _Learning(state.params, state.optimizer), keys)
    metrics = jax.tree.map(jnp.mean, every)
    metrics[ANSWER_ENTROPY] /= jnp.maximum(metrics.pop(ANSWER_TOKENS), 1e-9)
    return learning.params, learning.optimizer, metrics


def loss_sum(
    setup: Setup, hyper: TokenPPOHyper, prompt: Array, params: NetworkParams, rows: TokenRows
) -> tuple[Array, Metrics]:
    """(the scalar to minimise, its parts as metrics), each a sum over the chosen tokens of rows."""
    agent = setup.agent
    logits, found = read_rows(agent.model, params, prompt, rows.packed)
    value = cast(Array, found)
    log_probs = jax.nn.log_softmax(logits / agent.temperature, axis=-1)
    log_prob = jnp.take_along_axis(log_probs, rows.chosen[..., None], axis=-1)[..., 0]
    log_prob = jnp.where(rows.is_chosen, log_prob, rows.log_prob)
    entropy = -jnp.sum(jnp.exp(log_probs) * jnp.where(log_probs > -1e9, log_probs, 0.0), axis=-1)
    ratio = jnp.exp(log_prob - rows.log_prob)
    held = jnp.clip(ratio, 1.0 - hyper.clip_eps, 1.0 + hyper.clip_eps_high)
    if setup.settings.clips_value:
        errors = losses.clipped_squared_error(value, rows.value, rows.target, hyper.value_clip_eps)
    else:
        errors = losses.squared_error(value, rows.target)
    per_token = {
        "trainer/policy_loss": -jnp.minimum(ratio * rows.advantage, held * rows.advantage),
        "trainer/value_loss": errors,
        "trainer/entropy": entropy,
        "trainer/approx_kl": losses.approximate_kl(log_prob, rows.log_prob),
        "trainer/clip_fraction": (held != ratio).astype(jnp.float32),
    }
    sums: dict[str, Any] = {name: jnp.where(rows.is_chosen, x, 0.0).sum() for name, x in per_token.items()}
    sums[ANSWER_ENTROPY] = jnp.where(rows.is_answer, entropy, 0.0).sum()
    sums[ANSWER_TOKENS] = rows.is_answer.sum().astype(jnp.float32)
    bonus = sums["trainer/entropy" if setup.settings.entropy_of == "all" else ANSWER_ENTROPY]
    loss = sums["trainer/policy_loss"] + hyper.vf_coef * sums["trainer/value_loss"]
    return loss - hyper.ent_coef * bonus, sums


def _explained_variance(rows: TokenRows) -> Array:
    """1 - Var(target - value) / Var(target) over the chosen tokens."""
    mean = functools.partial(masked.masked_mean, mask=rows.is_chosen)

    def variance(x: Array) -> Array:
        return mean(jnp.square(x - mean(x)))

    return 1.0 - variance(rows.target - rows.value) / jnp.maximum(variance(rows.target), 1e-8)
