"""What several rooms assert: of pytrees, whose leaves may be typed keys, and of refusals."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@contextlib.contextmanager
def refused(kind, what=None, hint=None):
    """That the block raises an error of this kind with these words; a list is the problems of a configuration."""
    with pytest.raises(kind) as caught:
        yield caught
    assert what in (None, caught.value.problems if isinstance(what, list) else caught.value.what)
    assert hint in (None, caught.value.hint)


def key_data(tree):
    """The tree in NumPy, with the data of typed keys in their place, so that it can be compared."""
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.tree.map(lambda x: np.asarray(jax.random.key_data(x) if is_key(x) else x), tree)


def assert_same_bits(one, other):
    """Equal leaf for leaf, NaN where NaN, in types and shapes too."""
    left, right = (jax.tree_util.tree_leaves_with_path(key_data(tree)) for tree in (one, other))
    assert [path for path, _ in left] == [path for path, _ in right]
    for (path, value), (_, expected) in zip(left, right, strict=True):
        name = jax.tree_util.keystr(path)
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape), name
        assert value.tobytes() == expected.tobytes(), name


def assert_fits_a_scan(start, after):
    """That `after` can follow `start` in a scan's carry: the same structure, shapes and strong types."""
    assert jax.tree.structure(start) == jax.tree.structure(after)
    assert jax.tree.leaves(start) == jax.tree.leaves(after)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(start))


def assert_legal(actions, mask):
    """That all actions [..., K] or [...] are legal where the mask is [..., A]; indices may be of any integer type."""
    mask, actions = np.asarray(mask), np.asarray(actions, int)
    assert actions.shape[: mask.ndim - 1] == mask.shape[:-1]
    assert np.take_along_axis(mask, actions.reshape(*mask.shape[:-1], -1), axis=-1).all()
