"""A decoder that is called once for each token of an answer, by a loop of Python which ends when all rows have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent import slots as layout
from stoix_like.algorithms.agent.speaking import model_speaker
from stoix_like.bench.agents.batching import Codec, new_texts, padded, rounded_up
from stoix_like.bench.agents.conversations import Answers, Begin, Conversation
from stoix_like.bench.agents.policies import Case
from stoix_like.language.dialogue import Lexicon
from stoix_like.language.sampling import sample_token
from stoix_like.networks.transformer.attention import KeyValues
from stoix_like.networks.transformer.decoder import Chunk, Context
from stoix_like.types import Array, Key, NetworkParams

SHARES = 4  # of the slots of a turn: so much of it is read as its longest text needs


class _Reading(NamedTuple):
    """What was read."""

    cache: KeyValues  # [layers, N, H, P + L, D]
    is_valid: Array  # [N, L] bool
    hidden: Array  # [N, D], after the last token


class _Functions(NamedTuple):
    """Compiled functions."""

    begin: Callable[..., _Reading]  # (lexicon, params) -> reading
    read: Callable[..., _Reading]  # (reading, params, tokens, is_valid, first slot, number of slots) -> reading
    sample: Callable[..., Any]  # -> (tokens [N], has_ended [N], reading), see `_sample`


def make_begin(case: Case, codec: Codec, keys: Key) -> Begin:
    """How a loop starts that calls the decoder once for each token."""
    slots, functions = case.agent.rules.slots, _compiled(case, keys.shape[0])

    def begin() -> Answers:
        reading = functions.begin(case.lexicon, case.params)

        def answers(turn: int, conversations: Sequence[Conversation]) -> list[list[int]]:
            nonlocal reading
            encoded = new_texts(codec, conversations)
            width = min(slots.state, rounded_up(max(map(len, encoded)), -(-slots.state // SHARES)))
            first, num_slots = int(slots.first(turn)) + slots.state, _slots_seen(case, turn)
            tokens, is_valid = padded(encoded, len(encoded), width)
            reading = functions.read(reading, case.params, tokens, is_valid, np.int32(first - width), num_slots)
            has_ended, chosen = ~is_valid.any(axis=1), []
            for place in range(slots.answer):
                if has_ended.all():
                    break
                where = np.array([turn, place, first + place], np.int32)
                sampled, ended, reading = functions.sample(
                    reading, case.lexicon, case.params, keys, where, has_ended, num_slots
                )
                chosen.append(np.where(has_ended, -1, sampled))
                has_ended = np.asarray(ended)
            return [[token for token in row if token >= 0] for row in np.stack(chosen, axis=1).tolist()]

        return answers

    return begin


def _slots_seen(case: Case, turn: int) -> int:
    """As far as ours attends in this turn."""
    slots = case.agent.rules.slots
    return next(reach for reach in slots.reaches if reach >= (turn + 1) * slots.per_turn)


def _compiled(case: Case, num_rows: int) -> _Functions:
    agent = case.agent

    def begin(lexicon: Lexicon, params: NetworkParams) -> _Reading:
        slots = agent.rules.slots
        speaker = model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, slots, agent.temperature)
        memory = speaker.begin(num_rows)
        return _Reading(memory.cache, memory.is_valid, jnp.zeros((num_rows, agent.model.sizes.width)))

    return _Functions(
        jax.jit(begin),
        jax.jit(functools.partial(_read, case), static_argnums=5, donate_argnums=0),
        jax.jit(functools.partial(_sample, case), static_argnums=6, donate_argnums=0),
    )


def _read(
    case: Case, reading: _Reading, params: NetworkParams, tokens: Array, is_valid: Array, first: Array, num_slots: int
) -> _Reading:
    """The reading with a chunk [N, Q] from a slot on, which attends to what is in the first slots."""
    model, slots = case.agent.model, case.agent.rules.slots
    valid = jax.lax.dynamic_update_slice(reading.is_valid, is_valid, (0, first))
    queries = first + jnp.arange(tokens.shape[1])
    place = jnp.take(layout.positions(slots, valid[:, :num_slots]), queries, axis=1)
    mask = layout.attention_mask(slots, valid[:, :num_slots], queries)
    last = None if tokens.shape[1] == 1 else jnp.full_like(tokens[:, :1], tokens.shape[1] - 1)
    context = Context(cache=reading.cache, slot=slots.prompt + first)
    hidden, cache = model.hidden(params, Chunk(tokens, place, mask, last), context)
    return _Reading(cast(KeyValues, cache), valid, hidden[:, -1])


def _sample(
    case: Case,
    reading: _Reading,
    lexicon: Lexicon,
    params: NetworkParams,
    keys: Key,
    where: Array,
    has_ended: Array,
    num_slots: int,
) -> tuple[Array, Array, _Reading]:
    """(tokens [N], has_ended [N], reading) after one more token. `where` is its turn, its place in it and its slot."""
    turn, place, slot = where
    of_tokens = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, turn), place))(keys)
    logits = case.agent.model.logits(params, reading.hidden)
    tokens, _ = sample_token(of_tokens, logits, case.agent.temperature)
    tokens = jnp.where(has_ended, 0, tokens)
    is_end = jnp.any(tokens[:, None] == lexicon.ends[None], axis=1) & ~has_ended
    reading = _read(case, reading, params, tokens[:, None], ~has_ended[:, None], slot, num_slots)
    return tokens, has_ended | is_end, reading
