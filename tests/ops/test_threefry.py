"""The unrolled Threefry against `jax.random`, word for word."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.ops import threefry

KEYS = jax.random.split(jax.random.key(0), 500)


def over_keys(function):
    return np.asarray(jax.jit(jax.vmap(function))(KEYS))


@pytest.mark.parametrize("num", [1, 7])
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


def test_integers_below():
    """Below nothing there is 0. One pair of words serves all ranges, as JAX draws the same words for every range."""
    spans = [1, 2, 3, 5, 1000, 65_537, 2**31 - 1]
    words_of = lambda key: threefry.randint_words(threefry.words(key))
    ours = over_keys(lambda key: jnp.stack([threefry.below(words_of(key), n) for n in (0, -3, *spans)]))
    theirs = over_keys(lambda key: jnp.stack([jax.random.randint(key, (), 0, n) for n in spans]))
    np.testing.assert_array_equal(ours[:, :2], 0)
    np.testing.assert_array_equal(ours[:, 2:], theirs)
    assert ours.dtype == np.int32


def test_keys_of_another_kind_are_told_apart():
    assert threefry.is_threefry(jax.random.key(0))
    assert not threefry.is_threefry(jax.random.key(0, impl="rbg"))
    with jax.enable_x64(True):  # then JAX draws words of 64 bits
        assert not threefry.is_threefry(jax.random.key(0))
    with jax.threefry_partitionable(False):
        assert not threefry.is_threefry(jax.random.key(0))
