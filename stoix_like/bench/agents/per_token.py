"""A decoder that is called once for each token of an answer, by a loop of Python which ends when all rows have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent import memory as memories
from stoix_like.algorithms.agent.memory import Memory
from stoix_like.algorithms.agent.speaking import block_length, model_speaker
from stoix_like.bench.agents.batching import Codec, new_texts, padded, rounded_up
from stoix_like.bench.agents.conversations import Answers, Begin, Conversation
from stoix_like.bench.agents.policies import Case
from stoix_like.language.dialogue import Lexicon
from stoix_like.language.sampling import sample_token
from stoix_like.types import Array, Key, NetworkParams


class _Reading(NamedTuple):
    """What was read."""

    memory: Memory
    hidden: Array  # [N, D], after the last token


class _Functions(NamedTuple):
    """Compiled functions."""

    begin: Callable[..., _Reading]  # (lexicon, params) -> reading
    read: Callable[..., _Reading]  # (reading, params, tokens, is_valid) -> reading
    sample: Callable[..., Any]  # -> (tokens [N], has_ended [N], reading), see `_sample`


def make_begin(case: Case, codec: Codec, keys: Key) -> Begin:
    """How a loop starts that calls the decoder once for each token."""
    slots, functions = case.agent.rules.slots, _compiled(case, keys.shape[0])
    size = block_length(slots)  # of which a turn's text has a multiple, as ours has

    def begin() -> Answers:
        reading = functions.begin(case.lexicon, case.params)

        def answers(turn: int, conversations: Sequence[Conversation]) -> list[list[int]]:
            nonlocal reading
            encoded = new_texts(codec, conversations)
            tokens, is_valid = padded(encoded, len(encoded), rounded_up(max(map(len, encoded)), size))
            reading = functions.read(reading, case.params, tokens, is_valid)
            has_ended, chosen = ~is_valid.any(axis=1), []
            for place in range(slots.answer):
                if has_ended.all():
                    break
                where = np.array([turn, place], np.int32)
                sampled, ended, reading = functions.sample(reading, case.lexicon, case.params, keys, where, has_ended)
                chosen.append(np.where(has_ended, -1, sampled))
                has_ended = np.asarray(ended)
            return [[token for token in row if token >= 0] for row in np.stack(chosen, axis=1).tolist()]

        return answers

    return begin


def _compiled(case: Case, num_rows: int) -> _Functions:
    agent = case.agent

    def begin(lexicon: Lexicon, params: NetworkParams) -> _Reading:
        slots = agent.rules.slots
        speaker = model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, slots, agent.temperature)
        return _Reading(speaker.begin(num_rows), jnp.zeros((num_rows, agent.model.sizes.width)))

    return _Functions(
        jax.jit(begin),
        jax.jit(functools.partial(_read, case), donate_argnums=0),
        jax.jit(functools.partial(_sample, case), donate_argnums=0),
    )


def _read(case: Case, reading: _Reading, params: NetworkParams, tokens: Array, is_valid: Array) -> _Reading:
    """The reading with a chunk [N, Q]."""
    hidden, memory = memories.read(case.agent.model, params, reading.memory, tokens, is_valid)
    return _Reading(memory, hidden)


def _sample(
    case: Case, reading: _Reading, lexicon: Lexicon, params: NetworkParams, keys: Key, where: Array, has_ended: Array
) -> tuple[Array, Array, _Reading]:
    """(tokens [N], has_ended [N], reading) after one more token. `where` is its turn and its place in it."""
    turn, place = where
    of_tokens = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, turn), place))(keys)
    logits = case.agent.model.logits(params, reading.hidden)
    tokens, _ = sample_token(of_tokens, logits, case.agent.temperature)
    tokens = jnp.where(has_ended, 0, tokens)
    is_end = jnp.any(tokens[:, None] == lexicon.ends[None], axis=1) & ~has_ended
    reading = _read(case, reading, params, tokens[:, None], ~has_ended[:, None])
    return tokens, has_ended | is_end, reading
