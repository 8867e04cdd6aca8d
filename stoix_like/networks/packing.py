"""The torsos for BinPack: a set of empty maximal spaces (EMS) and a set of items that look at each other.

The actor's block lets items gather from the EMS they fit in, then from each other, then EMS from the items that fit
them. A network of several blocks begins each with attention among the EMS, as Jumanji's network does. A network of one
block leaves it out, since it costs 30 % of the time there: the EMS then learn of each other through the items, as
through the inducing points of a Set Transformer (Lee et al. 2019, arXiv 1810.00825). The critic has a torso of its own
that embeds each token alone; what it needs of the pairs, how many partners fit, is an input. That takes a tenth of the
actor's time. Placed items are never attended to, and never scored.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from stoix_like.networks.layers import MLP, AttentionSublayer, Dense, FeedForward
from stoix_like.types import Array, Observation


class PackingTokens(NamedTuple):
    """Two sets of tokens, which of them count, which pairs fit, and numbers about the whole."""

    ems: Array  # [B, E, D]
    items: Array  # [B, I, D]
    ems_mask: Array  # [B, E] bool, spaces that exist
    items_mask: Array  # [B, I] bool, items that exist and are not yet placed
    fits: Array  # [B, E, I] bool, legal actions
    summary: Array  # [B, 5]: share of EMS in use, of items left, of legal pairs; volume placed, volume left
    pairs: Array | None = None  # [K, B, E, I]: what `RelationalPairHead` reads of the relations of each pair
    places: Array | None = None  # [B, E, all] bool: which space of the observation each is, if there are fewer


def raw_tokens(observation: Observation) -> PackingTokens:
    """The observation as tokens of float32 features in [0, 1]: 11 per EMS and 5 per item.

    An EMS has its 6 coordinates; both have 3 edges, the geometric mean edge (the cube root of the volume) and the
    share of partners that fit. The action mask is read EMS-major, [B, E * I].
    """
    view = observation.agent_view
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
        ems=jnp.stack(ems_parts, axis=-1) * ems_mask[..., None],
        items=jnp.stack(item_parts, axis=-1),
        ems_mask=ems_mask,
        items_mask=left,
        fits=fits,
        summary=jnp.stack(shares, axis=-1),
    )


def _mean_edge(x: Array, y: Array, z: Array) -> Array:
    return jnp.cbrt(jnp.maximum(x * y * z, 0.0))


class PackingBlock(nn.Module):
    """Tokens of the same shapes after one round of attention and one feed-forward step. Pre-norm."""

    num_heads: int
    attends_among_ems: bool
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, tokens: PackingTokens) -> PackingTokens:
        """PackingTokens with new `ems` and `items`."""
        ems, items = tokens.ems, tokens.items
        attention = functools.partial(AttentionSublayer, self.num_heads, self.dtype)
        if self.attends_among_ems:
            among_ems = _all_see(tokens.ems_mask)  # [B, E, E]
            ems = attention(name="ems_from_ems")(ems, None, among_ems)
        among_items = _all_see(tokens.items_mask)  # [B, I, I]
        fits_items = jnp.swapaxes(tokens.fits, 1, 2)  # [B, I, E]
        items = attention(name="items_from_ems")(items, ems, fits_items)
        items = attention(name="items_from_items")(items, None, among_items)
        ems = attention(name="ems_from_items")(ems, items, tokens.fits)
        ems = FeedForward(self.dtype, name="ems_feed_forward")(ems)
        items = FeedForward(self.dtype, name="items_feed_forward")(items)
        return tokens._replace(ems=ems, items=items)


def _all_see(mask: Array) -> Array:
    """[B, S, S] from [B, S]: every token may attend to those that count."""
    return jnp.broadcast_to(mask[:, None], (mask.shape[0], mask.shape[1], mask.shape[1]))


class PackingTorso(nn.Module):
    """PackingTokens of the given width, by set attention: the actor's torso, and the shared one."""

    width: int
    num_blocks: int
    num_heads: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> PackingTokens:
        """Tokens [B, E, width] and [B, I, width] from an observation with leaves [B, ...]."""
        tokens = raw_tokens(observation)
        ems = Dense(self.width, dtype=self.dtype, name="embed_ems")(tokens.ems)
        items = Dense(self.width, dtype=self.dtype, name="embed_items")(tokens.items)
        tokens = tokens._replace(ems=ems, items=items)
        for _ in range(self.num_blocks):
            tokens = PackingBlock(self.num_heads, attends_among_ems=self.num_blocks > 1, dtype=self.dtype)(tokens)
        ems, items = nn.LayerNorm(dtype=self.dtype)(tokens.ems), nn.LayerNorm(dtype=self.dtype)(tokens.items)
        return tokens._replace(ems=ems, items=items)


class PackingValueTorso(nn.Module):
    """PackingTokens of the given width, each embedded alone (Zaheer et al. 2017, arXiv 1703.06114)."""

    width: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, observation: Observation) -> PackingTokens:
        """Tokens [B, E, width] and [B, I, width] from an observation with leaves [B, ...]."""
        tokens = raw_tokens(observation)
        ems = MLP((self.width, self.width), dtype=self.dtype, name="embed_ems")(tokens.ems)
        items = MLP((self.width, self.width), dtype=self.dtype, name="embed_items")(tokens.items)
        return tokens._replace(ems=ems, items=items)
