"""What a model remembers of N conversations: keys and values of their tokens, in slots that all rows fill together.

A chunk of tokens is written after the chunks before it, so that slots are taken by what is read and by nothing else.
Slots without a token are marked as not valid: nothing attends to them, and positions are counts of the valid ones.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent import rows
from stoix_like.networks.transformer.attention import KeyValues
from stoix_like.networks.transformer.decoder import Chunk, Context, empty_cache
from stoix_like.networks.transformer.model import LanguageModel
from stoix_like.types import Array, NetworkParams


class Memory(NamedTuple):
    """Of N rows and C slots, the first P of which are the prompt's."""

    cache: KeyValues  # [layers, N, H, C, D]
    is_valid: Array  # [N, C] bool
    num_filled: Array  # [] int32, slots


def begin(model: LanguageModel, params: NetworkParams, prompt: Array, num_rows: int, num_slots: int) -> Memory:
    """The memory of a prompt [P] that all rows begin with, and that is read once; `num_slots` can follow it."""
    length = prompt.shape[0]
    cache, read_once = empty_cache(model.sizes, num_rows, length + num_slots), model.prompt(params, prompt)
    filled = jax.tree.map(lambda empty, once: empty.at[:, :, :, :length].set(once), cache, read_once)
    is_valid = jnp.zeros((num_rows, length + num_slots), bool).at[:, :length].set(True)
    return Memory(filled, is_valid, jnp.int32(length))


def only_prompt(memory: Memory, length: int) -> Memory:
    """The memory without all that follows a prompt of so many tokens."""
    return Memory(memory.cache, memory.is_valid.at[:, length:].set(False), jnp.int32(length))


def read(
    model: LanguageModel, params: NetworkParams, memory: Memory, tokens: Array, is_valid: Array
) -> tuple[Array, Memory]:
    """(hidden state [N, D] after a chunk [N, Q], the memory with it)."""
    start = memory.num_filled
    num_before = memory.is_valid.sum(axis=1, keepdims=True, dtype=jnp.int32)
    positions = num_before + jnp.cumsum(is_valid, axis=1, dtype=jnp.int32) - is_valid
    valid = jax.lax.dynamic_update_slice(memory.is_valid, is_valid, (0, start))
    mask = _causal_mask(valid, start + jnp.arange(tokens.shape[1]))
    last = None if tokens.shape[1] == 1 else jnp.full_like(tokens[:, :1], tokens.shape[1] - 1)
    context = Context(cache=memory.cache, slot=start)
    hidden, cache = model.hidden(params, Chunk(tokens, positions, mask, last), context)
    return hidden[:, -1], Memory(cast(KeyValues, cache), valid, start + tokens.shape[1])


def take_rows(memory: Memory, kept: Array) -> Memory:
    """The memory of some rows, see `rows.take`."""
    cache = KeyValues(*(rows.take(x, kept, axis=1) for x in memory.cache))
    return Memory(cache, rows.take(memory.is_valid, kept), memory.num_filled)


def _causal_mask(is_valid: Array, queries: Array) -> Array:
    """[N, Q, C] bool: the slots `queries` [Q] attend to the valid ones [N, C] before them, and to themselves."""
    place = jnp.arange(is_valid.shape[1])[None]
    query = queries[:, None]
    return (is_valid[:, None] & (place < query)[None]) | (place == query)[None]
