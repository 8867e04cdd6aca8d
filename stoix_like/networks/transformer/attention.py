"""Self-attention over what came before and over a chunk of new tokens, which is what all uses of a decoder share.

Training has a row of tokens as its chunk, after the prompt. Reading a turn has the turn as its chunk, and sampling has
one token; both write into a cache and attend to it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.networks.transformer.sizes import AttentionSizes
from stoix_like.types import Array

NUM_SHARES, LEAST_SLOTS = 8, 128  # of a cache that is compiled for shares of its slots: how many, and from which size


class KeyValues(NamedTuple):
    """Keys and values of tokens, [layers, B, H, C, D] of a decoder or [B, H, C, D] of a layer; H heads of them."""

    keys: Array
    values: Array


def rms_norm(x: Array, scale: Array, eps: float) -> Array:
    """[..., D]: the rows over their root mean square, times scale [D] (Zhang & Sennrich 2019, arXiv 1910.07467).

    Statistics are float32; the result has the type of `x`.
    """
    rows = x.astype(jnp.float32)
    normed = rows * jax.lax.rsqrt(jnp.mean(jnp.square(rows), axis=-1, keepdims=True) + eps)
    return (normed * scale.reshape((1,) * (x.ndim - 1) + (-1,))).astype(x.dtype)


def rotation(positions: Array, sizes: AttentionSizes) -> tuple[Array, Array]:
    """(cosine, sine) [B, 1, L, D / 2] of the angles at positions [B, L] (Su et al. 2021, arXiv 2104.09864)."""
    half = sizes.head_dim // 2
    rates = sizes.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions.astype(jnp.float32)[:, None, :, None] * rates[None, None, None]
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Array, cosine: Array, sine: Array) -> Array:
    """Queries or keys [B, H, L, D] turned by their angles; the two halves of D are the two coordinates."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
    return turned.astype(x.dtype)


def attend(query: Array, context: KeyValues, mask: Array) -> Array:
    """[B, H, L, D]: weighted means of the values that each query attends to.

    Args:
        query: [B, H, L, D].
        context: [B, H_kv, C, D]; consecutive heads of queries share one of keys.
        mask: [B, L, C], true where a token attends to another. Each attends to at least one.
    """
    batch, heads, length, size = query.shape
    grouped = query.reshape(batch, context.keys.shape[1], -1, size)  # [B, H_kv, H / H_kv * L, D]
    scores = jnp.matmul(grouped, jnp.swapaxes(context.keys, 2, 3), preferred_element_type=jnp.float32)
    scores = scores.reshape(batch, heads, length, -1) * size**-0.5
    scores = jnp.where(mask[:, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(context.values.dtype)
    mixed = jnp.matmul(weights.reshape(*grouped.shape[:3], -1), context.values)
    return mixed.reshape(batch, heads, length, size)


def after(prefix: KeyValues, new: KeyValues) -> KeyValues:
    """Keys and values of a chunk [B, H, L, D] after those that all rows have before it, [1, H, C, D]."""

    def join(before: Array, chunk: Array) -> Array:
        shape = (chunk.shape[0], *before.shape[1:])
        return jnp.concatenate([jnp.broadcast_to(before, shape), chunk], axis=2)

    return KeyValues(*map(join, prefix, new))


def written(cache: KeyValues, new: KeyValues, layer: Array, slot: Array) -> KeyValues:
    """A cache [layers, B, H, C, D] with the keys and values of a chunk [B, H, L, D] in a layer, from a slot on."""

    def write(kept: Array, chunk: Array) -> Array:
        return jax.lax.dynamic_update_slice(kept, chunk[None].astype(kept.dtype), (layer, 0, 0, slot, 0))

    return KeyValues(*map(write, cache, new))


def attend_cached(query: Array, cache: KeyValues, layer: Array, mask: Array, end: Array | int) -> Array:
    """As `attend`, to one layer of a cache in which nothing is valid from slot `end` on.

    A large cache is compiled for several shares of its slots, so that no more is read than is filled.
    """
    length = mask.shape[-1]
    reaches = [-(-length * part // NUM_SHARES) for part in range(1, NUM_SHARES + 1)]
    if length <= LEAST_SLOTS:
        return attend(query, of_layer(cache, layer, length), mask)

    def within(reach: int, query: Array, cache: KeyValues, mask: Array) -> Array:
        return attend(query, of_layer(cache, layer, reach), mask[..., :reach])

    branch = jnp.searchsorted(jnp.array(reaches), jnp.asarray(end))
    mixed: Array = jax.lax.switch(branch, [functools.partial(within, reach) for reach in reaches], query, cache, mask)
    return mixed


def of_layer(cache: KeyValues, layer: Array, length: int) -> KeyValues:
    """The keys and values of one layer in the first slots, [B, H, length, D]."""

    def take(kept: Array) -> Array:
        _, batch, heads, _, size = kept.shape
        return jax.lax.dynamic_slice(kept, (layer, 0, 0, 0, 0), (1, batch, heads, length, size))[0]

    return KeyValues(*map(take, cache))
