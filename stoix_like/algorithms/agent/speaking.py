"""Who writes the answers: a language model that reads each turn and samples, token by token.

A speaker is two functions, so that a program that writes by rule can take the model's place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent import memory as memories
from stoix_like.algorithms.agent.memory import Memory
from stoix_like.algorithms.agent.rows import take_rows
from stoix_like.algorithms.agent.slots import Slots
from stoix_like.language.sampling import sample_token
from stoix_like.networks.transformer.model import LanguageModel
from stoix_like.types import Array, Key, NetworkParams

NUM_BLOCKS = 5  # in which the text of a turn is read


class UserTurn(NamedTuple):
    """A turn to be answered, by N rows."""

    turn: Array  # [] int32
    tokens: Array  # [N, S] int32
    is_valid: Array  # [N, S] bool
    is_active: Array  # [N] bool: the others do not answer
    env_state: Any  # [N, ...]; a model does not look at it


class Answer(NamedTuple):
    """N answers. A row that has ended has no further token."""

    tokens: Array  # [N, G] int32
    is_valid: Array  # [N, G] bool
    log_prob: Array  # [N, G] float32
    value: Array  # [N, G] float32, of the state before each token; 0 from a speaker without values
    was_cut: Array  # [N] bool: all slots are filled, and the turn has not ended


class Speaker(NamedTuple):
    """Who answers.

    Attributes:
        begin: number of rows -> memory at the start of their episodes.
        answer: (memory, turn, keys [N]) -> (answers, memory). It consumes the keys.
        take_rows: (memory, which rows, see `rows.take`) -> memory of these. By default rows are first in its arrays.
    """

    begin: Callable[[int], Any]
    answer: Callable[[Any, UserTurn, Key], tuple[Answer, Any]]
    take_rows: Callable[[Any, Array], Any] = take_rows


class _Sampling(NamedTuple):
    place: Array  # [] int32, slots of the answer that are filled
    hidden: Array  # [N, D], after the last token
    has_ended: Array  # [N] bool
    answer: Answer
    memory: Memory


#: states [N, ...] -> (tokens [N, G] that answers begin with, which slots have one), without a gap
Beginning = Callable[[Any], tuple[Array, Array]]


class _SpeakingModel(NamedTuple):
    """A model that speaks."""

    model: LanguageModel
    params: NetworkParams
    prompt: Array  # [P]
    ends: Array  # [E]
    slots: Slots
    temperature: float
    begins: Beginning | None


def model_speaker(
    model: LanguageModel,
    params: NetworkParams,
    prompt: Array,
    ends: Array,
    slots: Slots,
    temperature: float,
    begins: Beginning | None = None,
) -> Speaker:
    """A model that samples at a temperature, after a prompt [P], until one of the tokens `ends` [E] or the last slot.

    The prompt is read once. `answer` reads the turn, and then samples until every row has ended. Where it is told how
    its answer begins, it samples what comes after; the tokens before have log-probability 0.
    """
    speaking = _SpeakingModel(model, params, prompt, ends, slots, temperature, begins)
    per_turn = block_length(slots) * NUM_BLOCKS + slots.answer
    num_slots = per_turn * (slots.turns if slots.is_conversation else 1)
    begin = functools.partial(memories.begin, model, params, prompt, num_slots=num_slots)
    return Speaker(begin, functools.partial(_answer, speaking), memories.take_rows)


def block_length(slots: Slots) -> int:
    """The slots of a block of a turn's text."""
    return -(-slots.state // NUM_BLOCKS)


def _answer(speaking: _SpeakingModel, memory: Memory, user_turn: UserTurn, keys: Key) -> tuple[Answer, Memory]:
    """The answers to a turn."""
    slots = speaking.slots
    num_read = slots.answer  # tokens of an answer that something follows
    if not slots.is_conversation:
        memory, num_read = memories.only_prompt(memory, slots.prompt), slots.answer - 1
    hidden, memory = _read_turn(speaking, memory, user_turn)
    empty = _no_answer(user_turn.tokens.shape[0], slots.answer)
    begun = _Sampling(jnp.int32(0), hidden, ~user_turn.is_active, empty, memory)
    told = None if speaking.begins is None else speaking.begins(user_turn.env_state)

    def goes_on(state: _Sampling) -> Array:
        return (state.place < num_read) & ~jnp.all(state.has_ended)

    def write_and_read(state: _Sampling) -> _Sampling:
        written, tokens, speaks = _written(speaking, keys, state, told)
        chunk = (tokens[:, None], speaks[:, None])
        hidden, memory = memories.read(speaking.model, speaking.params, state.memory, *chunk)
        return written._replace(hidden=hidden, memory=memory)

    ended = jax.lax.while_loop(goes_on, write_and_read, begun)
    if num_read < slots.answer:
        ended, *_ = _written(speaking, keys, ended, told)
    return ended.answer._replace(was_cut=~ended.has_ended), ended.memory


def _written(
    speaking: _SpeakingModel, keys: Key, state: _Sampling, told: tuple[Array, Array] | None
) -> tuple[_Sampling, Array, Array]:
    """(the answers with one more token of each row that has not ended, the tokens [N], which rows spoke [N])."""
    at_place = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, state.place)
    logits = speaking.model.logits(speaking.params, state.hidden)
    tokens, log_prob = sample_token(at_place, logits, speaking.temperature)
    if told is not None:
        token, is_told = (jax.lax.dynamic_index_in_dim(x, state.place, axis=1, keepdims=False) for x in told)
        tokens, log_prob = jnp.where(is_told, token, tokens), jnp.where(is_told, 0.0, log_prob)
    speaks = ~state.has_ended
    tokens = jnp.where(speaks, tokens, 0)
    found = (log_prob, _sampled_value(speaking.model, speaking.params, state.hidden))
    numbers = [jnp.where(speaks, x, 0.0) for x in found]
    written = _with_token(state.answer, state.place, tokens, speaks, *numbers)
    is_end = jnp.any(tokens[:, None] == speaking.ends[None], axis=1) & speaks
    after = _Sampling(state.place + 1, state.hidden, state.has_ended | is_end, written, state.memory)
    return after, tokens, speaks


def _read_turn(speaking: _SpeakingModel, memory: Memory, user_turn: UserTurn) -> tuple[Array, Memory]:
    """(hidden state [N, D] after a turn, the memory with it), block by block.

    Texts are at the ends of their slots. Blocks before the longest are empty in all rows and are not read.
    """
    size = block_length(speaking.slots)
    missing = size * NUM_BLOCKS - user_turn.tokens.shape[1]
    tokens, is_valid = (jnp.pad(x, ((0, 0), (missing, 0))) for x in (user_turn.tokens, user_turn.is_valid))
    num_needed = -(-user_turn.is_valid.sum(axis=1).max() // size)

    def read_block(index: Array, carry: tuple[Array, Memory]) -> tuple[Array, Memory]:
        block = (jax.lax.dynamic_slice_in_dim(x, index * size, size, axis=1) for x in (tokens, is_valid))
        return memories.read(speaking.model, speaking.params, carry[1], *block)

    shape = jax.eval_shape(read_block, jnp.int32(0), (None, memory))[0]
    begun = (jnp.zeros(shape.shape, shape.dtype), memory)
    return jax.lax.fori_loop(NUM_BLOCKS - jnp.maximum(num_needed, 1), NUM_BLOCKS, read_block, begun)


def _sampled_value(model: LanguageModel, params: NetworkParams, hidden: Array) -> Array:
    """[N] values of hidden states [N, D]. A separate critic reads whole rows instead, after the episodes."""
    if model.critic in (None, "separate"):
        return jnp.zeros(hidden.shape[0])
    return model.value(params, hidden)


def _no_answer(num_rows: int, num_slots: int) -> Answer:
    shape = (num_rows, num_slots)
    numbers = jnp.zeros(shape)
    return Answer(jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool), numbers, numbers, jnp.zeros(num_rows, bool))


def _with_token(answer: Answer, place: Array, *columns: Array) -> Answer:
    """The answers with one more token of each row: token, whether it is there, log-probability and value [N]."""
    rows = (answer.tokens, answer.is_valid, answer.log_prob, answer.value)
    put = [
        jax.lax.dynamic_update_slice(row, column[:, None], (0, place))
        for row, column in zip(rows, columns, strict=True)
    ]
    return Answer(put[0], put[1], put[2], put[3], answer.was_cut)
