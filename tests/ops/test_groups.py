"""Equal actions among particles."""

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.ops.groups import action_groups, summed


def test_groups_by_hand():
    groups = jax.jit(action_groups)(jnp.array([[3, 3, 3, 3], [7, 2, 7, 2], [4, 3, 2, 1], [0, 0, 0, 9]]))
    np.testing.assert_array_equal(groups, [[0, 0, 0, 0], [1, 0, 1, 0], [3, 2, 1, 0], [0, 0, 0, 1]])
    assert groups.dtype == jnp.int32


def test_factored_actions_are_equal_where_every_factor_is():
    factors = jax.random.randint(jax.random.key(12), (50, 7, 2), 0, 3)  # [N, P, F]
    groups = np.asarray(action_groups(factors))
    flat = np.asarray(3 * factors[..., 0] + factors[..., 1])
    np.testing.assert_array_equal(groups[:, :, None] == groups[:, None], flat[:, :, None] == flat[:, None])
    assert (groups.max(axis=1) + 1 == [len(np.unique(row)) for row in flat]).all()  # without gaps


def test_sums_by_group_equal_numpy():
    weights = jax.random.uniform(jax.random.key(0), (20, 9))
    groups = action_groups(jax.random.randint(jax.random.key(1), (20, 9), 0, 4))
    got = summed(weights, groups, 9)
    expected = [np.bincount(g, weights=w, minlength=9) for w, g in zip(np.asarray(weights), groups, strict=True)]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
