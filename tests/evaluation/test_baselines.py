"""The baselines: legal, uniform, and largest item in the smallest space, against a loop in Python."""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import stoix_like as sl
from stoix_like.evaluation import baselines


class Item(NamedTuple):
    x_len: Any
    y_len: Any
    z_len: Any


class Space(NamedTuple):
    x1: Any
    x2: Any
    y1: Any
    y2: Any
    z1: Any
    z2: Any


def test_the_greedy_packer_equals_a_loop_over_all_pairs():
    """Spaces and items as BinPack shows them, of few lengths, so that there are ties; one pair in four is legal."""
    rng, num_spaces, num_items = np.random.default_rng(0), 10, 6
    lengths = lambda num: rng.integers(1, 4, (64, num)).astype(np.float32) / 4
    items = Item(*(lengths(num_items) for _ in range(3)))
    lower, edges = ([lengths(num_spaces) for _ in range(3)] for _ in range(2))
    ems = Space(*itertools.chain.from_iterable((x, x + edge) for x, edge in zip(lower, edges, strict=True)))
    mask = rng.random((64, num_spaces, num_items)) < 0.25
    mask[:, 3, 4] = True
    view = {"items": items, "ems": ems}
    observation = sl.Observation(jax.tree.map(jnp.asarray, view), jnp.asarray(mask.reshape(64, -1)))
    chosen = baselines.largest_item_first(None, None, observation, jax.random.key(0), True)
    volume, room = np.prod(items, axis=0), np.prod(edges, axis=0)
    for n, action in enumerate(np.asarray(chosen)):
        e, i = divmod(int(action), num_items)
        assert mask[n, e, i]
        assert (-volume[n, i], room[n, e]) == min((-volume[n, b], room[n, a]) for a, b in np.argwhere(mask[n]))


def test_random_legal_is_uniform_over_the_legal_actions():
    mask = jnp.array([[True, False, True, True]])
    observation = sl.Observation({}, jnp.broadcast_to(mask, (30_000, 4)))
    actions = baselines.random_legal(None, None, observation, jax.random.key(0), True)
    np.testing.assert_allclose(jnp.bincount(actions, length=4) / 30_000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.012)
