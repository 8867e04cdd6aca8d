"""Jumanji's random BinPack instances, made several times faster in batches; every bit stays the same.

Jumanji splits one item after the other, in two or into several equal ones, until there are enough. Under `vmap` it
computes both kinds of split along all three axes, the equal ones in a loop of their own. Here a split is one pass over
the items, all new items at once, and the random words of several splits are drawn before the splits, as they depend on
the key alone.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jumanji.environments.packing.bin_pack.generator import RandomGenerator
from jumanji.environments.packing.bin_pack.space import Space
from jumanji.environments.packing.bin_pack.types import Container

from stoix_like.ops import threefry
from stoix_like.types import Array, Key

SPLITS_PER_BLOCK = 5  # an instance of 20 items took 4 to 21 splits in 20,000 of them
_EXACT_IN_FLOAT32 = 2**24


class FastBinPackGenerator(RandomGenerator):
    """`jumanji.environments.packing.bin_pack.generator.RandomGenerator` with the same instances, bit for bit."""

    @classmethod
    def like(cls, generator: RandomGenerator) -> FastBinPackGenerator:
        """The same distribution as `generator`'s, and the same instance for each key."""
        return cls(
            generator.max_num_items,
            generator.max_num_ems,
            generator._split_eps,
            generator._prob_split_one_item,
            generator._split_num_same_items,
            generator.container_dims,
        )

    def _split_container_into_items_spaces(self, container: Container, key: Key) -> tuple[Space, Array]:
        # Jumanji sums lengths in float32; up to here every order of summation gives the same
        is_exact = self.max_num_items * max(self.container_dims) < _EXACT_IN_FLOAT32
        if not (is_exact and threefry.is_threefry(key)):
            return super()._split_container_into_items_spaces(container, key)
        split = _Splits(self._split_eps, self._prob_split_one_item, self._split_num_same_items)
        (x1, y1, z1), (x2, y2, z2), mask = split_container(split, container, self.max_num_items, key)
        return Space(x1=x1, x2=x2, y1=y1, y2=y2, z1=z1, z2=z2), mask


class _Splits(NamedTuple):
    """How items are split: see `RandomGenerator`."""

    eps: float
    prob_once: float
    most_equal: int


class _Items(NamedTuple):
    """Items by their corners; slots out of the mask hold what Jumanji leaves there."""

    lower: tuple[Array, ...]  # three int32 [N]
    upper: tuple[Array, ...]
    mask: Array  # [N] bool


class _Drawn(NamedTuple):
    """The random words of one split."""

    axis: threefry.Words
    item: Array  # float32 in [0, 1)
    place: threefry.Words  # where it is cut, or into how many
    mode: Array  # float32 in [0, 1)


def split_container(splits: _Splits, container: Container, num_slots: int, key: Key) -> _Items:
    """Items [N] that fill the container."""
    everywhere = jnp.ones(num_slots, jnp.int32)
    lower = tuple(x * everywhere for x in (container.x1, container.y1, container.z1))
    upper = tuple(x * everywhere for x in (container.x2, container.y2, container.z2))
    limit = num_slots - splits.most_equal + 1

    def split_some(carry: tuple[_Items, threefry.Words]) -> tuple[_Items, threefry.Words]:
        items, key = carry
        key, drawn = _draw(key)
        items, _ = lax.scan(lambda items, drawn: (_split(splits, items, drawn, limit), None), items, drawn)
        return items, key

    start = (_Items(lower, upper, jnp.arange(num_slots) == 0), threefry.words(key))
    return lax.while_loop(lambda carry: _count(carry[0].mask) < limit, split_some, start)[0]


def _draw(key: threefry.Words) -> tuple[threefry.Words, _Drawn]:
    """(next key, words of each split of a block [K])."""

    def advance(key: threefry.Words, _: None) -> tuple[threefry.Words, threefry.Words]:
        key, of_split = threefry.split(key, 2)
        return key, of_split

    key, of_split = lax.scan(advance, key, length=SPLITS_PER_BLOCK)
    axis_key, rest = threefry.split(of_split, 2)
    item_key, place_key, mode_key = threefry.split(rest, 3)
    drawn = _Drawn(
        threefry.randint_words(axis_key),
        threefry.uniform(item_key),
        threefry.randint_words(place_key),
        threefry.uniform(mode_key),
    )
    return key, drawn


def _split(splits: _Splits, items: _Items, drawn: _Drawn, limit: int) -> _Items:
    """The items with one of them split, chosen by its length along an axis; as they are if there are enough."""
    is_needed = _count(items.mask) < limit
    axis = threefry.below(drawn.axis, 3)
    lower, upper = _of_axis(axis, items.lower), _of_axis(axis, items.upper)
    item = _choose(jnp.where(items.mask, upper - lower, 0), drawn.item)
    begin, end = lower[item], upper[item]
    is_once = drawn.mode < splits.prob_once
    num_equal = 1 + threefry.below(drawn.place, splits.most_equal)
    margin = (splits.eps * (end - begin)).astype(jnp.int32)
    cut = begin + margin + threefry.below(drawn.place, end - begin - 2 * margin)

    def equal_edge(index: Array | int) -> Array:
        return begin + (index * (end - begin) / num_equal).astype(jnp.int32)

    rank = _running_sum(~items.mask)  # the k-th free slot takes the k-th new item
    is_new = is_needed & ~items.mask & (rank <= jnp.where(is_once, 1, num_equal - 1))
    is_shortened = is_needed & (jnp.arange(rank.shape[0]) == item)
    new_lower = jnp.where(is_once, cut, equal_edge(rank))
    new_upper = jnp.where(is_once, end, equal_edge(rank + 1))
    shortened_upper = jnp.where(is_once, cut, equal_edge(1))
    lowers, uppers, mask = [], [], items.mask | is_new
    for a, (low, high) in enumerate(zip(items.lower, items.upper, strict=True)):
        lowers.append(jnp.where(is_new, jnp.where(axis == a, new_lower, low[item]), low))
        kept = jnp.where(is_shortened & (axis == a), shortened_upper, high)
        uppers.append(jnp.where(is_new, jnp.where(axis == a, new_upper, high[item]), kept))
        mask = mask & (lowers[a] < uppers[a])
    return _Items(tuple(lowers), tuple(uppers), jnp.where(is_needed, mask, items.mask))


def _of_axis(axis: Array, values: tuple[Array, ...]) -> Array:
    return jnp.where(axis == 0, values[0], jnp.where(axis == 1, values[1], values[2]))


def _choose(lengths: Array, draw: Array) -> Array:
    """The index that `jax.random.choice` takes with probability in proportion to whole lengths [N]."""
    reached = _running_sum(lengths).astype(jnp.float32)
    return _count(reached < reached[-1] * (1 - draw))


def _running_sum(values: Array) -> Array:
    """[N] int32 sums up to each value and with it: log2(N) shifted additions, which XLA fuses into one loop."""
    total, distance = values.astype(jnp.int32), 1
    while distance < values.shape[0]:
        total = total + jnp.concatenate([jnp.zeros(distance, jnp.int32), total[:-distance]])
        distance *= 2
    return total


def _count(flags: Array) -> Array:
    """How many are set, counted in the narrowest type, which XLA vectorises on CPU."""
    kind = np.uint8 if flags.shape[0] <= np.iinfo(np.uint8).max else np.int32
    return lax.reduce(flags.astype(kind), kind(0), lax.add, (0,)).astype(jnp.int32)
