"""Orthogonal initialisation against JAX's own, which factors by QR, and over seeds at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.networks.orthogonal import orthogonal, orthonormal_columns


@pytest.mark.parametrize("shape", [(1, 7), (3, 1), (5, 64), (3, 3, 8, 32), (64, 64)])
def test_equals_jax_s_own_for_the_same_key(shape):
    key = jax.random.key(3)
    ours, theirs = (jax.jit(lambda init=init: init(key, shape))() for init in (orthogonal(1.3), _jax_orthogonal(1.3)))
    np.testing.assert_allclose(ours, theirs, atol=3e-6)
    assert ours.dtype == jnp.float32


def _jax_orthogonal(gain):
    return jax.nn.initializers.orthogonal(gain)


@pytest.mark.parametrize("shape", [(40, 8), (8, 40), (64, 64)])
def test_the_shorter_side_is_orthonormal(shape):
    matrix = np.asarray(orthogonal(0.5)(jax.random.key(0), shape), np.float64)
    gram = matrix.T @ matrix if shape[0] >= shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(gram, 0.25 * np.eye(min(shape)), atol=1e-6)


def test_nearly_dependent_columns_still_become_orthonormal():
    """One pass of Gram-Schmidt loses this; the second mends it."""
    matrix = jnp.ones((6, 3)) + 1e-3 * jax.random.normal(jax.random.key(1), (6, 3))
    basis = orthonormal_columns(matrix)
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-6)


def test_vmap_over_keys_equals_one_key_after_the_other():
    keys = jax.random.split(jax.random.key(2), 8)
    init = lambda key: orthogonal(1.0)(key, (64, 64))
    batched = jax.jit(jax.vmap(init))(keys)
    np.testing.assert_allclose(batched, jnp.stack([init(key) for key in keys]), atol=1e-5)
