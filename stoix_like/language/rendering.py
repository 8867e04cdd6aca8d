"""Texts as token ids by look-up, in a compiled program: each piece of text is turned into tokens once, before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.errors import ConfigError
from stoix_like.language.tokenizers import Tokenizer
from stoix_like.types import Array


class PieceTable(NamedTuple):
    """The tokens of each piece of text. The last row is of no piece: it has no tokens, so index -1 writes nothing."""

    tokens: Array | np.ndarray  # [Q + 1, m] int32, filled up with 0
    lengths: Array | np.ndarray  # [Q + 1] int32


def make_table(texts: Sequence[str], tokenizer: Tokenizer) -> PieceTable:
    """The tokens of pieces, each by itself. Raises ConfigError, with the piece, if the tokenizer lacks one."""
    encoded = [tokenizer.encode(text) for text in texts] + [[]]
    tokens = np.zeros((len(encoded), max(1, *map(len, encoded))), np.int32)
    for row, ids in zip(tokens, encoded, strict=True):
        row[: len(ids)] = ids
    return PieceTable(tokens, np.array([len(ids) for ids in encoded], np.int32))


def pack(table: PieceTable, pieces: Array, num_slots: int, *, at_end: bool) -> tuple[Array, Array]:
    """(tokens [N, S] int32, is_valid [N, S] bool) of pieces [N, M], one after the other in slots without a gap.

    They stand at the end of the slots or at their beginning. Slots that are left have token 0. What does not fit is
    lost: `num_written` says how many slots are needed.
    """
    found = jnp.asarray(table.tokens)[pieces]  # [N, M, m]
    lengths = jnp.asarray(table.lengths)[pieces]  # [N, M]
    ends = jnp.cumsum(lengths, axis=1)
    first = num_slots - ends[:, -1:] if at_end else jnp.zeros_like(ends[:, -1:])
    within = jnp.arange(found.shape[2], dtype=jnp.int32)[None, None]
    slots = (first + ends - lengths)[:, :, None] + within  # [N, M, m]
    is_written = within < lengths[:, :, None]
    slots = jnp.where(is_written & (slots >= 0), slots, num_slots).reshape(slots.shape[0], -1)  # beyond: dropped

    def place(slots: Array, tokens: Array) -> Array:
        return jnp.full(num_slots, -1, jnp.int32).at[slots].set(tokens, mode="drop")

    placed = jax.vmap(place)(slots, found.reshape(slots.shape))
    return jnp.maximum(placed, 0), placed >= 0


def num_written(table: PieceTable, pieces: Array) -> Array:
    """[N] int32, the tokens of pieces [N, M]."""
    return jnp.asarray(table.lengths)[pieces].sum(axis=1)


def require_slots(what: str, needed: int, slots: int, hint: str) -> None:
    """Raises ConfigError if something is longer than its slots."""
    if needed > slots:
        raise ConfigError(f"{what} can have {needed} tokens, and there are {slots} slots for them", hint)
