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


def kept_tokens(turns: WrittenTurns, max_length: int | None, truncation: Truncation) -> np.ndarray:
    """[R, T, S + G] bool: at most `max_length` tokens after the prompt of each row, and of a row to be dropped none.

    Of longer rows "left" leaves out the first tokens, "right" the last, and "drop" all.
    """
    if max_length is None:
        return turns.is_valid
    flat = turns.is_valid.reshape(len(turns.is_valid), -1)
    length = flat.sum(axis=1)[:, None]
    place = flat.cumsum(axis=1) - 1  # of each token in its row
    if truncation == "drop":
        kept = flat & (length <= max_length)
    else:
        first = np.maximum(length - max_length, 0) if truncation == "left" else 0
        kept = flat & (place >= first) & (place < first + max_length)
    return kept.reshape(turns.is_valid.shape)


def supervised_rows(
    slots: Slots, spans: SpanTable, turns: WrittenTurns, is_kept: np.ndarray | None = None
) -> SupervisedRows:
    """The rows with the spans of their answers, arrays of the host. Rows of which no token is kept are left out.

    Spans are those of the whole answers, wherever a row is cut. The first token of a row, if an answer was cut there,
    has no span: it would be read from itself.

    Args:
        slots: of a turn.
        spans: of the vocabulary.
        turns: R rows.
        is_kept: [R, T, S + G] the tokens that are read, see `kept_tokens`; None = all.
    """
    slots = slots._replace(turns=turns.tokens.shape[1], is_conversation=True)  # a row is all that is in it

    @jax.jit
    def make(tokens: Array, is_valid: Array, is_kept: Array) -> SupervisedRows:
        packed = pack_rows(slots, tokens, is_kept)
        written, is_written = tokens[..., slots.state :], is_valid[..., slots.state :]
        by_answer = (-1, slots.answer)
        found = spans_of(spans, written.reshape(by_answer), is_written.reshape(by_answer))
        has_span = (is_kept & ~is_first_token(slots, is_kept))[..., slots.state :]
        return SupervisedRows(packed, written, jnp.where(has_span, found.reshape(written.shape), -1))

    is_kept = turns.is_valid if is_kept is None else is_kept
    stays = is_kept.any(axis=(1, 2))
    arrays = (jnp.asarray(x[stays]) for x in (turns.tokens, turns.is_valid, is_kept))
    rows: SupervisedRows = jax.device_get(make(*arrays))
    return rows
