"""What `jax.random` draws from a Threefry key, word for word, as plain arithmetic that XLA fuses.

On CPU JAX keeps the rounds of Threefry in a loop, so that programs compile quickly; every round then goes through
memory. Where millions of words are drawn inside a program that is compiled once, the unrolled rounds are three times
faster (docs/log.md). A key is here a pair of uint32 words.

Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", Threefry-2x32 with 20 rounds; what is drawn
of which counter follows jax 0.10 with `jax_threefry_partitionable`. The tests compare every function with JAX's own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from stoix_like.types import Array, Key

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)

#: A key: two uint32 arrays of one shape.
Words = tuple[Array, Array]


def is_threefry(key: Key) -> bool:
    """Whether the functions below draw what `jax.random` does from this key, as it is configured now."""
    partitionable: bool = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]  # made at run time
    x64: bool = jax.config.jax_enable_x64  # type: ignore[attr-defined]  # then it draws words of 64 bits
    return partitionable and not x64 and str(jax.random.key_impl(key)) == "threefry2x32"


def words(key: Key) -> Words:
    """The pair of a typed key []."""
    data = jax.random.key_data(key)
    return data[..., 0], data[..., 1]


def split(key: Words, num: int) -> list[Words]:
    """The keys of `jax.random.split(key, num)`."""
    return [_threefry(key, np.uint32(0), np.uint32(i)) for i in range(num)]


def bits(key: Words) -> Array:
    """The word of `jax.random.bits(key)`."""
    high, low = _threefry(key, np.uint32(0), np.uint32(0))
    return high ^ low


def uniform(key: Words) -> Array:
    """The float32 in [0, 1) of `jax.random.uniform(key)`."""
    mantissa = (bits(key) >> np.uint32(9)) | np.float32(1).view(np.uint32)
    return lax.bitcast_convert_type(mantissa, jnp.float32) - np.float32(1)


def randint_words(key: Words) -> Words:
    """The two words from which `jax.random.randint` makes an integer of any range: see `below`."""
    high, low = split(key, 2)
    return bits(high), bits(low)


def below(drawn: Words, span: Any) -> Array:
    """int32 in [0, span), or 0 where span < 1: `jax.random.randint(key, (), 0, span)` of `randint_words(key)`."""
    high, low = drawn
    span = jnp.maximum(jnp.asarray(span, jnp.int32), 1).astype(jnp.uint32)
    half = np.uint32(2**16) % span
    return (((high % span) * (half * half % span) + low % span) % span).astype(jnp.int32)


def _threefry(key: Words, x0: Any, x1: Any) -> Words:
    """The block of the counter (x0, x1)."""
    schedule = (*key, key[0] ^ key[1] ^ _PARITY)
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(distance)) | (x1 >> np.uint32(32 - distance)))
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1
