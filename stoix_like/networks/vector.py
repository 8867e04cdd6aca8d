"""The torso for anything: every leaf of the observation flattened to numbers, then an MLP.

Nothing is known of the ranges, so the encoding fixes the scale by type: floats are taken as they are; booleans are 0
or 1; an integer x becomes six numbers, sign(x) log(1 + |x|) for size and its five lowest bits for identity. Counters
stay near 1 that way, and small ids (machines, tiles, rows, the agent's cell: anything in -16 .. 15) can be told apart
by the first layer, which a single number in their place does not allow. With inputs of order one the orthogonal
initialisation keeps activations of order one, hence no normalisation: it would also erase the size of a
one-dimensional observation.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from stoix_like.networks.layers import MLP
from stoix_like.types import Array, Observation

NUM_BITS = 5


def encode(leaf: Array) -> Array:
    """One batched leaf as float32 numbers [B, features], scaled by its type as the module says."""
    flat = leaf.reshape(leaf.shape[0], -1)  # [B, D]
    if not jnp.issubdtype(flat.dtype, jnp.integer):
        return flat.astype(jnp.float32)
    number = flat.astype(jnp.int32)
    size = jnp.sign(number) * jnp.log1p(jnp.abs(number.astype(jnp.float32)))
    bits = (number[..., None] >> jnp.arange(NUM_BITS)[None, None]) & 1  # [B, D, NUM_BITS]
    return jnp.concatenate([size, bits.reshape(flat.shape[0], -1).astype(jnp.float32)], axis=-1)


class VectorTorso(nn.Module):
    """[B, widths[-1]] from an observation with any `agent_view`; the action mask is not an input."""

    widths: tuple[int, ...]
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> Array:
        """[B, widths[-1]] from leaves [B, ...]."""
        leaves = [encode(leaf) for leaf in jax.tree.leaves(observation.agent_view)]
        return MLP(self.widths, dtype=self.dtype)(jnp.concatenate(leaves, axis=-1))
