"""The rows that PPO over tokens learns from: what was sampled, values, advantages, and what a reference says of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.text import advantages, batches
from stoix_like.algorithms.text.batches import TokenRows
from stoix_like.algorithms.text.reading import PackedRows, is_first_token, pack_rows, read_rows
from stoix_like.algorithms.text.token_state import Setup, TokenPPOState
from stoix_like.ops import masked
from stoix_like.types import Array, NetworkParams


class _Learned(NamedTuple):
    """The tokens of episodes that may have a loss: all slots of a turn, or those of the answer. [N, T, G] each."""

    chosen: Array  # int32
    is_chosen: Array  # bool
    log_prob: Array  # float32
    value: Array  # float32


def compute_rows(setup: Setup, state: TokenPPOState, episodes: Episodes) -> TokenRows:
    """The rows of episodes with values, advantages (standardised if over the batch) and targets of the values.

    With a filter, rows of groups that are not learned from are left without a token.
    """
    settings, group_size = setup.settings, setup.agent.rules.group_size
    of_all = settings.loss_mask == "all"
    packed = pack_rows(setup.agent.rules.slots, episodes.tokens, episodes.is_valid, of_all=of_all)
    learned, reference = _learned(setup, state, episodes, packed)
    if settings.rollout_filter_ratio < 1.0:
        returns = (episodes.turns.reward + episodes.turns.penalty).sum(axis=1)
        is_kept = advantages.is_in_spread_groups(returns, group_size, settings.rollout_filter_ratio)
        learned = learned._replace(is_chosen=learned.is_chosen & is_kept[:, None, None])
        packed = _without_rows(packed, ~jnp.repeat(is_kept, packed.length.shape[0] // is_kept.shape[0]))
    advantage, target = _advantages(setup, state, episodes, learned)
    if settings.standardization == "batch":
        advantage = masked.standardize(advantage, learned.is_chosen)
    is_answer = batches.answer_tokens(state.lexicon.spans, episodes)
    if of_all:
        is_answer = jnp.pad(is_answer, ((0, 0), (0, 0), (setup.agent.rules.slots.state, 0)))
    by_row = packed.before.shape
    return TokenRows(
        packed,
        chosen=learned.chosen.reshape(by_row),
        is_chosen=learned.is_chosen.reshape(by_row),
        log_prob=learned.log_prob.reshape(by_row),
        value=learned.value.reshape(by_row),
        advantage=advantage.reshape(by_row),
        target=target.reshape(by_row),
        is_answer=(is_answer & learned.is_chosen).reshape(by_row),
        reference=reference,
    )


def _without_rows(packed: PackedRows, left_out: Array) -> PackedRows:
    """The rows, of which those that are `left_out` [R] have no token, and are read nowhere beyond their first slot."""
    return packed._replace(
        length=jnp.where(left_out, 0, packed.length), before=jnp.where(left_out[:, None, None], 0, packed.before)
    )


def _learned(setup: Setup, state: TokenPPOState, episodes: Episodes, packed: PackedRows) -> tuple[_Learned, Array]:
    """(the tokens, what the reference says of them [R, T', G]; 0 without one)."""
    settings, by_row = setup.settings, packed.before.shape
    learned = _Learned(episodes.chosen, episodes.is_chosen, episodes.log_prob, episodes.value)
    if settings.loss_mask == "all":
        nothing = jnp.zeros(episodes.tokens.shape)
        is_read = episodes.is_valid & ~is_first_token(setup.agent.rules.slots, episodes.is_valid)
        learned = _Learned(episodes.tokens, is_read, nothing, nothing)
    chosen = learned.chosen.reshape(by_row)
    if settings.recomputes or setup.agent.model.critic == "separate":
        log_prob, value = _read_all(setup, state, state.params, packed, chosen)
        learned = learned._replace(value=value.reshape(learned.value.shape))
        if settings.recomputes:
            learned = learned._replace(log_prob=log_prob.reshape(learned.value.shape))
    if state.reference is None:
        return learned, jnp.zeros(by_row)
    return learned, _read_all(setup, state, state.reference, packed, chosen)[0]


def _read_all(
    setup: Setup, state: TokenPPOState, params: NetworkParams, packed: PackedRows, chosen: Array
) -> tuple[Array, Array]:
    """(log-probabilities, values) [R, T', G] of all rows, as many at a time as a gradient step reads.

    Parameters without a critic say values of 0.
    """
    agent = setup.agent
    model = agent.model if params.critic is not None else agent.model._replace(critic=None)
    num_parts = setup.settings.num_minibatches * setup.settings.num_microbatches

    def read(packed: PackedRows, chosen: Array) -> tuple[Array, Array]:
        logits, value = read_rows(model, params, state.lexicon.prompt, packed)
        log_probs = jax.nn.log_softmax(logits / agent.temperature, axis=-1)
        log_prob = jnp.take_along_axis(log_probs, chosen[..., None], axis=-1)[..., 0]
        return log_prob, jnp.zeros_like(log_prob) if value is None else value

    def read_part(part: tuple[PackedRows, Array]) -> tuple[Array, Array]:
        found: tuple[Array, Array] = batches.at_least_length(part[0], lambda packed: read(packed, part[1]))
        return found

    parts: Any = jax.tree.map(lambda x: x.reshape(num_parts, -1, *x.shape[1:]), (packed, chosen))
    found: tuple[Array, Array] = jax.tree.map(lambda x: x.reshape(chosen.shape), jax.lax.map(read_part, parts))
    return found


def _advantages(setup: Setup, state: TokenPPOState, episodes: Episodes, learned: _Learned) -> tuple[Array, Array]:
    """(advantages, targets of the values) [N, T, G] of the tokens. Of groups the targets are the values themselves."""
    kind, hyper, is_chosen = setup.settings.advantage_estimator, state.hyper, learned.is_chosen
    reward = (episodes.turns.reward + episodes.turns.penalty) * hyper.reward_scale  # [N, T]
    per_token = (hyper.gamma, hyper.gae_lambda)
    if kind == "gae":
        return advantages.of_turns(reward, is_chosen, learned.value, *per_token)
    if kind == "bilevel_gae":
        return advantages.bilevel_advantages(learned.value, reward, is_chosen, *per_token, hyper.turn_gamma)
    group_size = setup.agent.rules.group_size
    of_episodes = advantages.group_advantages(reward.sum(axis=1), group_size, leave_one_out=kind == "rloo")
    return jnp.where(is_chosen, of_episodes[:, None, None], 0.0), jnp.where(is_chosen, learned.value, 0.0)
