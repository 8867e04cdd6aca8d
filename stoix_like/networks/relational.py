"""The torsos and the head for BinPack that see relations: `networks/packing.py`, and in three places what pairs share.

Relations of tokens are features beside their own. Relations of pairs are added to the scores of attention, weighted for
each head, and to the score of a pair, through a hidden layer of its own. The critic has the features alone. A block is
each set's attention to the other: attention among the items and feed-forward steps cost a third more and bring nothing
(docs/log.md).
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from stoix_like.networks.layers import HIDDEN_GAIN, MLP, POLICY_GAIN, AttentionSublayer, Dense, ProductLayerNorm
from stoix_like.networks.orthogonal import orthogonal
from stoix_like.networks.packing import PackingTokens, raw_tokens
from stoix_like.networks.relations import Relations, relations
from stoix_like.networks.spaces import scores_of_all, usable_spaces
from stoix_like.types import Array, Observation

PAIR_WIDTH = 16  # units of both hidden layers of a pair's score
_BIAS_GAIN = 0.1


def relational_tokens(observation: Observation) -> tuple[PackingTokens, Relations]:
    """(the tokens of `raw_tokens` with the features of their relations, 20 per EMS and 18 per item; the relations)."""
    observation, places = usable_spaces(observation)
    tokens, found = raw_tokens(observation), relations(observation)
    ems = jnp.concatenate([tokens.ems, found.ems], axis=-1)
    return tokens._replace(places=places, ems=ems, items=jnp.concatenate([tokens.items, found.item], axis=-1)), found


class RelationalTorso(nn.Module):
    """PackingTokens of the given width, by set attention with biases: the actor's torso, and the shared one."""

    width: int
    num_blocks: int
    num_heads: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> PackingTokens:
        """Tokens [B, E, width] and [B, I, width] from an observation with leaves [B, ...]."""
        tokens, found = relational_tokens(observation)
        ems = Dense(self.width, dtype=self.dtype, name="embed_ems")(tokens.ems)
        items = Dense(self.width, dtype=self.dtype, name="embed_items")(tokens.items)
        for n in range(self.num_blocks):
            biases = self._weighted(f"ems_from_items_{n}", found.pairs, self.num_heads, _BIAS_GAIN)
            of_items = self._weighted(f"items_from_ems_{n}", found.pairs, self.num_heads, _BIAS_GAIN)
            attention = functools.partial(AttentionSublayer, self.num_heads, self.dtype, ProductLayerNorm)
            fits_items = jnp.swapaxes(tokens.fits, 1, 2)  # [B, I, E]
            items = attention()(items, ems, fits_items, jnp.transpose(of_items, (1, 0, 3, 2)))
            ems = attention()(ems, items, tokens.fits, jnp.moveaxis(biases, 0, 1))
        ems, items = (ProductLayerNorm(dtype=self.dtype)(one) for one in (ems, items))
        pairs = self._weighted("pairs", found.pairs, PAIR_WIDTH, HIDDEN_GAIN)
        return tokens._replace(ems=ems, items=items, pairs=pairs)

    def _weighted(self, name: str, planes: Array, number: int, gain: float) -> Array:
        """[K, B, ...] from planes [F, B, ...]: so many weighted sums. A product for each reader: slices of one product
        would have gradients that are padded to the whole."""
        kernel = self.param(name, orthogonal(gain), (planes.shape[0], number))
        return jnp.matmul(kernel.T, planes.reshape(planes.shape[0], -1)).reshape(number, *planes.shape[1:])


class RelationalValueTorso(nn.Module):
    """PackingTokens of the given width, each embedded alone with the features of its relations."""

    width: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> PackingTokens:
        """Tokens [B, E, width] and [B, I, width] from an observation with leaves [B, ...]."""
        tokens, _ = relational_tokens(observation)
        ems = MLP((self.width, self.width), dtype=self.dtype, name="embed_ems")(tokens.ems)
        items = MLP((self.width, self.width), dtype=self.dtype, name="embed_items")(tokens.items)
        return tokens._replace(ems=ems, items=items)


class RelationalPairHead(nn.Module):
    """Logits [B, E * I] as those of `PairHead`, plus two hidden layers of each pair, its tokens and relations."""

    @nn.compact
    def __call__(self, tokens: PackingTokens) -> Array:
        """[B, E * I] from tokens [B, E, D] and [B, I, D], and pairs [16, B, E, I]."""
        width = tokens.ems.shape[-1]
        ems, items = tokens.ems.astype(jnp.float32), tokens.items.astype(jnp.float32)
        # Only one side starts small: with both small neither would get a gradient.
        asked = Dense(width, gain=1.0, name="ems")(ems)
        offered = Dense(width, gain=POLICY_GAIN, name="items")(items)
        scores = jnp.matmul(asked, jnp.swapaxes(offered, 1, 2)) * width**-0.5  # [B, E, I]
        scores += self._pair_scores(ems, items, 0.0 if tokens.pairs is None else tokens.pairs)
        of_others = self.param("other_spaces", nn.initializers.zeros, ())
        return scores_of_all(scores, tokens.places, of_others).reshape(scores.shape[0], -1)

    def _pair_scores(self, ems: Array, items: Array, pairs: Array | float) -> Array:
        """[B, E, I] from tokens and pairs. Features come first, as in all planes."""
        of_ems = jnp.moveaxis(Dense(PAIR_WIDTH, name="pair_ems")(ems), -1, 0)  # [16, B, E]
        of_items = jnp.moveaxis(Dense(PAIR_WIDTH, use_bias=False, name="pair_items")(items), -1, 0)
        first = nn.relu(pairs + of_ems[..., None] + of_items[:, :, None])  # [16, B, E, I]
        kernel = self.param("pair_hidden", orthogonal(HIDDEN_GAIN), (PAIR_WIDTH, PAIR_WIDTH))
        bias = self.param("pair_hidden_bias", nn.initializers.zeros, (PAIR_WIDTH,))
        second = jnp.matmul(kernel.T, first.reshape(PAIR_WIDTH, -1)).reshape(first.shape)
        second = nn.relu(second + bias[:, None, None, None])
        last = self.param("pair_score", orthogonal(POLICY_GAIN), (PAIR_WIDTH, 1))
        # A sum of slices: XLA fuses it with the layer before it, of which a matrix product would want a copy.
        return sum((last[unit, 0] * second[unit] for unit in range(PAIR_WIDTH)), start=jnp.float32(0.0))
