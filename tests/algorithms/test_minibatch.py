"""Shuffled minibatches: every row once per epoch, equally many of each shard, the same whatever the devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.algorithms import minibatch


@pytest.mark.parametrize(
    ("sizes", "shards"),
    [((64, 128, 16), 8), ((12, 10, 3), 4), ((6, 4, 2), 2), ((3, 5, 5), 1), ((8, 1, 8), 1), ((8, 2, 4), 4)],
)
def test_number_of_shards_divides_environments_and_minibatches(sizes, shards):
    num_envs, length, num_minibatches = sizes
    assert minibatch.num_logical_shards(num_envs, length, num_minibatches) == shards
    assert num_envs % shards == 0
    assert (num_envs * length // shards) % num_minibatches == 0


def epoch_rows(num_envs, length, num_minibatches, key):
    """The (time, environment) tags of every minibatch of one epoch, [M, B, 2]."""
    shards = minibatch.num_logical_shards(num_envs, length, num_minibatches)
    tags = jnp.stack(jnp.meshgrid(jnp.arange(length), jnp.arange(num_envs), indexing="ij"), axis=-1)  # [T, N, 2]
    sharded = minibatch.shard_rows(tags, shards)
    indices = minibatch.shuffled_indices(key, shards, sharded.shape[1], num_minibatches)
    return np.asarray(jax.vmap(lambda i: minibatch.take_minibatch(sharded, i))(indices))


def test_an_epoch_holds_every_row_once(key):
    rows = epoch_rows(16, 6, 4, key)
    assert rows.shape == (4, 24, 2)
    assert {tuple(r) for r in rows.reshape(-1, 2)} == {(t, n) for t in range(6) for n in range(16)}


def test_every_minibatch_takes_equally_many_rows_of_each_shard(key):
    rows = epoch_rows(16, 6, 4, key)
    for one in rows:
        counts = np.bincount(one[:, 1] // 2, minlength=8)  # 8 shards of two environments
        assert (counts == 3).all()


def test_another_key_gives_another_order_and_the_same_key_the_same(key):
    first = epoch_rows(16, 6, 4, key)
    np.testing.assert_array_equal(first, epoch_rows(16, 6, 4, key))
    assert (first != epoch_rows(16, 6, 4, jax.random.key(1))).any()


def test_leaves_of_a_row_stay_together(key):
    tags = jnp.arange(24).reshape(4, 6)
    tree = {"a": tags, "b": 10.0 * tags[..., None] + jnp.arange(3.0)[None, None]}
    sharded = minibatch.shard_rows(tree, 2)
    taken = minibatch.take_minibatch(sharded, minibatch.shuffled_indices(key, 2, 12, 3)[1])
    np.testing.assert_array_equal(taken["b"][:, 0], 10.0 * taken["a"])
