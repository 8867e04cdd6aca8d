"""Means and deviations of the entries of an array that count, and their places."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.types import Array

_WORD = 32  # bits


def masked_mean(x: Array, mask: Array) -> Array:
    """[] mean of the entries where the mask is true; 0 if there are none."""
    return jnp.where(mask, x, 0.0).sum() / jnp.maximum(mask.sum(), 1)


def standardize(x: Array, mask: Array) -> Array:
    """The entries where the mask is true with mean 0 and deviation 1, and 0 elsewhere. Same shape."""
    mean = masked_mean(x, mask)
    deviation = jnp.sqrt(masked_mean(jnp.square(x - mean), mask))
    return jnp.where(mask, (x - mean) / (deviation + 1e-8), 0.0)


def places(mask: Array, count: int) -> Array:
    """[count] int32: the places of the first `count` entries of the mask [A] that are true, ascending; -1 where there
    are fewer.

    By words of 32 bits: the word of each rank by comparison with the words' running counts, its bit by halves. On a
    CPU that is faster than `jnp.nonzero`, which scatters.
    """
    num_words = -(-len(mask) // _WORD)
    bits = jnp.pad(mask, (0, num_words * _WORD - len(mask))).reshape(num_words, _WORD).astype(jnp.uint32)
    words = jnp.sum(bits << jnp.arange(_WORD, dtype=jnp.uint32)[None], axis=1, dtype=jnp.uint32)  # [W]
    counts = jax.lax.population_count(words).astype(jnp.int32)
    up_to = np.tril(np.ones((num_words, num_words), np.float32))
    ends = (jnp.asarray(up_to) @ counts.astype(jnp.float32)).astype(jnp.int32)
    ranks = jnp.arange(count)
    word = jnp.sum(ends[None] <= ranks[:, None], axis=1)  # [count]: of each rank
    chosen = jnp.minimum(word, num_words - 1)
    bit = _bit_of_rank(words[chosen], ranks - (ends - counts)[chosen])
    return jnp.where(word < num_words, chosen * _WORD + bit, -1).astype(jnp.int32)


def _bit_of_rank(word: Array, rank: Array) -> Array:
    """The place of the bit of each word that is set and has so many set bits below it."""
    place = jnp.zeros_like(rank)
    for half in (16, 8, 4, 2, 1):
        low = word & ((1 << half) - 1)
        below = jax.lax.population_count(low).astype(rank.dtype)
        is_above = rank >= below
        rank, word = jnp.where(is_above, rank - below, rank), jnp.where(is_above, word >> half, low)
        place += jnp.where(is_above, half, 0)
    return place
