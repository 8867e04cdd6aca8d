"""What turns features into logits and values. Always float32, whatever the torso's type.

Heads do not mask: `build` does, once, for all of them.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn

from stoix_like.networks.layers import MLP, POLICY_GAIN, VALUE_GAIN, Dense
from stoix_like.networks.packing import PackingTokens
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
    """Values [B] from features [B, D]."""

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """[B] from [B, D]."""
        return Dense(1, gain=VALUE_GAIN)(features.astype(jnp.float32))[:, 0]


class OutcomeHead(nn.Module):
    """Expected outcomes [B, P] in (-1, 1) from features [B, D]: entry i is of the player i seats after the mover.

    They sum to 0: two players have one value and its negative, of more the mean is taken off. Scaled so that none is
    worth more than a win.
    """

    num_players: int

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """[B, P] from [B, D]."""
        hidden = MLP((OUTCOME_WIDTH,))(features.astype(jnp.float32))
        if self.num_players == 2:
            value = jnp.tanh(Dense(1, gain=VALUE_GAIN)(hidden))
            return jnp.concatenate([value, -value], axis=-1)
        values = jnp.tanh(Dense(self.num_players, gain=VALUE_GAIN)(hidden))
        widest = 2.0 - 2.0 / self.num_players  # of one tanh from the mean of all
        return (values - values.mean(axis=-1, keepdims=True)) / widest


class PairHead(nn.Module):
    """Logits [B, E * I], EMS-major: entry e * I + i scores item i in space e. From PackingTokens."""

    @nn.compact
    def __call__(self, tokens: PackingTokens) -> Array:
        """[B, E * I] from tokens [B, E, D] and [B, I, D]."""
        width = tokens.ems.shape[-1]
        ems = Dense(width, gain=1.0, name="ems")(tokens.ems.astype(jnp.float32))
        # Only one side starts small: with both small neither would get a gradient.
        items = Dense(width, gain=POLICY_GAIN, name="items")(tokens.items.astype(jnp.float32))
        scores = jnp.matmul(ems, jnp.swapaxes(items, 1, 2)) * width**-0.5  # [B, E, I]
        return scores.reshape(scores.shape[0], -1)


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
