"""The network for BinPack: a set of empty maximal spaces (EMS) and a set of items that look at each other.

A block lets items gather from the spaces they fit in, then spaces from the items that fit them, so that spaces learn of
each other through the items, as through the inducing points of a Set Transformer (Lee et al. 2019, arXiv 1810.00825).
Attention within a set and feed-forward steps cost a third more and brought nothing (docs/log.md). Placed items are
never attended to, and never scored.

What a pair shares, its relations, is seen in three places: as features beside those of a token, as what is added to the
scores of attention, weighted for each head, and in the score of a pair, through two hidden layers. Unless the torso is
shared, the critic has one of its own that embeds each token alone, with its features: a tenth of the actor's time.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from stoix_like.networks.layers import HIDDEN_GAIN, MLP, AttentionSublayer, Dense, ProductLayerNorm
from stoix_like.networks.orthogonal import orthogonal
from stoix_like.networks.relations import relations
from stoix_like.networks.spaces import usable_spaces
from stoix_like.types import Array, Observation

PAIR_WIDTH = 16  # units of both hidden layers of a pair's score, see `heads.PairHead`
_BIAS_GAIN = 0.1


class PackingTokens(NamedTuple):
    """Two sets of tokens, which of them count, what pairs share, and numbers about the whole. Of the spaces of the
    observation there are at most 16 (`networks/spaces.py`)."""

    ems: Array  # [B, E, D]
    items: Array  # [B, I, D]
    ems_mask: Array  # [B, E] bool, spaces that exist
    items_mask: Array  # [B, I] bool, items that exist and are not yet placed
    fits: Array  # [B, E, I] bool, legal actions
    summary: Array  # [B, 5]: shares of places for spaces in use, of items left, of legal pairs; volume placed and left
    pairs: Array  # [15, B, E, I] relations; of a torso's tokens [16, B, E, I], weighted sums of them
    places: Array | None = None  # [B, E, all] bool: which space of the observation each is, if there are fewer


def packing_tokens(observation: Observation) -> PackingTokens:
    """The observation as tokens of float32 features: 20 per EMS and 18 per item.

    An EMS has its 6 coordinates; both have 3 edges, the geometric mean edge (the cube root of the volume), the share of
    places of the other set that fit, all in [0, 1], and the features of their relations. The action mask is read
    EMS-major, [B, E * I].
    """
    observation, places = usable_spaces(observation)
    view, found = observation.agent_view, relations(observation)
    ems, items = view["ems"], view["items"]
    left = view["items_mask"] & ~view["items_placed"]
    placed = view["items_mask"] & view["items_placed"]
    ems_mask, fits = view["ems_mask"], observation.action_mask.reshape(*ems.x1.shape, items.x_len.shape[-1])
    ems_edges = (ems.x2 - ems.x1, ems.y2 - ems.y1, ems.z2 - ems.z1)
    volume = items.x_len * items.y_len * items.z_len  # [B, I], shares of the container
    share = fits.astype(jnp.float32)
    ems_parts = (ems.x1, ems.x2, ems.y1, ems.y2, ems.z1, ems.z2, *ems_edges, _mean_edge(*ems_edges), share.mean(2))
    item_parts = (items.x_len, items.y_len, items.z_len, _mean_edge(*items), share.mean(1))
    shares = [ems_mask.mean(1), left.mean(1), fits.mean((1, 2)), (volume * placed).sum(1), (volume * left).sum(1)]
    return PackingTokens(
        ems=jnp.concatenate([jnp.stack(ems_parts, axis=-1) * ems_mask[..., None], found.ems], axis=-1),
        items=jnp.concatenate([jnp.stack(item_parts, axis=-1), found.items], axis=-1),
        ems_mask=ems_mask,
        items_mask=left,
        fits=fits,
        summary=jnp.stack(shares, axis=-1),
        pairs=found.pairs,
        places=places,
    )


def _mean_edge(x: Array, y: Array, z: Array) -> Array:
    return jnp.cbrt(jnp.maximum(x * y * z, 0.0))


class PackingTorso(nn.Module):
    """PackingTokens of the given width, by set attention with biases: the actor's torso, and the shared one."""

    width: int
    num_blocks: int
    num_heads: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> PackingTokens:
        """Tokens [B, E, width] and [B, I, width] from an observation with leaves [B, ...]."""
        tokens = packing_tokens(observation)
        ems = Dense(self.width, dtype=self.dtype, name="embed_ems")(tokens.ems)
        items = Dense(self.width, dtype=self.dtype, name="embed_items")(tokens.items)
        for n in range(self.num_blocks):
            ems_bias = self._weighted(f"ems_from_items_{n}", tokens.pairs, self.num_heads, _BIAS_GAIN)
            item_bias = self._weighted(f"items_from_ems_{n}", tokens.pairs, self.num_heads, _BIAS_GAIN)
            attention = functools.partial(AttentionSublayer, self.num_heads, self.dtype)
            fits_items = jnp.swapaxes(tokens.fits, 1, 2)  # [B, I, E]
            items = attention()(items, ems, fits_items, jnp.transpose(item_bias, (1, 0, 3, 2)))
            ems = attention()(ems, items, tokens.fits, jnp.moveaxis(ems_bias, 0, 1))
        ems, items = (ProductLayerNorm(dtype=self.dtype)(one) for one in (ems, items))
        pairs = self._weighted("pairs", tokens.pairs, PAIR_WIDTH, HIDDEN_GAIN)
        return tokens._replace(ems=ems, items=items, pairs=pairs)

    def _weighted(self, name: str, planes: Array, number: int, gain: float) -> Array:
        """[K, B, ...] from planes [F, B, ...]: `number` weighted sums of them. A product for each reader: slices of one
        product would have gradients that are padded to the whole."""
        kernel = self.param(name, orthogonal(gain), (planes.shape[0], number))
        return jnp.matmul(kernel.T, planes.reshape(planes.shape[0], -1)).reshape(number, *planes.shape[1:])


class PackingValueTorso(nn.Module):
    """PackingTokens of the given width, each embedded alone with the features of its relations."""

    width: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> PackingTokens:
        """Tokens [B, E, width] and [B, I, width] from an observation with leaves [B, ...]."""
        tokens = packing_tokens(observation)
        ems = MLP((self.width, self.width), dtype=self.dtype, name="embed_ems")(tokens.ems)
        items = MLP((self.width, self.width), dtype=self.dtype, name="embed_items")(tokens.items)
        return tokens._replace(ems=ems, items=items)
