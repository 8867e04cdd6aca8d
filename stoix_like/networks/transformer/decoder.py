"""A decoder of language: tokens to hidden states, hidden states to logits. Pure functions of parameters.

The layers are those of Llama (Touvron et al. 2023, arXiv 2302.13971); flags add what Qwen2 and Qwen3 have. Parameters
of all layers are stacked, so that one compiled layer can serve them all.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from stoix_like.networks.transformer.attention import (
    KeyValues,
    after,
    attend,
    of_layer,
    rms_norm,
    rotate,
    rotation,
    written,
)
from stoix_like.networks.transformer.sizes import DecoderSizes
from stoix_like.types import Array, Key

INIT_SCALE = 0.02  # deviation of an embedding's entries; that of a kernel is one over the root of its inputs


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
    """Fresh parameters, float32. Layers that write into the residual stream are smaller by the root of their number."""
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
    embedding = jax.random.normal(next(keys), (sizes.vocab_size, width)) * INIT_SCALE
    return Trunk(embedding, layers, jnp.ones(width))


def init_head(key: Key, sizes: DecoderSizes) -> Array | None:
    """A fresh output layer [D, V]; None if the embedding serves as one."""
    if sizes.ties_embeddings:
        return None
    return jax.random.normal(key, (sizes.width, sizes.vocab_size)) * INIT_SCALE


class Context(NamedTuple):
    """What stands before a chunk of tokens: at most one of the two."""

    prefix: KeyValues | None = None  # [layers, 1, H, C, head_dim], the same for all rows
    cache: KeyValues | None = None  # [layers, B, H, C, head_dim], into which the chunk is written
    slot: Array | int = 0  # of the cache, from which on it is written


NOTHING_BEFORE = Context()


def run(
    sizes: DecoderSizes, trunk: Trunk, tokens: Array, positions: Array, mask: Array, context: Context = NOTHING_BEFORE
) -> tuple[Array, KeyValues | None]:
    """(hidden states [B, L, D], the cache with the chunk) of a chunk of tokens.

    Args:
        sizes: of the decoder.
        trunk: its parameters.
        tokens: [B, L] int32.
        positions: [B, L] int32, of the rotary embedding.
        mask: [B, L, C] bool, true where a token attends to another: to the prefix, then the chunk; or to the cache.
        context: what stands before the chunk.
    """
    angles = rotation(positions, sizes.attention)
    hidden = trunk.embedding.astype(sizes.dtype)[tokens]

    def step(carry: tuple[Array, KeyValues | None], inputs: Any) -> tuple[tuple[Array, KeyValues | None], None]:
        hidden, cache = carry
        index, layer, prefix = inputs
        normed = rms_norm(hidden, layer.attention_norm, sizes.norm_eps)
        query, seen = _projections(sizes, layer, normed, angles)
        if prefix is not None:
            seen = after(prefix, seen)
        if cache is not None:
            cache = written(cache, seen, index, jnp.asarray(context.slot))
            seen = of_layer(cache, index)
        hidden = _with_ffn(sizes, layer, hidden + _attended(layer, query, seen, mask))
        return (hidden, cache), None

    if sizes.remat:
        step = jax.checkpoint(step)
    inputs = (jnp.arange(sizes.num_layers), trunk.layers, context.prefix)
    unroll = 1 if sizes.scans_layers else sizes.num_layers
    (hidden, cache), _ = jax.lax.scan(step, (hidden, context.cache), inputs, unroll=unroll)
    return rms_norm(hidden, trunk.norm, sizes.norm_eps), cache


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
    return cast(KeyValues, run(sizes, trunk, prompt[None], positions[None], mask[None], context)[1])


def logits(sizes: DecoderSizes, trunk: Trunk, head: Array | None, hidden: Array) -> Array:
    """[..., V] float32 of hidden states [..., D]. Padded ids have the most negative number, so they have no share."""
    kernel = trunk.embedding.T if head is None else head
    flat = hidden.reshape(-1, hidden.shape[-1])
    scores = jnp.matmul(flat, kernel.astype(hidden.dtype), preferred_element_type=jnp.float32)
    is_padded = jnp.arange(sizes.vocab_size) >= sizes.num_tokens
    scores = jnp.where(is_padded[None], jnp.finfo(jnp.float32).min, scores)
    return scores.reshape(*hidden.shape[:-1], -1)


def _attended(layer: Layers, query: Array, seen: KeyValues, mask: Array) -> Array:
    """[B, L, D], what attention adds."""
    mixed = jnp.swapaxes(attend(query, seen, mask), 1, 2)
    return _product(mixed.reshape(*mixed.shape[:2], -1), layer.output)


def _with_ffn(sizes: DecoderSizes, layer: Layers, hidden: Array) -> Array:
    """Hidden states [B, L, D] after the second step of a layer, SwiGLU (Shazeer 2020, arXiv 2002.05202)."""
    normed = rms_norm(hidden, layer.ffn_norm, sizes.norm_eps)
    inner = jax.nn.silu(_product(normed, layer.gate)) * _product(normed, layer.up)
    return hidden + _product(inner, layer.down)


def _projections(
    sizes: DecoderSizes, layer: Layers, normed: Array, angles: tuple[Array, Array]
) -> tuple[Array, KeyValues]:
    """(queries [B, H, L, head_dim], keys and values) of normed states [B, L, D]."""
    size = sizes.attention.head_dim
    found = [_product(normed, kernel) for kernel in (layer.query, layer.key, layer.value)]
    if layer.biases is not None:
        found = [x + bias.astype(x.dtype)[None, None] for x, bias in zip(found, layer.biases, strict=True)]
    query, key, value = (jnp.swapaxes(x.reshape(*x.shape[:2], -1, size), 1, 2) for x in found)
    if layer.head_norms is not None:
        query, key = (
            rms_norm(x, scale, sizes.norm_eps) for x, scale in zip((query, key), layer.head_norms, strict=True)
        )
    return rotate(query, *angles), KeyValues(rotate(key, *angles), value)


def _product(x: Array, kernel: Array) -> Array:
    """[B, L, outputs] as one plain product, which XLA runs faster on CPU than a contraction of three axes."""
    return (x.reshape(-1, x.shape[-1]) @ kernel.astype(x.dtype)).reshape(*x.shape[:-1], -1)
