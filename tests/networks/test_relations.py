"""Relations of spaces and items: on boxes made by hand, and against a plain statement in whole numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jumanji.environments.packing.bin_pack.types import EMS, Item

from stoix_like.networks.relations import relations
from stoix_like.types import Observation

COMPUTED = jax.jit(relations)
LONGEST = 6_500  # units of a container in which three lengths are still told apart


def observed(low, high, edges, unit, *, placed=(), empty=(), illegal=()):
    """An observation [1, ...] of spaces from `low` to `high` [E, 3] and items [I, 3], in whole units."""
    low, high, edges = (np.array(x) for x in (low, high, edges))
    is_left, is_space = ~np.isin(np.arange(len(edges)), placed), ~np.isin(np.arange(len(low)), empty)
    fits = (edges[None] <= (high - low)[:, None]).all(-1) & is_left & is_space[:, None]
    for pair in illegal:
        fits[pair] = False
    shares = lambda x: [jnp.array(x[None, :, axis] / np.float32(unit), jnp.float32) for axis in range(3)]
    (x1, y1, z1), (x2, y2, z2) = shares(low), shares(high)
    view = {
        "ems": EMS(x1=x1, x2=x2, y1=y1, y2=y2, z1=z1, z2=z2),
        "items": Item(*shares(edges)),
        "ems_mask": jnp.array(is_space[None]),
        "items_mask": jnp.ones((1, len(edges)), bool),
        "items_placed": jnp.array(~is_left[None]),
    }
    return Observation(view, jnp.array(fits.reshape(1, -1)))


def stated(low, high, edges, unit, *, placed=(), empty=(), illegal=()):
    """(pairs, ems, item) by loops over whole numbers."""
    low, high, edges = (np.array(x) for x in (low, high, edges))
    rooms, spaces, items = high - low, range(len(low)), range(len(edges))
    left = [i for i in items if i not in placed]

    def fits(e, i):
        return e not in empty and i in left and (e, i) not in illegal and bool((edges[i] <= rooms[e]).all())

    pairs, best = np.zeros((15, len(low), len(edges))), np.zeros((len(low), len(edges)), int)
    for e in spaces:
        for i in items:
            gap = rooms[e] - edges[i]
            others = [j for j in left if j != i]
            pairs[0:3, e, i] = gap == 0
            pairs[3:5, e, i] = [(gap == 0).sum() >= number for number in (2, 3)]
            pairs[5:8, e, i] = [any(edges[j][a] == gap[a] for j in others if fits(e, j)) for a in range(3)]
            pairs[8:11, e, i] = [gap[a] != 0 and all(gap[a] < edges[j][a] for j in others) for a in range(3)]
            pairs[11:14, e, i] = gap / unit
            pairs[14, e, i] = min(edges[i].prod() / max(rooms[e].prod(), 1e-6 * unit**3), 1.0)
            best[e, i] = (gap == 0).sum() * fits(e, i)
    equal = np.zeros((7, len(edges), len(edges)))
    for i in left:
        for j in left:
            same = edges[i] == edges[j]
            on_others = [same[1] and same[2], same[0] and same[2], same[0] and same[1]]
            equal[:, i, j] = [*same, *on_others, same.all()] if i != j else 0.0
    at_least = lambda found: np.stack([found >= number for number in (1, 2, 3)], axis=-1)
    legal = np.array([[fits(e, i) for i in items] for e in spaces])
    helped = (pairs[5:8] * legal).any(axis=1).T
    of_items = [np.minimum(equal.sum(2).T / 4, 2.0), at_least(best.max(axis=0)), helped]
    is_space = np.array([e not in empty for e in spaces])[:, None]
    of_ems = np.concatenate([low == 0, high == unit, at_least(best.max(axis=1))], axis=1) * is_space
    return pairs, of_ems, np.concatenate(of_items, axis=1)


def test_one_pair_by_hand():
    """An item of 10 x 4 x 6 in a container of 10: it fills x, leaves 6 along y for the second item, and 4 along z."""
    boxes = [[0, 0, 0]], [[10, 10, 10]], [[10, 4, 6], [10, 6, 6], [3, 4, 10], [10, 4, 6]], 10
    found = COMPUTED(observed(*boxes, placed=[3]))
    exact, gap, complement, dead = [1, 0, 0, 0, 0], [0.0, 0.6, 0.4], [0, 1, 0], [0, 0, 1]
    np.testing.assert_allclose(found.pairs[:, 0, 0, 0], [*exact, *complement, *dead, *gap, 0.24], atol=1e-6)
    np.testing.assert_array_equal(found.ems[0, 0], [1, 1, 1, 1, 1, 1, 1, 0, 0])
    # the second item has its x and z, the third its y; the one that is placed has nothing to do with any
    np.testing.assert_allclose(found.items[0, 0], [0.25, 0.25, 0.25, 0, 0.25, 0, 0, 1, 0, 0, 0, 1, 0])


@pytest.mark.parametrize("unit", [7, 5_870, LONGEST])
def test_all_are_those_of_the_plain_statement(unit):
    """Of lengths that are equal, or differ by a unit or two, as pieces of a container do."""
    random = np.random.default_rng(unit)
    seen = np.zeros(15)
    for _ in range(20):
        low, high = np.sort(random.integers(0, 3, (2, 6, 3)) * (unit // 3) + random.integers(0, 2, (2, 6, 3)), axis=0)
        high = np.where(random.random((6, 3)) < 0.3, unit, high)
        edges = random.integers(1, 4, (8, 3)) * (unit // 3) - random.integers(0, 2, (8, 3))
        edges[2] = np.maximum(high[1] - low[1], 1)  # so that one fits on all three axes, where the space has a volume
        masked = {"placed": [1, 6], "empty": [4], "illegal": [(0, 0), (2, 3)]}
        wanted = stated(low, high, edges, unit, **masked)
        found = [np.asarray(x) for x in COMPUTED(observed(low, high, edges, unit, **masked))]
        np.testing.assert_allclose(found[0][:, 0], wanted[0], atol=1e-5, err_msg="pairs")
        for name, ours, theirs in zip(("ems", "item"), found[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(ours[0], theirs, atol=1e-6, err_msg=name)
        seen += wanted[0].any(axis=(1, 2))
    assert (seen > 0).all()
