"""The unrolled Threefry against `jax.random`, word for word."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.ops import threefry

KEYS = jax.random.split(jax.random.key(0), 500)


def over_keys(function):
    return np.asarray(jax.jit(jax.vmap(function))(KEYS))


@pytest.mark.parametrize("num", [1, 2, 3, 7])
def test_split(num):
    ours = over_keys(lambda key: jnp.stack([jnp.stack(k) for k in threefry.split(threefry.words(key), num)]))
    np.testing.assert_array_equal(ours, over_keys(lambda key: jax.random.key_data(jax.random.split(key, num))))


@pytest.mark.parametrize("name", ["bits", "uniform"])
def test_draws(name):
    ours = over_keys(lambda key: getattr(threefry, name)(threefry.words(key)))
    theirs = over_keys(getattr(jax.random, name))
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == theirs.dtype
    assert len(np.unique(ours)) == len(KEYS)


@pytest.mark.parametrize("span", [0, -3, 1, 2, 3, 5, 1000, 65_537, 2**31 - 1])
def test_integers_below(span):
    """Below nothing there is 0."""
    ours = over_keys(lambda key: threefry.below(threefry.randint_words(threefry.words(key)), span))
    theirs = over_keys(lambda key: jax.random.randint(key, (), 0, span)) if span > 0 else 0
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == np.int32


def test_other_keys_are_told_apart_and_one_pair_of_words_serves_several_ranges():
    """As JAX draws the same words for every range, so that a range can be known later than the words."""
    key = jax.random.key(7)
    drawn = threefry.randint_words(threefry.words(key))
    assert [int(threefry.below(drawn, n)) for n in (3, 10, 99)] == [
        int(jax.random.randint(key, (), 0, n)) for n in (3, 10, 99)
    ]
    # keys of another kind are told apart
    assert threefry.is_threefry(jax.random.key(0))
    assert not threefry.is_threefry(jax.random.key(0, impl="rbg"))
    with jax.enable_x64(True):  # then JAX draws words of 64 bits
        assert not threefry.is_threefry(jax.random.key(0))
    with jax.threefry_partitionable(False):
        assert not threefry.is_threefry(jax.random.key(0))
