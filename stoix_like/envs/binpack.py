"""Jumanji's BinPack with its empty maximal spaces (EMS) updated all at once; every bit of an episode stays the same.

Jumanji adds the new spaces one after the other: 6 * max_num_ems insertions, each of which looks through all spaces.
What they come to can be said at once, because only spaces cut on the same side can lie in each other:

- Every space that meets the packed item is removed and cut at each of the item's six faces; what is left of it beyond a
  face is a candidate of that side.
- A candidate is added unless it lies in a space that was kept, lies strictly in another candidate of its side, or
  equals an earlier one. It reaches into the item's extent on the other two axes, as its space does, so it never lies in
  a candidate of another side.
- The k-th candidate that is added, side by side and slot by slot, takes the k-th free slot.
- What finds no free slot Jumanji writes into slot 0, one over the other, and looks at each candidate anew: one that lay
  in nothing but what slot 0 held before may now come in. The last of them stays.

A pair of spaces is compared once: six bits say which faces of one stick out of the other, and all six sides of a
candidate are read off them. They are bytes because XLA makes vector instructions of those on CPU, and none of 32-bit
integers in such reductions (docs/log.md).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jumanji.environments.packing.bin_pack.env import BinPack
from jumanji.environments.packing.bin_pack.types import EMS, Location, State

from stoix_like.types import Array

NUM_SIDES = 6
ALL_SIDES = np.uint8(2**NUM_SIDES - 1)

#: x, y and z of something.
Axes = tuple[Array, ...]


class Boxes(NamedTuple):
    """Spaces by their corners: `lower` and `upper`, each three integer arrays [N], or [] for one space."""

    lower: Axes
    upper: Axes


class FastBinPack(BinPack):
    """`jumanji.environments.BinPack` with the same states, observations, rewards and extras, bit for bit."""

    @classmethod
    def like(cls, env: BinPack) -> FastBinPack:
        """The same environment as `env`: its generator, reward, sizes and viewer."""
        return cls(env.generator, env.obs_num_ems, env.reward_fn, env.normalize_dimensions, env.debug, env._viewer)

    def _pack_item(self, state: State, ems_id: Any, item_id: Any) -> State:
        spaces = Boxes((state.ems.x1, state.ems.y1, state.ems.z1), (state.ems.x2, state.ems.y2, state.ems.z2))
        corner = tuple(x[ems_id] for x in spaces.lower)
        far_corner = tuple(x + length[item_id] for x, length in zip(corner, state.items, strict=True))
        is_packed = jnp.arange(state.items_placed.shape[0]) == item_id
        where_packed = (jnp.where(is_packed, x, old) for x, old in zip(corner, state.items_location, strict=True))
        state.items_location = Location(*where_packed)
        state.items_placed = state.items_placed | is_packed
        ((x1, y1, z1), (x2, y2, z2)), state.ems_mask = update_spaces(spaces, state.ems_mask, Boxes(corner, far_corner))
        state.ems = EMS(x1=x1, x2=x2, y1=y1, y2=y2, z1=z1, z2=z2)
        return state

    def _get_set_of_largest_ems(self, ems: EMS, ems_mask: Array) -> tuple[EMS, Array, Array]:
        by_volume = largest_first(ems.volume() * ems_mask)
        shown = by_volume[: self.obs_num_ems]
        return jax.tree.map(lambda x: x[shown], ems), ems_mask[shown], by_volume


def largest_first(values: Array) -> Array:
    """Indices [N] of the values [N] from the largest to the smallest, equal ones in order: `argsort(-values)`."""
    index = jnp.arange(values.shape[0], dtype=_count_type(values.shape[0]))
    earlier = index[None, :] < index[:, None]
    ahead = (values[None, :] > values[:, None]) | ((values[None, :] == values[:, None]) & earlier)
    rank = _reduce(ahead.astype(index.dtype), lax.add)
    return _reduce(jnp.where(rank[None, :] == index[:, None], index[None, :], 0), lax.add).astype(jnp.int32)


def update_spaces(spaces: Boxes, mask: Array, item: Boxes) -> tuple[Boxes, Array]:
    """(spaces [N], mask [N]) once the item, of corners [], is packed; slots out of the mask keep what they held."""
    meets = functools.reduce(
        operator.and_,
        (
            jnp.maximum(low, item_low) < jnp.minimum(high, item_high)
            for low, high, item_low, item_high in zip(*spaces, *item, strict=True)
        ),
        mask,
    )
    kept = mask & ~meets
    source, is_filled = _fill(_find_candidates(spaces, item, meets, kept), kept)
    side, slot = source // mask.shape[0], source % mask.shape[0]
    lower, upper = [], []
    for axis in range(3):
        low = jnp.where(side == 2 * axis + 1, item.upper[axis], spaces.lower[axis][slot])
        high = jnp.where(side == 2 * axis, item.lower[axis], spaces.upper[axis][slot])
        lower.append(jnp.where(is_filled, low, spaces.lower[axis]))
        upper.append(jnp.where(is_filled, high, spaces.upper[axis]))
    return Boxes(tuple(lower), tuple(upper)), kept | is_filled


class _Candidates(NamedTuple):
    """What is left of the spaces that meet the item, and what speaks against adding it.

    Bytes of one bit for each side: side 2a lies below the item on axis a, side 2a + 1 above it.

    Attributes:
        exist: [N] the sides on which something is left of the space in this slot.
        covers: [N] the sides on which a kept space may contain a candidate: it reaches the item's face there.
        inside: [N, N] the sides on which what is left of the row lies in the column's space, the item's face apart.
        around: [N, N] the same with row and column changed.
    """

    exist: Array
    covers: Array
    inside: Array
    around: Array


def _find_candidates(spaces: Boxes, item: Boxes, meets: Array, kept: Array) -> _Candidates:
    below = [low < item_low for low, item_low in zip(spaces.lower, item.lower, strict=True)]
    above = [high > item_high for high, item_high in zip(spaces.upper, item.upper, strict=True)]
    reaches_below = [high >= item_low for high, item_low in zip(spaces.upper, item.lower, strict=True)]
    reaches_above = [low <= item_high for low, item_high in zip(spaces.lower, item.upper, strict=True)]
    rows, columns = jax.tree.map(lambda x: x[:, None], spaces), jax.tree.map(lambda x: x[None, :], spaces)
    return _Candidates(
        exist=jnp.where(meets, _bits(below, above), 0),
        covers=jnp.where(kept, _bits(reaches_below, reaches_above), 0),
        inside=_sides_inside(rows, columns),
        around=_sides_inside(columns, rows),
    )


def _sides_inside(a: Boxes, b: Boxes) -> Array:
    """The sides of `a` whose candidate lies in `b` if the item's own face is not counted.

    That is the one face that lies where the item does: the upper one for what is left below it. So one face may stick
    out, and then only that side is inside.
    """
    upper_out = [x > y for x, y in zip(a.upper, b.upper, strict=True)]
    lower_out = [x < y for x, y in zip(a.lower, b.lower, strict=True)]
    out = _bits(upper_out, lower_out)
    only_one = (out & (out - 1)) == 0
    return jnp.where(out == 0, ALL_SIDES, jnp.where(only_one, out, 0))


def _bits(below: list[Array], above: list[Array]) -> Array:
    """Bytes of six bits: below[0], above[0], below[1], ..."""
    conditions = [condition for pair in zip(below, above, strict=True) for condition in pair]
    return functools.reduce(operator.or_, (jnp.where(c, np.uint8(1 << i), 0) for i, c in enumerate(conditions)))


def _fill(candidates: _Candidates, kept: Array) -> tuple[Array, Array]:
    """(candidate that each slot takes [N], whether it takes one [N]); candidate c is side c // N of slot c % N."""
    num_slots = kept.shape[0]
    slots = jnp.arange(num_slots)
    strictly = candidates.exist[None, :] & jnp.where(slots[None, :] < slots[:, None], ALL_SIDES, ~candidates.around)
    blocked = _reduce(candidates.inside & (candidates.covers[None, :] | strictly), lax.bitwise_or)
    added = _flags(candidates.exist & ~blocked)
    count = _running_count(added)  # of each candidate: how many are added up to it and with it
    free_slot = _running_count(~kept) - 1  # of each free slot: which of them it is
    source = jnp.searchsorted(count, free_slot, side="right", method="scan_unrolled")
    is_filled = ~kept & (free_slot < count[-1])
    overflows = (slots == 0) & (count[-1] > free_slot[-1] + 1)
    last = _last_of_overflow(candidates, added, count, kept)
    return jnp.where(overflows, last, jnp.where(is_filled, source, 0)), is_filled | overflows


def _last_of_overflow(candidates: _Candidates, added: Array, count: Array, kept: Array) -> Array:
    """The candidate that slot 0 holds in the end where more are added than there are free slots. [].

    From the first that finds none on, each comes in that lies in none of the other slots, whatever slot 0 holds.
    """
    num_slots = kept.shape[0]
    slots = jnp.arange(num_slots)
    num_free = jnp.sum(~kept)
    in_slot_0 = (count == 1) & ~kept[0]
    stays = _bytes_of_flags(added & (count <= num_free) & ~in_slot_0, num_slots)
    covers = jnp.where(slots == 0, 0, candidates.covers)
    strictly = candidates.exist[None, :] & ~candidates.around
    equal = jnp.where(slots[None, :] < slots[:, None], stays[None, :] & candidates.around, 0)
    blocked = _reduce(candidates.inside & (covers[None, :] | strictly | equal), lax.bitwise_or)
    comes_in = _flags(candidates.exist & ~blocked) & (count > num_free)
    return jnp.max(jnp.where(comes_in, jnp.arange(comes_in.shape[0]), 0))


def _flags(sides: Array) -> Array:
    """[6 N] booleans, side by side, from bytes [N]."""
    return ((sides[None, :] >> jnp.arange(NUM_SIDES, dtype=jnp.uint8)[:, None]) & 1).astype(bool).reshape(-1)


def _bytes_of_flags(flags: Array, num_slots: int) -> Array:
    """[N] bytes from booleans [6 N]: the inverse of `_flags`."""
    weights = np.uint8(1) << jnp.arange(NUM_SIDES, dtype=jnp.uint8)[:, None]
    return lax.reduce(jnp.where(flags.reshape(NUM_SIDES, num_slots), weights, 0), np.uint8(0), lax.bitwise_or, (0,))


def _running_count(flags: Array) -> Array:
    """[K] how many flags [K] are set up to each and with it."""
    return jnp.cumsum(flags, dtype=jnp.int16)


def _reduce(x: Array, operation: Callable[[Array, Array], Array]) -> Array:
    """Reduction over the last axis in the type of `x`, with a start of 0. (`jnp.sum` would widen it.)"""
    return lax.reduce(x, x.dtype.type(0), operation, (x.ndim - 1,))


def _count_type(n: int) -> type:
    return np.uint8 if n <= np.iinfo(np.uint8).max else np.int16
