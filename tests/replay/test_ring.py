"""The ring of samples against one list per shard: masked writes in order, the oldest replaced, nothing else drawn."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like import replay
from stoix_like.errors import ConfigError

CAPACITY, ROWS, BATCH, SHARDS = 12, 8, 64, 2
EXAMPLE = {"number": jax.ShapeDtypeStruct((), jnp.int32), "planes": jax.ShapeDtypeStruct((3, 2), jnp.bool_)}


@cache
def jitted(num_shards=SHARDS):
    ring = replay.make_ring(capacity=CAPACITY, batch_size=BATCH, num_shards=num_shards)
    return replay.Ring(jax.jit(ring.init), jax.jit(ring.add), jax.jit(ring.sample), jax.jit(ring.can_sample))


def rows(start):
    """Rows [M, ...] numbered from `start`; the planes are the number in binary."""
    numbers = np.arange(start, start + ROWS, dtype=np.int32)
    return {"number": numbers, "planes": (numbers[:, None] >> np.arange(6) & 1).astype(bool).reshape(-1, 3, 2)}


def kept(state, shard):
    """The numbers that a shard keeps, the oldest first, read out of the arrays."""
    size, index = int(state.size[shard]), int(state.next_index[shard])
    numbers = np.asarray(state.samples["number"][shard])
    return [int(numbers[(index - size + i) % len(numbers)]) for i in range(size)]


@pytest.mark.parametrize("num_shards", [1, 2])
def test_masked_rows_are_added_in_order_and_replace_the_oldest(num_shards):
    ring, random = jitted(num_shards), np.random.default_rng(0)
    state, lists = ring.init(EXAMPLE), [[] for _ in range(num_shards)]
    for step in range(40):
        mask = random.random(ROWS) < random.choice([0.0, 0.2, 0.6, 1.0])
        added = rows(1 + step * ROWS)
        state = ring.add(state, added, mask)
        for shard in range(num_shards):
            own = slice(shard * ROWS // num_shards, (shard + 1) * ROWS // num_shards)
            lists[shard] += added["number"][own][mask[own]].tolist()
            lists[shard] = lists[shard][-CAPACITY // num_shards :]
            assert kept(state, shard) == lists[shard]
    drawn = jax.device_get(ring.sample(state, jax.random.key(1)))
    for shard, numbers in enumerate(drawn["number"].reshape(num_shards, -1)):
        assert set(numbers.tolist()) == set(lists[shard])  # 32 draws or more of 6 or 12: none is missed by this key
    bits = drawn["number"][:, None] >> np.arange(6) & 1
    np.testing.assert_array_equal(drawn["planes"], bits.astype(bool).reshape(-1, 3, 2))  # leaves stay together


def test_a_ring_that_is_filling_draws_what_is_there_alone():
    ring = jitted()
    state = ring.init(EXAMPLE)
    assert not ring.can_sample(state)
    state = ring.add(state, rows(1), np.arange(ROWS) == 2)
    assert not ring.can_sample(state)  # the second shard keeps nothing
    state = ring.add(state, rows(9), np.arange(ROWS) >= 5)
    assert ring.can_sample(state)
    drawn = np.asarray(ring.sample(state, jax.random.key(0))["number"]).reshape(SHARDS, -1)
    assert set(drawn[0].tolist()) == {3}
    assert set(drawn[1].tolist()) == {14, 15, 16}


def test_draws_are_uniform():
    ring = jitted(1)
    state = ring.add(ring.init(EXAMPLE), rows(1), np.ones(ROWS, bool))
    draw = jax.jit(jax.vmap(ring.sample, in_axes=(None, 0)))
    drawn = np.asarray(draw(state, jax.random.split(jax.random.key(0), 500))["number"])
    counts = np.bincount(drawn.reshape(-1), minlength=ROWS + 1)[1:]
    expected = 500 * BATCH / ROWS
    assert np.abs(counts - expected).max() < 5 * expected**0.5


def test_sizes_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="cannot be split over 2 shards"):
        replay.make_ring(capacity=13, batch_size=8, num_shards=2)
    with pytest.raises(ConfigError, match="cannot be split"):
        replay.make_ring(capacity=8, batch_size=0)
    ring = replay.make_ring(capacity=4, batch_size=2)
    with pytest.raises(ConfigError, match="8 rows are added at once, and the ring keeps 4"):
        jax.eval_shape(ring.add, jax.eval_shape(ring.init, EXAMPLE), rows(0), np.ones(ROWS, bool))


def test_a_ring_that_is_filled_keeps_the_rows_and_counts_them():
    ring = jitted()
    empty = ring.init(EXAMPLE)
    state = replay.filled(empty, jax.tree.map(lambda x: x[:7], rows(1)))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == jax.tree.map(lambda x: (x.shape, x.dtype), empty)
    assert [kept(state, shard) for shard in range(SHARDS)] == [[1, 3, 5, 7], [2, 4, 6]]
    np.testing.assert_array_equal(state.samples["planes"][0, :4], rows(1)["planes"][:7:2])
    drawn = ring.sample(state, jax.random.key(0))
    assert set(np.asarray(drawn["number"]).tolist()) == set(range(1, 8))
    added = ring.add(state, rows(100), np.arange(ROWS) < 1)  # it goes on as a ring does
    assert kept(added, 0) == [1, 3, 5, 7, 100]
    full = {name: np.concatenate([rows(0)[name], rows(8)[name]])[:CAPACITY] for name in EXAMPLE}
    state = replay.filled(empty, full)
    assert state.next_index.tolist() == [0, 0]
    assert state.size.tolist() == [CAPACITY // 2] * 2


@pytest.mark.parametrize("number", [1, CAPACITY + 1])
def test_more_rows_than_places_or_fewer_than_shards_are_refused(number):
    many = {name: np.repeat(values[:1], number, axis=0) for name, values in rows(0).items()}
    with pytest.raises(ConfigError, match=f"replay: {number} rows for 2 shards of 6"):
        replay.filled(jitted().init(EXAMPLE), many)
