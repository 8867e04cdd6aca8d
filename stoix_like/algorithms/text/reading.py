"""What a model says of recorded episodes: the training pass over the tokens that were sampled.

Rows of episodes have slots that no token fills. Here a row is packed: its tokens first, in their order. As positions
count tokens and nothing attends to an empty slot, a packed row reads as the one it was, and rows that are short can be
read as short ones.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.algorithms.agent.slots import Slots, as_rows
from stoix_like.networks.transformer.decoder import Chunk, Context
from stoix_like.networks.transformer.model import LanguageModel
from stoix_like.types import Array, NetworkParams


class PackedRows(NamedTuple):
    """R rows after a prompt. T' turns of a row, G slots of an answer."""

    tokens: Array  # [R, L] int32, the first `length` of a row count
    length: Array  # [R] int32
    before: Array  # [R, T', G] int32, the place of the token before each slot of the answers


def pack_rows(slots: Slots, tokens: Array, is_valid: Array, *, of_all: bool = False) -> PackedRows:
    """The packed rows of episodes [N, T, S + G].

    With `of_all` every slot of a turn takes the place of those of the answers, so that G is S + G.
    """
    tokens, is_valid = as_rows(slots, tokens), as_rows(slots, is_valid)
    order = jnp.argsort(~is_valid, axis=1, stable=True)
    count = jnp.cumsum(is_valid, axis=1, dtype=jnp.int32) - is_valid  # tokens before each slot
    of_turns = count.reshape(count.shape[0], -1, slots.per_turn)
    of_answers = of_turns if of_all else of_turns[:, :, slots.state :]
    return PackedRows(
        tokens=jnp.take_along_axis(tokens, order, axis=1),
        length=is_valid.sum(axis=1, dtype=jnp.int32),
        before=jnp.maximum(of_answers - 1, 0),
    )


def is_first_token(slots: Slots, is_valid: Array) -> Array:
    """[N, T, S + G] bool: a token of episodes is the first of its row, so that none of the row is read before it."""
    by_row = as_rows(slots, is_valid)
    return (by_row & (jnp.cumsum(by_row, axis=1) == 1)).reshape(is_valid.shape)


def read_rows(
    model: LanguageModel, params: NetworkParams, prompt: Array, rows: PackedRows
) -> tuple[Array, Array | None]:
    """(logits [R, T', G, V] of each slot of the answers, values [R, T', G] before it) of rows after a prompt [P].

    Both are read one token before, from what the model knew when the token was chosen. There are no values without a
    critic.
    """
    num_rows, length = rows.tokens.shape
    chunk = Chunk(
        rows.tokens,
        positions=jnp.broadcast_to(prompt.shape[0] + jnp.arange(length), (num_rows, length)),
        mask=jnp.tril(jnp.ones((1, length, prompt.shape[0] + length), bool), prompt.shape[0]),
        reads=rows.before.reshape(num_rows, -1),
    )
    hidden, _ = model.hidden(params, chunk, Context(prefix=model.prompt(params, prompt)))
    logits = model.logits(params, hidden).reshape(*rows.before.shape, -1)
    if model.critic is None:
        return logits, None
    value = model.value(params, model.critic_hidden(params, hidden, chunk, prompt))
    return logits, value.reshape(rows.before.shape)
