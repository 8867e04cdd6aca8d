"""A decoder of language: tokens to hidden states, hidden states to logits. Pure functions of parameters.

The layers are those of Llama (Touvron et al. 2023, arXiv 2302.13971); flags add what Qwen2 and Qwen3 have. Parameters
of all layers are stacked, so that one compiled layer can serve them all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from stoix_like.networks.transformer.attention import (
    KeyValues,
    after,
    attend,
    attend_cached,
    rms_norm,
    rotate,
    rotation,
    written,
)
from stoix_like.networks.transformer.sizes import DecoderSizes
from stoix_like.types import Array, Key


class Layers(NamedTuple):
    """All layers, each array with a leading axis of them. D is the width, F that between the two steps."""

    attention_norm: Array  # [layers, D]
    query: Array  # [layers, D, H * head_dim]
    key: Array  # [layers, D, H_kv * head_dim]
    value: Array  # [layers, D, H_kv * head_dim]
    biases: tuple[Array, Array, Array] | None  # of query, key and value
    head_norms: tuple[Array, Array] | None  # [layers, head_dim] of queries and keys
    output: Array  # [layers, H * head_dim, D]
    ffn_norm: Array  # [layers, D]
    gate: Array  # [layers, D, F]
    up: Array  # [layers, D, F]
    down: Array  # [layers, F, D]


class Trunk(NamedTuple):
    """A decoder without its output layer."""

    embedding: Array  # [V, D]
    layers: Layers
    norm: Array  # [D]


def init_trunk(key: Key, sizes: DecoderSizes) -> Trunk:
    """Fresh parameters, float32. Layers that write into the residual stream are smaller by the root of their number.

    Entries of the embedding deviate by one over the root of the width, as those of kernels do. With the 0.02 that is
    common in wide models, what layers add drowns the tokens in a narrow one: docs/log.md has the figures.
    """
    keys = iter(jax.random.split(key, 8))
    attention, count, width = sizes.attention, sizes.num_layers, sizes.width
    queries, pairs = (n * attention.head_dim for n in (attention.num_heads, attention.num_kv_heads))

    def kernel(inputs: int, outputs: int, gain: float = 1.0) -> Array:
        return jax.random.normal(next(keys), (count, inputs, outputs)) * (gain * inputs**-0.5)

    writes = (2 * count) ** -0.5
    layers = Layers(
        attention_norm=jnp.ones((count, width)),
        query=kernel(width, queries),
        key=kernel(width, pairs),
        value=kernel(width, pairs),
        biases=tuple(jnp.zeros((count, n)) for n in (queries, pairs, pairs)) if attention.has_bias else None,  # type: ignore[arg-type]
        head_norms=tuple(jnp.ones((count, attention.head_dim)) for _ in range(2)) if attention.normalizes else None,  # type: ignore[arg-type]
        output=kernel(queries, width, writes),
        ffn_norm=jnp.ones((count, width)),
        gate=kernel(width, sizes.ffn_width),
        up=kernel(width, sizes.ffn_width),
        down=kernel(sizes.ffn_width, width, writes),
    )
    embedding = jax.random.normal(next(keys), (sizes.vocab_size, width)) * width**-0.5
    return Trunk(embedding, layers, jnp.ones(width))


def init_head(key: Key, sizes: DecoderSizes) -> Array | None:
    """A fresh output layer [D, V]; None if the embedding serves as one."""
    if sizes.ties_embeddings:
        return None
    return jax.random.normal(key, (sizes.width, sizes.vocab_size)) * sizes.width**-0.5


class Context(NamedTuple):
    """What stands before a chunk of tokens: at most one of the two."""

    prefix: KeyValues | None = None  # [layers, 1, H, C, head_dim], the same for all rows
    cache: KeyValues | None = None  # [layers, B, H, C, head_dim], into which the chunk is written
    slot: Array | int = 0  # of the cache, from which on it is written


NOTHING_BEFORE = Context()
_Carry = tuple[Array, KeyValues | None]  # hidden states, cache
_Step = Callable[[_Carry, Any], tuple[_Carry, None]]  # (carry, one layer) -> (carry, None)


class Chunk(NamedTuple):
    """Tokens that are read at once. B rows of L tokens, C of them or of a cache that may be attended to."""

    tokens: Array  # [B, L] int32
    positions: Array  # [B, L] int32, of the rotary embedding
    mask: Array  # [B or 1, L, C] bool, who attends to whom: of prefix and chunk, or of the first slots of a cache
    reads: Array | None = None  # [B, R] int32, the tokens after which hidden states are asked for; None: all


def run(
    sizes: DecoderSizes, trunk: Trunk, chunk: Chunk, context: Context = NOTHING_BEFORE
) -> tuple[Array, KeyValues | None]:
    """(hidden states [B, L, D] or [B, R, D], the cache with the chunk) of a chunk of tokens.

    The last layer has queries for the tokens that are read alone, as its other hidden states have no part in anything.
    """
    angles = rotation(chunk.positions, sizes.attention)
    hidden = trunk.embedding.astype(sizes.dtype)[chunk.tokens]

    def step(carry: _Carry, inputs: Any, reads: Array | None = None) -> tuple[_Carry, None]:
        hidden, cache = carry
        index, layer, prefix = inputs
        normed = rms_norm(hidden, layer.attention_norm, sizes.norm_eps)
        seen = _keys_and_values(sizes, layer, normed, angles)
        if prefix is not None:
            seen = after(prefix, seen)
        if cache is not None:
            cache = written(cache, seen, index, jnp.asarray(context.slot))
        asking = _Asking(hidden, normed, *angles, chunk.mask)
        if reads is not None:
            asking = _taken(asking, reads)
        query = _queries(sizes, layer, asking)
        if cache is None:
            mixed = attend(query, seen, asking.mask)
        else:
            mixed = attend_cached(query, cache, index, asking.mask, context.slot + chunk.tokens.shape[1])
        return (_with_ffn(sizes, layer, asking.hidden + _merged(layer, mixed)), cache), None

    inputs = (jnp.arange(sizes.num_layers), trunk.layers, context.prefix)
    carry = (hidden, context.cache)
    if chunk.reads is None:
        carry = _scan(sizes, step, carry, inputs)
    else:
        carry = _scan(sizes, step, carry, jax.tree.map(lambda x: x[:-1], inputs))
        last = jax.tree.map(lambda x: x[-1], inputs)
        carry, _ = _remat(sizes, functools.partial(step, reads=chunk.reads))(carry, last)
    return rms_norm(carry[0], trunk.norm, sizes.norm_eps), carry[1]


def empty_cache(sizes: DecoderSizes, num_rows: int, num_slots: int) -> KeyValues:
    """A cache [layers, B, H, C, head_dim] of zeros."""
    attention = sizes.attention
    shape = (sizes.num_layers, num_rows, attention.num_kv_heads, num_slots, attention.head_dim)
    return KeyValues(jnp.zeros(shape, sizes.dtype), jnp.zeros(shape, sizes.dtype))


def read_prompt(sizes: DecoderSizes, trunk: Trunk, prompt: Array) -> KeyValues:
    """Keys and values [layers, 1, H, P, head_dim] of a prompt [P] that all rows begin with."""
    length = prompt.shape[0]
    positions = jnp.arange(length)
    mask = positions[:, None] >= positions[None]
    context = Context(cache=empty_cache(sizes, 1, length))
    return cast(KeyValues, run(sizes, trunk, Chunk(prompt[None], positions[None], mask[None]), context)[1])


def logits(sizes: DecoderSizes, trunk: Trunk, head: Array | None, hidden: Array) -> Array:
    """[..., V] float32 of hidden states [..., D]. Padded ids have the most negative number, so they have no share."""
    kernel = trunk.embedding.T if head is None else head
    flat = hidden.reshape(-1, hidden.shape[-1])
    scores = jnp.matmul(flat, kernel.astype(hidden.dtype), preferred_element_type=jnp.float32)
    is_padded = jnp.arange(sizes.vocab_size) >= sizes.num_tokens
    scores = jnp.where(is_padded[None], jnp.finfo(jnp.float32).min, scores)
    return scores.reshape(*hidden.shape[:-1], -1)


def _scan(sizes: DecoderSizes, step: _Step, carry: _Carry, inputs: Any) -> _Carry:
    """The carry after all layers of `inputs`, compiled once for all or each apart."""
    count = inputs[0].shape[0]
    unroll = 1 if sizes.scans_layers else max(1, count)
    return jax.lax.scan(_remat(sizes, step), carry, inputs, unroll=unroll)[0]


def _remat(sizes: DecoderSizes, step: _Step) -> _Step:
    return jax.checkpoint(step) if sizes.remat else step


class _Asking(NamedTuple):
    """What belongs to the tokens that attend."""

    hidden: Array  # [B, L, D]
    normed: Array  # [B, L, D]
    cosine: Array  # [B, 1, L, head_dim / 2]
    sine: Array
    mask: Array  # [B, L, C]


def _taken(asking: _Asking, reads: Array) -> _Asking:
    """That of the tokens [B, R] alone."""

    def take(x: Array, axis: int) -> Array:
        indices = jnp.expand_dims(reads, [i for i in range(1, x.ndim) if i != axis])
        whole = jnp.broadcast_to(x, (reads.shape[0], *x.shape[1:]))
        return jnp.take_along_axis(whole, indices, axis=axis)

    return _Asking(*(take(x, axis) for x, axis in zip(asking, (1, 1, 2, 2, 1), strict=True)))


def _merged(layer: Layers, mixed: Array) -> Array:
    """[B, L, D], what attention adds, of the mixed values [B, H, L, head_dim]."""
    by_token = jnp.swapaxes(mixed, 1, 2)
    return _product(by_token.reshape(*by_token.shape[:2], -1), layer.output)


def _with_ffn(sizes: DecoderSizes, layer: Layers, hidden: Array) -> Array:
    """Hidden states [B, L, D] after the second step of a layer, SwiGLU (Shazeer 2020, arXiv 2002.05202)."""
    normed = rms_norm(hidden, layer.ffn_norm, sizes.norm_eps)
    inner = jax.nn.silu(_product(normed, layer.gate)) * _product(normed, layer.up)
    return hidden + _product(inner, layer.down)


def _queries(sizes: DecoderSizes, layer: Layers, asking: _Asking) -> Array:
    """[B, H, L, head_dim]."""
    query = _heads(sizes, asking.normed, layer.query, layer.biases and layer.biases[0])
    if layer.head_norms is not None:
        query = rms_norm(query, layer.head_norms[0], sizes.norm_eps)
    return rotate(query, asking.cosine, asking.sine)


def _keys_and_values(sizes: DecoderSizes, layer: Layers, normed: Array, angles: tuple[Array, Array]) -> KeyValues:
    """[B, H_kv, L, head_dim] each, of normed states [B, L, D]."""
    key = _heads(sizes, normed, layer.key, layer.biases and layer.biases[1])
    value = _heads(sizes, normed, layer.value, layer.biases and layer.biases[2])
    if layer.head_norms is not None:
        key = rms_norm(key, layer.head_norms[1], sizes.norm_eps)
    return KeyValues(rotate(key, *angles), value)


def _heads(sizes: DecoderSizes, normed: Array, kernel: Array, bias: Array | None) -> Array:
    """[B, H, L, head_dim], a projection of normed states [B, L, D]."""
    found = _product(normed, kernel)
    if bias is not None:
        found = found + bias.astype(found.dtype)[None, None]
    return jnp.swapaxes(found.reshape(*found.shape[:2], -1, sizes.attention.head_dim), 1, 2)


def _product(x: Array, kernel: Array) -> Array:
    """[B, L, outputs] as one plain product, which XLA runs faster on CPU than a contraction of three axes."""
    return (x.reshape(-1, x.shape[-1]) @ kernel.astype(x.dtype)).reshape(*x.shape[:-1], -1)
