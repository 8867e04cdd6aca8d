"""Fine-tuning on rows of written turns: a decoder learns the states of a world by supervised learning.

Source: SPA (arXiv 2510.15047), section 2.2. A gradient step reads `batch_size` rows. An epoch has an order of its own
and reads each row once; what is left over of an epoch, fewer rows than a batch, is not read in it.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.counting import TRAINED_TOKENS, Count
from stoix_like.algorithms.agent.setup import Agent, make_agent
from stoix_like.algorithms.optimizer import OptimizerState, apply_gradients, init_optimizer
from stoix_like.algorithms.text import batches
from stoix_like.algorithms.text.batches import TokenRows
from stoix_like.algorithms.text.world_model import sums_by_span, supervised_loss_sum
from stoix_like.algorithms.text.world_rows import SupervisedRows, WrittenTurns, kept_tokens, supervised_rows
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.sections.agent import FineTuneSectionConfig
from stoix_like.config.sections.agent_runs import FineTuneConfig
from stoix_like.errors import ConfigError
from stoix_like.language.spans import COUNTED, SPANS, LossMask, is_counted
from stoix_like.language.tokenizers import Tokenizer
from stoix_like.networks.transformer.model import kernels
from stoix_like.types import Array, Key, Learner, Metrics, NetworkParams, TextWorld, role_key


class FineTuneHyper(NamedTuple):
    """Numbers that may differ between lanes and that a sweep may replace without recompiling. [] float32."""

    actor_lr: Array
    critic_lr: Array  # not read: there is no critic
    max_grad_norm: Array
    weight_decay: Array
    adam_b1: Array
    adam_b2: Array
    warmup_share: Array  # of all updates, in which the rate rises
    num_updates: Array


class FineTuneState(NamedTuple):
    """Everything that an update reads and writes. Of it, rows, prompt and tokenizer are inputs and are not saved."""

    params: NetworkParams
    hyper: FineTuneHyper
    key: Key  # the root, never changed
    step: Array  # [] int32, updates done
    optimizer: OptimizerState
    trained: Count  # tokens with loss
    rows: SupervisedRows  # [R, ...]
    prompt: Array  # [P] int32
    tokenizer: Array  # [32] uint8, the hash of the vocabulary


class Setup(NamedTuple):
    """What the functions of this module need beside the state."""

    agent: Agent
    num_steps: int  # gradient steps of an update
    batch_size: int
    num_parts: int  # of a batch, whose gradients are added up
    loss_mask: LossMask
    schedule: str  # "cosine" or "constant"


def make(
    world: TextWorld, tokenizer: Tokenizer, config: FineTuneConfig, training: WrittenTurns, validation: WrittenTurns
) -> Learner:
    """A learner of rows. Raises ConfigError as `make_agent`, or if there are too few rows."""
    agent = make_agent(world, tokenizer, config)
    section, most = config.fine_tune, config.evaluation.num_eval_episodes
    kept = [kept_tokens(turns, section.max_length, section.truncation) for turns in (training, validation)]
    num_rows, num_held_out = (int(tokens.any(axis=(1, 2)).sum()) for tokens in kept)
    if num_rows < section.batch_size or num_held_out == 0:
        raise ConfigError(
            f"fine_tune.batch_size: there are {num_rows} rows to learn from and {num_held_out} of validation",
            "lower batch_size, raise max_length, or generate more",
        )
    rows, held_out = training_rows(agent, section, training), training_rows(agent, section, validation)
    held_out = jax.tree.map(lambda x: x[:most] if most else x, held_out)
    setup = Setup(
        agent,
        num_steps=config.training_core.num_minibatches,
        batch_size=section.batch_size,
        num_parts=section.num_microbatches,
        loss_mask=section.loss_mask,
        schedule=section.schedule,
    )
    return Learner(
        init=functools.partial(init, setup, make_hyper(config), rows),
        update=functools.partial(update, setup),
        shared=("rows", "prompt", "tokenizer"),
        score=functools.partial(score, setup, tokens_by_span(held_out), len(held_out.written)),
        items=held_out,
        seeds="map",
    )


def rows_per_update(config: FineTuneConfig) -> int:
    """Rows that an update reads. A step of fine-tuning is a row."""
    return config.fine_tune.batch_size * config.training_core.num_minibatches


def training_rows(agent: Agent, section: FineTuneSectionConfig, turns: WrittenTurns) -> SupervisedRows:
    """The rows as they are learned from: cut to `max_length`, with the spans of their answers. Arrays of the host."""
    is_kept = kept_tokens(turns, section.max_length, section.truncation)
    return supervised_rows(agent.rules.slots, agent.lexicon.spans, turns, is_kept)


def make_hyper(config: FineTuneConfig) -> FineTuneHyper:
    """The numbers of the configuration, float32 on the host."""
    values: dict[str, Any] = {name: np.float32(get_leaf(config, name)) for name in FineTuneHyper._fields}
    return FineTuneHyper(**values)


def init(setup: Setup, hyper: FineTuneHyper, rows: SupervisedRows, key: Key) -> FineTuneState:
    """A fresh state from the root key."""
    params = setup.agent.model.init(role_key(key, "params"))
    return FineTuneState(
        params=params,
        hyper=jax.tree.map(jnp.asarray, hyper),
        key=key,
        step=jnp.int32(0),
        optimizer=init_optimizer(params),
        trained=Count.zero(),
        rows=jax.tree.map(jnp.asarray, rows),
        prompt=jnp.asarray(setup.agent.lexicon.prompt),
        tokenizer=jnp.asarray(setup.agent.tokenizer_hash),
    )


class _Learning(NamedTuple):
    params: NetworkParams
    optimizer: OptimizerState
    num_tokens: Array  # [] int32


def update(setup: Setup, state: FineTuneState) -> tuple[FineTuneState, Metrics]:
    """(the state one update later, metrics): gradient steps on the next rows."""
    is_kernel, hyper = kernels(state.params), state.hyper

    def step(learning: _Learning, index: Array) -> tuple[_Learning, Metrics]:
        number = state.step * setup.num_steps + index
        rows = jax.tree.map(lambda x: x[batch_of_step(setup, state, number)], state.rows)
        parts = _parts(setup, rows)
        loss = functools.partial(_loss_sum, setup, state.prompt)
        gradient, metrics = batches.mean_gradient(loss, learning.params, parts)
        factor = learning_rate_factor(setup, hyper, number)
        now, betas = (learning.params, learning.optimizer), (hyper.adam_b1, hyper.adam_b2)
        params, optimizer = apply_gradients(*now, gradient, hyper, factor, hyper.weight_decay, is_kernel, betas)
        metrics["trainer/learning_rate"] = hyper.actor_lr * factor
        return _Learning(params, optimizer, learning.num_tokens + parts.is_chosen.sum()), metrics

    begin = _Learning(state.params, state.optimizer, jnp.int32(0))
    learning, every = jax.lax.scan(step, begin, jnp.arange(setup.num_steps))
    trained = state.trained.plus(learning.num_tokens)
    metrics = jax.tree.map(jnp.mean, every) | {TRAINED_TOKENS: trained.metric()}
    after = state._replace(params=learning.params, optimizer=learning.optimizer, trained=trained, step=state.step + 1)
    return after, metrics


def batch_of_step(setup: Setup, state: FineTuneState, number: Array) -> Array:
    """[B] int32, the rows of a gradient step by its number since update 0."""
    num_rows = state.rows.written.shape[0]
    epoch, place = jnp.divmod(number, num_rows // setup.batch_size)
    order = jax.random.permutation(role_key(state.key, "shuffle", epoch), num_rows)
    return jax.lax.dynamic_slice_in_dim(order, place * setup.batch_size, setup.batch_size)


def learning_rate_factor(setup: Setup, hyper: FineTuneHyper, number: Array) -> Array:
    """What the rate is multiplied by at a gradient step: rising linearly to 1, then constant or half a cosine to 0."""
    total = jnp.maximum(hyper.num_updates * setup.num_steps, 1.0)
    warmup = jnp.maximum(hyper.warmup_share * total, 1.0)
    rising = jnp.minimum(1.0, (number + 1.0) / warmup)
    if setup.schedule == "constant":
        return rising
    progress = jnp.clip((number - warmup) / jnp.maximum(total - warmup, 1.0), 0.0, 1.0)
    return rising * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))


def _parts(setup: Setup, rows: SupervisedRows) -> TokenRows:
    """The rows of a batch [num_parts, B / num_parts, ...]."""
    has_loss, nothing = is_counted(rows.span, setup.loss_mask), jnp.zeros(rows.span.shape)
    every = TokenRows(
        rows.packed, rows.written, has_loss, nothing, nothing, nothing, nothing, is_answer=has_loss, reference=nothing
    )
    parts: TokenRows = jax.tree.map(lambda x: x.reshape(setup.num_parts, -1, *x.shape[1:]), every)
    return parts


def _loss_sum(setup: Setup, prompt: Array, params: NetworkParams, part: TokenRows) -> tuple[Array, Metrics]:
    return supervised_loss_sum(setup.agent.model, prompt, params, part.packed, part.chosen, part.is_chosen)


def score(
    setup: Setup, num_tokens: np.ndarray, num_rows: int, params: NetworkParams, rows: SupervisedRows, _keys: Key
) -> dict[str, Array]:
    """{name: [N]} of rows: `loss_SPAN` in nats and `accuracy_SPAN`, whose means over rows are those over tokens.

    Spans that no row has are left out. `score` is minus the loss of the tokens that are learned from. Nothing is drawn.

    Args:
        setup: of the learner.
        num_tokens: [spans], of all rows that are scored.
        num_rows: of all rows that are scored.
        params: of the decoder.
        rows: [N, ...].
    """
    prompt = jnp.asarray(setup.agent.lexicon.prompt)
    losses, rights = sums_by_span(setup.agent.model, prompt, params, rows.packed, rows.written, rows.span)
    weights = (num_rows / np.maximum(num_tokens, 1)).astype(np.float32)  # [spans]
    counted = np.array(COUNTED[setup.loss_mask])
    found = {"score": -losses[:, counted].sum(axis=1) * num_rows / max(1, num_tokens[counted].sum())}
    for index, name in ((index, name) for index, name in enumerate(SPANS) if num_tokens[index]):
        found |= {
            f"loss_{name}": losses[:, index] * weights[index],
            f"accuracy_{name}": rights[:, index] * weights[index],
        }
    return found


def tokens_by_span(rows: SupervisedRows) -> np.ndarray:
    """[spans] how many tokens of each span rows have."""
    return np.array([int((np.asarray(rows.span) == index).sum()) for index in range(len(SPANS))])
