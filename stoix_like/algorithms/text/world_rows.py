"""Rows of written turns that a decoder is fine-tuned on, as the arrays of a file and as what a training pass reads."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.slots import Slots
from stoix_like.algorithms.text.reading import PackedRows, is_first_token, pack_rows
from stoix_like.language.spans import SpanTable, spans_of
from stoix_like.types import Array

Truncation = Literal["left", "right", "drop"]


class WrittenTurns(NamedTuple):
    """R rows of T turns, each a conversation or one turn: the slots of `Episodes`, on the host."""

    tokens: np.ndarray  # [R, T, S + G] int32
    is_valid: np.ndarray  # [R, T, S + G] bool


class SupervisedRows(NamedTuple):
    """R rows as a training pass reads them."""

    packed: PackedRows  # [R, ...]
    written: Array  # [R, T, G] int32, the tokens of the answers
    span: Array  # [R, T, G] int32, of `language.spans`; -1 where no token is


def truncated(turns: WrittenTurns, max_length: int | None, truncation: Truncation) -> WrittenTurns:
    """The rows with at most `max_length` tokens after the prompt: of longer ones the last or the first, or none at all.

    "left" leaves out the first tokens, "right" the last.
    """
    if max_length is None:
        return turns
    flat = turns.is_valid.reshape(len(turns.is_valid), -1)
    length = flat.sum(axis=1)
    if truncation == "drop":
        return WrittenTurns(*(x[length <= max_length] for x in turns))
    place = flat.cumsum(axis=1) - 1  # of each token in its row
    first = np.where(truncation == "left", np.maximum(length - max_length, 0), 0)[:, None]
    kept = flat & (place >= first) & (place < first + max_length)
    return turns._replace(is_valid=kept.reshape(turns.is_valid.shape))


def supervised_rows(slots: Slots, spans: SpanTable, turns: WrittenTurns) -> SupervisedRows:
    """The rows with the spans of their answers, arrays of the host.

    The first token of a row, if an answer was cut there, has no span: it would be read from itself.
    """
    slots = slots._replace(turns=turns.tokens.shape[1], is_conversation=True)  # a row is all that is in it

    @jax.jit
    def make(tokens: Array, is_valid: Array) -> SupervisedRows:
        packed = pack_rows(slots, tokens, is_valid)
        written, is_written = tokens[..., slots.state :], is_valid[..., slots.state :]
        by_answer = (-1, slots.answer)
        found = spans_of(spans, written.reshape(by_answer), is_written.reshape(by_answer))
        is_first = is_first_token(slots, is_valid)[..., slots.state :]
        return SupervisedRows(packed, written, jnp.where(is_first, -1, found.reshape(written.shape)))

    rows: SupervisedRows = jax.device_get(make(jnp.asarray(turns.tokens), jnp.asarray(turns.is_valid)))
    return rows
