"""What turns features into logits and values. Always float32, whatever the torso's type.

Heads do not mask: `build` does, once, for all of them.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn

from stoix_like.networks.action_planes import BoardFeatures
from stoix_like.networks.layers import HIDDEN_GAIN, MLP, POLICY_GAIN, VALUE_GAIN, Dense
from stoix_like.networks.orthogonal import orthogonal
from stoix_like.networks.packing import PAIR_WIDTH, PackingTokens
from stoix_like.networks.spaces import scores_of_all
from stoix_like.types import Array

OUTCOME_WIDTH = 64  # of the hidden layer between a position and its outcome; a search evaluates it all the time


class CategoricalHead(nn.Module):
    """Logits [B, A], or [B, F, A] for `num_factors` independent categoricals, from features [B, D]."""

    num_values: int
    num_factors: int | None = None

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """Logits [B, A] or [B, F, A] from [B, D]."""
        logits = Dense(self.num_values * (self.num_factors or 1), gain=POLICY_GAIN)(features.astype(jnp.float32))
        return logits if self.num_factors is None else logits.reshape(-1, self.num_factors, self.num_values)


class ValueHead(nn.Module):
    """Values [B] from features [B, D], or from the summary of BoardFeatures."""

    @nn.compact
    def __call__(self, features: Array | BoardFeatures) -> Array:
        """[B] from [B, D]."""
        return Dense(1, gain=VALUE_GAIN)(_vector(features))[:, 0]


class OutcomeHead(nn.Module):
    """Expected outcomes [B, P] in (-1, 1) from features [B, D], or from the summary of BoardFeatures: entry i is of the
    player i seats after the mover.

    They sum to 0: two players have one value and its negative, of more the mean is taken off. Scaled so that none is
    worth more than a win.
    """

    num_players: int

    @nn.compact
    def __call__(self, features: Array | BoardFeatures) -> Array:
        """[B, P] from [B, D]."""
        hidden = MLP((OUTCOME_WIDTH,))(_vector(features))
        if self.num_players == 2:
            value = jnp.tanh(Dense(1, gain=VALUE_GAIN)(hidden))
            return jnp.concatenate([value, -value], axis=-1)
        values = jnp.tanh(Dense(self.num_players, gain=VALUE_GAIN)(hidden))
        widest = 2.0 - 2.0 / self.num_players  # of one tanh from the mean of all
        return (values - values.mean(axis=-1, keepdims=True)) / widest


def _vector(features: Array | BoardFeatures) -> Array:
    """[B, D] float32."""
    return (features.summary if isinstance(features, BoardFeatures) else features).astype(jnp.float32)


class PairHead(nn.Module):
    """Logits [B, E * I], EMS-major: entry e * I + i scores item i in space e. From PackingTokens.

    A score is a product of the two tokens, plus two hidden layers of the tokens and relations of the pair.
    """

    @nn.compact
    def __call__(self, tokens: PackingTokens) -> Array:
        """[B, E * I] from tokens [B, E, D] and [B, I, D], and pairs [16, B, E, I]."""
        width = tokens.ems.shape[-1]
        ems, items = tokens.ems.astype(jnp.float32), tokens.items.astype(jnp.float32)
        # Only one side starts small: with both small neither would get a gradient.
        asked = Dense(width, gain=1.0, name="ems")(ems)
        offered = Dense(width, gain=POLICY_GAIN, name="items")(items)
        scores = jnp.matmul(asked, jnp.swapaxes(offered, 1, 2)) * width**-0.5  # [B, E, I]
        scores += self._pair_scores(ems, items, tokens.pairs)
        of_others = self.param("other_spaces", nn.initializers.zeros, ())
        return scores_of_all(scores, tokens.places, of_others).reshape(scores.shape[0], -1)

    def _pair_scores(self, ems: Array, items: Array, pairs: Array) -> Array:
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


class SetValueHead(nn.Module):
    """Values [B] from PackingTokens: means over the tokens that count, the summary, one hidden layer."""

    width: int

    @nn.compact
    def __call__(self, tokens: PackingTokens) -> Array:
        """[B] from tokens [B, E, D] and [B, I, D]."""
        pooled = [_masked_mean(tokens.ems, tokens.ems_mask), _masked_mean(tokens.items, tokens.items_mask)]
        features = MLP((self.width,))(jnp.concatenate([*pooled, tokens.summary], axis=-1))
        return Dense(1, gain=VALUE_GAIN)(features)[:, 0]


def _masked_mean(tokens: Array, mask: Array) -> Array:
    """[B, D] float32 from [B, S, D] and [B, S]; zeros where nothing counts."""
    total = jnp.where(mask[..., None], tokens.astype(jnp.float32), 0.0).sum(axis=1)
    return total / jnp.maximum(mask.sum(axis=1, keepdims=True), 1)
