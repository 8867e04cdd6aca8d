"""Relations of BinPack's empty maximal spaces (EMS) and items: which lengths are equal, and what an item would leave.

Hand-made functions of the observation that every network of the task receives; nothing hidden is read. A container is
cut into pieces, so pieces that belong together share lengths to the last unit, and a product of embeddings that are
made from raw coordinates cannot test equality.

Lengths are compared on a grid of 2**-14 of the container: equal means at most one step apart. That tells sums of three
lengths apart in containers of up to 6,500 units (BinPack-v2 has 5,870); in larger ones lengths that differ by one
unit may pass for equal. Planes have their feature axis first, [F, B, E, I], which is faster on CPU.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from stoix_like.types import Array, Observation

GRID = 2.0**14
_WALL = 5e-5  # of the container: a face that is nearer to a wall touches it
_NONE = np.int16(2 * GRID - 1)  # longer than any length
_COUNT_SCALE, _MOST = 0.25, 2.0  # of the numbers of equal items
_UNROLL = 4  # items that a trip of a loop over them takes


class Relations(NamedTuple):
    """What pairs have in common. Planes are float32, flags 0 or 1, and three of a kind are of the axes x, y, z."""

    pairs: Array  # [15, B, E, I]: exact 3, at least two and three exact, complement 3, dead 3, gap 3, share of volume
    ems: Array  # [B, E, 9] features: walls touched (lower 3, upper 3), best number of exact axes at least 1, 2, 3
    items: Array  # [B, I, 13] features: other items with an equal length 3, with both other lengths equal 3, identical;
    # best number of exact axes at least 1, 2, 3; complement 3


class _Sizes(NamedTuple):
    edges: tuple[Array, Array, Array]  # [B, E] of spaces
    lengths: tuple[Array, Array, Array]  # [B, I] of items
    left: Array  # [B, I] bool, items that are not placed
    fits: Array  # [B, E, I] bool, legal actions


def relations(observation: Observation) -> Relations:
    """The relations of an observation of BinPack with leaves [B, ...].

    For space e and item i, along an axis: the gap is the edge minus the length; it is exact if they are equal. A
    complement is another item that fits the space and has exactly the gap's length. A gap is dead if it is not exact
    and shorter than every other item that is left, so that nothing can fill it.
    """
    view, sizes = observation.agent_view, _sizes(observation)
    ems = view["ems"]
    exact = [_equal(gap, 0) for gap in _gaps(sizes, on_grid)]
    num_exact = functools.reduce(operator.add, (plane.astype(jnp.int8) for plane in exact))  # [B, E, I]
    complements = _complements(sizes)  # three bits of one number, of which planes are made
    flags = [*exact, num_exact >= 2, num_exact >= 3, *_bits(complements), *_dead(sizes, exact)]
    best = jnp.where(sizes.fits, num_exact, 0)
    helped = _any_bits(jnp.where(sizes.fits, complements, jnp.int16(0)))  # [B, I]
    counts = jnp.minimum(_num_equal(sizes) * _COUNT_SCALE, _MOST)
    walls = [low < _WALL for low in (ems.x1, ems.y1, ems.z1)]
    walls += [high > 1.0 - _WALL for high in (ems.x2, ems.y2, ems.z2)]
    return Relations(
        pairs=_planes(flags, [*_gaps(sizes), _volume_share(sizes)]),
        ems=_stacked([*walls, *_at_least(best.max(axis=2))]) * view["ems_mask"][..., None],
        items=jnp.concatenate([counts, _stacked([*_at_least(best.max(axis=1)), *_bits(helped)])], axis=-1),
    )


def _sizes(observation: Observation) -> _Sizes:
    view = observation.agent_view
    ems, items = view["ems"], view["items"]
    return _Sizes(
        edges=(ems.x2 - ems.x1, ems.y2 - ems.y1, ems.z2 - ems.z1),
        lengths=(items.x_len, items.y_len, items.z_len),
        left=view["items_mask"] & ~view["items_placed"],
        fits=observation.action_mask.reshape(*ems.x1.shape, items.x_len.shape[-1]),
    )


def _planes(flags: list[Array], numbers: list[Array]) -> Array:
    """[F, B, E, I] float32. Barriers keep XLA from making a plane once for each of its readers, and let it write flags
    as bytes first, which is faster on CPU than a stack of floats."""
    barrier = lax.optimization_barrier
    of_flags = barrier(jnp.stack(barrier([flag.astype(jnp.int8) for flag in flags])))
    return barrier(jnp.concatenate([of_flags.astype(jnp.float32), jnp.stack(barrier(numbers))]))


def on_grid(length: Array) -> Array:
    """int16 multiples of 2**-14 from lengths in [0, 1], shape kept."""
    return jnp.round(length * GRID).astype(jnp.int16)


def _equal(a: Array, b: Array | int) -> Array:
    difference = a - b
    return (difference >= -1) & (difference <= 1)


def _stacked(flags: list[Array]) -> Array:
    return jnp.stack(flags, axis=-1).astype(jnp.float32)


def _at_least(count: Array) -> list[Array]:
    return [count >= number for number in (1, 2, 3)]


def _gaps(sizes: _Sizes, unit: Callable[[Array], Array] = lambda length: length) -> list[Array]:
    """3 of [B, E, I]: edges minus lengths, each in the unit."""
    pairs = zip(sizes.edges, sizes.lengths, strict=True)
    return [unit(edge)[:, :, None] - unit(length)[:, None, :] for edge, length in pairs]


def _over_items(step: Callable[[Array, Any], Any], start: Any, num_items: int) -> Any:
    """What is left of `start` after `step(item, it)` for each item [] int32. On CPU a loop is faster than a reduction
    over all of them, and than the same steps one below the other; it also compiles in the same time for any number."""
    return lax.optimization_barrier(lax.fori_loop(0, num_items, step, start, unroll=_UNROLL))


def _complements(sizes: _Sizes) -> Array:
    """[B, E, I] int16: a bit for each of 3 axes."""
    gaps, lengths = _gaps(sizes, on_grid), [on_grid(length) for length in sizes.lengths]
    items = jnp.arange(sizes.fits.shape[-1])

    def add(other: Array, bits: Array) -> Array:
        filled = jnp.int16(0)
        for axis, (gap, length) in enumerate(zip(gaps, lengths, strict=True)):
            equal = _equal(gap, _column(length, other)[:, None])
            filled |= jnp.where(equal, jnp.int16(1 << axis), jnp.int16(0))
        usable = _column(sizes.fits, other) & (items != other)[None, None]
        return bits | jnp.where(usable, filled, jnp.int16(0))

    found: Array = _over_items(add, jnp.zeros(sizes.fits.shape, jnp.int16), items.size)
    return found


def _column(x: Array, index: Array) -> Array:
    """[..., 1] from [..., I]: one of the last axis."""
    return lax.dynamic_index_in_dim(x, index, -1)


def _bits(bits: Array) -> list[Array]:
    """3 of bool, from the lowest on, of the shape of the bits."""
    return [(bits & (1 << axis)) > 0 for axis in range(3)]


def _any_bits(bits: Array) -> Array:
    """[B, I] from [B, E, I]: the bits that any space has. A reduction takes longer on CPU."""
    return functools.reduce(operator.or_, (bits[:, e] for e in range(bits.shape[1])))


def _dead(sizes: _Sizes, exact: list[Array]) -> list[Array]:
    """3 of bool [B, E, I]. A gap as long as the shortest other item is not dead: it must be shorter by a step."""
    return [
        (gap + 1 < _shortest_other(length, sizes.left)[:, None, :]) & ~plane
        for gap, length, plane in zip(_gaps(sizes, on_grid), sizes.lengths, exact, strict=True)
    ]


def _shortest_other(length: Array, left: Array) -> Array:
    """[B, I] int16: the shortest of all other items that are left; longer than any length if there is none."""
    lengths = jnp.where(left, on_grid(length), _NONE)
    shortest, is_first = lengths.min(-1, keepdims=True), _is_first_shortest(lengths)
    return jnp.where(is_first, jnp.where(is_first, _NONE, lengths).min(-1, keepdims=True), shortest)


def _is_first_shortest(lengths: Array) -> Array:
    return jnp.arange(lengths.shape[-1])[None] == jnp.argmin(lengths, axis=-1)[:, None]


def _volume_share(sizes: _Sizes) -> Array:
    """[B, E, I]: an item's volume over the space's, at most 1."""
    volumes = [functools.reduce(operator.mul, of) for of in (sizes.edges, sizes.lengths)]
    inverse = 1.0 / jnp.maximum(volumes[0], 1e-6)
    return jnp.minimum(volumes[1][:, None, :] * inverse[:, :, None], 1.0)


def _num_equal(sizes: _Sizes) -> Array:
    """[B, I, 7] float32: how many of the other items that are left share lengths with an item that is left."""
    grid, items = [on_grid(length) for length in sizes.lengths], jnp.arange(sizes.left.shape[-1])

    def add(other: Array, counts: list[Array]) -> list[Array]:
        both = sizes.left & _column(sizes.left, other) & (items != other)[None]
        x, y, z = (_equal(length, _column(length, other)) & both for length in grid)
        shared = (x, y, z, y & z, x & z, x & y, x & y & z)
        return [count + one.astype(jnp.int16) for count, one in zip(counts, shared, strict=True)]

    counts = _over_items(add, [jnp.zeros(sizes.left.shape, jnp.int16) for _ in range(7)], items.size)
    return jnp.stack(counts, axis=-1).astype(jnp.float32)
