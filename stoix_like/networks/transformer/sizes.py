"""The sizes and flags of a decoder. One form covers Llama, Qwen2 and Qwen3."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp


class AttentionSizes(NamedTuple):
    """Of self-attention with grouped queries (Ainslie et al. 2023, arXiv 2305.13245) and rotary positions."""

    num_heads: int  # of queries
    num_kv_heads: int  # of keys and values; divides `num_heads`
    head_dim: int  # even
    has_bias: bool = False  # of queries, keys and values, as in Qwen2
    normalizes: bool = False  # queries and keys, as in Qwen3
    rope_theta: float = 10_000.0


class DecoderSizes(NamedTuple):
    """Of a whole decoder, and the type of its arithmetic. Parameters and logits are float32 whatever `dtype`."""

    num_tokens: int  # ids that exist
    num_layers: int
    width: int
    ffn_width: int
    attention: AttentionSizes
    num_padded: int = 0  # further rows of the embedding, which are never sampled
    norm_eps: float = 1e-6
    ties_embeddings: bool = True  # the output layer is the embedding
    dtype: Any = jnp.float32
    remat: bool = False  # layers are computed again for gradients, which takes less memory
    scans_layers: bool = False  # one compiled layer for all of them; else each is compiled, which runs faster if few

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return self.num_tokens + self.num_padded
