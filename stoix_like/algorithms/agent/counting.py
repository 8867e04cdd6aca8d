"""Exact counts over a whole run: how many tokens were generated and learned from depends on what was drawn."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.types import Array, Metrics

#: Metrics of counts since update 0.
GENERATED_TOKENS, TRAINED_TOKENS = "actor/generated_tokens_max", "trainer/trained_tokens_max"
_BASE = 2**24  # below it, float32 counts exactly


class Count(NamedTuple):
    """high * 2**24 + low, which int32 alone would not hold: a GPU generates 2**31 tokens in some hours."""

    high: Array  # [] int32
    low: Array  # [] int32, below 2**24

    @classmethod
    def zero(cls) -> Count:
        """0."""
        return cls(jnp.int32(0), jnp.int32(0))

    def plus(self, number: Array) -> Count:
        """The count and a number below 2**30."""
        low = self.low + number.astype(jnp.int32)
        return Count(self.high + low // _BASE, low % _BASE)

    def metric(self) -> Array:
        """[] float32, rounded above 2**24."""
        return self.high.astype(jnp.float32) * _BASE + self.low.astype(jnp.float32)


class Counts(NamedTuple):
    """What an agent has done since its first update."""

    generated: Count  # tokens it chose
    trained: Count  # tokens it learned from, as often as it did
    world_steps: Count  # actions taken in the world

    @classmethod
    def zero(cls) -> Counts:
        """Nothing yet."""
        return cls(Count.zero(), Count.zero(), Count.zero())

    def plus(self, generated: Array, trained: Array, world_steps: Array) -> Counts:
        """The counts after one more update."""
        return Counts(self.generated.plus(generated), self.trained.plus(trained), self.world_steps.plus(world_steps))

    def metrics(self) -> Metrics:
        """The counts as metrics; the highest of several updates is the last."""
        return {
            GENERATED_TOKENS: self.generated.metric(),
            TRAINED_TOKENS: self.trained.metric(),
            "actor/world_steps_max": self.world_steps.metric(),
        }
