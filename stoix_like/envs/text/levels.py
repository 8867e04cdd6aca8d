"""Levels drawn from keys until they may be played: solvable, and of the right half of all layouts.

Every layout belongs to training or to evaluation, by one bit of a hash of its cells. So no layout that is scored has
been trained on, whatever the keys, and no list of layouts is needed. Both halves are alike: the bit says nothing about
the layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from stoix_like.types import Array, Key

Level = TypeVar("Level")
_ODD = np.uint32(0x9E3779B1)  # 2**32 over the golden ratio, made odd: multiples of it are spread evenly


def is_held_out(layout: Any) -> Array:
    """[] bool: whether a layout belongs to evaluation. A pytree of integer or boolean arrays; the order counts."""
    words = jnp.concatenate([leaf.astype(jnp.uint32).reshape(-1) for leaf in jax.tree.leaves(layout)])
    place = jnp.arange(words.shape[0], dtype=jnp.uint32)
    mixed = _mixed(_mixed(words + np.uint32(1)) ^ _mixed(place * _ODD + np.uint32(7)))
    return (_mixed(jnp.sum(mixed, dtype=jnp.uint32)) & 1).astype(bool)


def _mixed(words: Array) -> Array:
    """uint32 of the same shape: every bit of the result depends on all of a word (Murmur3's finaliser)."""
    words = (words ^ (words >> 16)) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * np.uint32(0xC2B2AE35)
    return words ^ (words >> 16)


def draw_until(draw: Callable[[Key], Level], accept: Callable[[Level], Array], key: Key) -> Level:
    """The first of the levels drawn from a key that is accepted."""

    def draw_next(key: Key) -> tuple[Key, Level]:
        key, level_key = jax.random.split(key)
        return key, draw(level_key)

    _, level = lax.while_loop(lambda drawn: ~accept(drawn[1]), lambda drawn: draw_next(drawn[0]), draw_next(key))
    return level
