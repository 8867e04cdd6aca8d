"""Who writes the answers: a language model that reads each turn and samples, token by token.

A speaker is two functions, so that a program that writes by rule can take the model's place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent import slots as layout
from stoix_like.algorithms.agent.slots import Slots
from stoix_like.language.sampling import sample_token
from stoix_like.networks.transformer.attention import KeyValues
from stoix_like.networks.transformer.decoder import Chunk, Context, empty_cache
from stoix_like.networks.transformer.model import LanguageModel
from stoix_like.types import Array, Key, NetworkParams

NUM_BLOCKS = 4  # in which the text of a turn is read


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
    """

    begin: Callable[[int], Any]
    answer: Callable[[Any, UserTurn, Key], tuple[Answer, Any]]


class _Memory(NamedTuple):
    cache: KeyValues  # [layers, N, H, P + L, D]
    is_valid: Array  # [N, L] bool, of the slots after the prompt


class _Sampling(NamedTuple):
    place: Array  # [] int32, slots of the answer that are filled
    hidden: Array  # [N, D], after the last token
    has_ended: Array  # [N] bool
    answer: Answer
    memory: _Memory


#: (memory, tokens [N, Q], which are there, first slot) -> (hidden state [N, D] after them, memory)
_Reader = Callable[[_Memory, Array, Array, Array | int], tuple[Array, _Memory]]


class _SpeakingModel(NamedTuple):
    """A model that speaks."""

    model: LanguageModel
    params: NetworkParams
    prompt: Array  # [P]
    ends: Array  # [E]
    slots: Slots
    temperature: float


def model_speaker(
    model: LanguageModel, params: NetworkParams, prompt: Array, ends: Array, slots: Slots, temperature: float
) -> Speaker:
    """A model that samples at a temperature, after a prompt [P], until one of the tokens `ends` [E] or the last slot.

    The prompt is read once. `answer` reads the turn, and then samples until every row has ended.
    """
    speaking = _SpeakingModel(model, params, prompt, ends, slots, temperature)
    return Speaker(functools.partial(_begin, speaking), functools.partial(_answer, speaking))


def _begin(speaking: _SpeakingModel, num_rows: int) -> _Memory:
    slots = speaking.slots
    cache = empty_cache(speaking.model.sizes, num_rows, slots.prompt + slots.per_row)
    read = speaking.model.prompt(speaking.params, speaking.prompt)

    def fill(empty: Array, once: Array) -> Array:
        return empty.at[:, :, :, : slots.prompt].set(once)

    return _Memory(KeyValues(*map(fill, cache, read)), jnp.zeros((num_rows, slots.per_row), bool))


def _answer(speaking: _SpeakingModel, memory: _Memory, user_turn: UserTurn, keys: Key) -> tuple[Answer, _Memory]:
    """The answers to a turn. What is compiled attends to a share of the slots, as early turns see few of them."""
    slots = speaking.slots
    if not slots.is_conversation:
        memory = memory._replace(is_valid=jnp.zeros_like(memory.is_valid))
        return _answer_within(slots.per_row, speaking, memory, user_turn, keys)
    within = [functools.partial(_answer_within, reach, speaking) for reach in slots.reaches]
    branch = jnp.searchsorted(jnp.array(slots.reaches), (user_turn.turn + 1) * slots.per_turn)
    return cast(tuple[Answer, _Memory], jax.lax.switch(branch, within, memory, user_turn, keys))


def _answer_within(
    num_slots: int, speaking: _SpeakingModel, memory: _Memory, user_turn: UserTurn, keys: Key
) -> tuple[Answer, _Memory]:
    """The answers of rows that have no token after the first slots."""
    slots, first = speaking.slots, speaking.slots.first(user_turn.turn)
    read = functools.partial(_read, num_slots, speaking)
    if slots.is_conversation:  # whose cache is large, and a loop of blocks copies it
        hidden, memory = read(memory, user_turn.tokens, user_turn.is_valid, first)
    else:
        hidden, memory = _read_turn(read, memory, user_turn, first)
    empty = _no_answer(user_turn.tokens.shape[0], slots.answer)
    begun = _Sampling(jnp.int32(0), hidden, ~user_turn.is_active, empty, memory)

    def goes_on(state: _Sampling) -> Array:
        return (state.place < slots.answer) & ~jnp.all(state.has_ended)

    sample = functools.partial(_sample, speaking, read, keys, first + slots.state)
    ended = jax.lax.while_loop(goes_on, sample, begun)
    return ended.answer._replace(was_cut=~ended.has_ended), ended.memory


def _sample(speaking: _SpeakingModel, read: _Reader, keys: Key, first: Array | int, state: _Sampling) -> _Sampling:
    """One more token of each row that has not ended, of answers that begin at a slot."""
    at_place = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, state.place)
    logits = speaking.model.logits(speaking.params, state.hidden)
    tokens, log_prob = sample_token(at_place, logits, speaking.temperature)
    speaks = ~state.has_ended
    tokens = jnp.where(speaks, tokens, 0)
    found = (log_prob, _sampled_value(speaking.model, speaking.params, state.hidden))
    numbers = [jnp.where(speaks, x, 0.0) for x in found]
    written = _with_token(state.answer, state.place, tokens, speaks, *numbers)
    hidden, memory = read(state.memory, tokens[:, None], speaks[:, None], first + state.place)
    is_end = jnp.any(tokens[:, None] == speaking.ends[None], axis=1) & speaks
    return _Sampling(state.place + 1, hidden, state.has_ended | is_end, written, memory)


def _read_turn(read: _Reader, memory: _Memory, user_turn: UserTurn, first: Array | int) -> tuple[Array, _Memory]:
    """(hidden state [N, D] after a turn, the memory with it), block by block.

    Texts are at the ends of their slots. Blocks before the longest are empty in all rows and are not read.
    """
    num_slots = user_turn.tokens.shape[1]
    size = -(-num_slots // NUM_BLOCKS)
    num_needed = -(-user_turn.is_valid.sum(axis=1).max() // size)

    def read_block(index: Array, carry: tuple[Array, _Memory]) -> tuple[Array, _Memory]:
        start = jnp.maximum(num_slots - (NUM_BLOCKS - index) * size, 0)  # the first two may overlap
        tokens, is_valid = (
            jax.lax.dynamic_slice_in_dim(x, start, size, axis=1) for x in (user_turn.tokens, user_turn.is_valid)
        )
        return read(carry[1], tokens, is_valid, first + start)

    shape = jax.eval_shape(read_block, jnp.int32(0), (None, memory))[0]
    begun = (jnp.zeros(shape.shape, shape.dtype), memory)
    return jax.lax.fori_loop(jnp.minimum(NUM_BLOCKS - num_needed, NUM_BLOCKS - 1), NUM_BLOCKS, read_block, begun)


def _read(
    num_slots: int, speaking: _SpeakingModel, memory: _Memory, tokens: Array, is_valid: Array, first: Array | int
) -> tuple[Array, _Memory]:
    """(hidden state [N, D] after a chunk [N, Q], the memory with it) from a slot on, all within the first slots."""
    slots = speaking.slots
    valid = jax.lax.dynamic_update_slice(memory.is_valid, is_valid, (0, jnp.asarray(first)))
    queries = first + jnp.arange(tokens.shape[1])
    place = jnp.take(layout.positions(slots, valid[:, :num_slots]), queries, axis=1)
    context = Context(cache=memory.cache, slot=slots.prompt + first)
    mask = layout.attention_mask(slots, valid[:, :num_slots], queries)
    last = None if tokens.shape[1] == 1 else jnp.full_like(tokens[:, :1], tokens.shape[1] - 1)
    hidden, cache = speaking.model.hidden(speaking.params, Chunk(tokens, place, mask, last), context)
    return hidden[:, -1], _Memory(cast(KeyValues, cache), valid)


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
