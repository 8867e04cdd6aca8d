"""Losses against hand-computed values and rlax."""

import jax
import jax.numpy as jnp
import numpy as np
import rlax

from stoix_like.ops import losses


def test_clipped_surrogate_by_hand_and_with_its_gradient_as_rlax():
    ratio = jnp.array([0.5, 1.1, 2.0, 0.5, 2.0])
    advantage = jnp.array([1.0, 1.0, 1.0, -1.0, -1.0])
    # The clip holds gains (2 -> 1.2) and never hides a loss (2 with a negative advantage counts in full).
    expected = [-0.5, -1.1, -1.2, 0.8, 2.0]
    np.testing.assert_allclose(losses.clipped_surrogate(jnp.log(ratio), jnp.zeros(5), advantage, 0.2), expected, 1e-6)
    keys = jax.random.split(jax.random.key(0), 3)
    log_prob, old, advantage = (jax.random.normal(k, (64,)) for k in keys)

    def ours(lp):
        return jnp.mean(losses.clipped_surrogate(lp, old, advantage, 0.2))

    def theirs(lp):
        return rlax.clipped_surrogate_pg_loss(jnp.exp(lp - old), advantage, 0.2, use_stop_gradient=True)

    np.testing.assert_allclose(ours(log_prob), theirs(log_prob), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(ours)(log_prob), jax.grad(theirs)(log_prob), rtol=1e-5, atol=1e-8)


def test_value_losses_approximate_kl_and_explained_variance_by_hand():
    value, old, target = jnp.array([2.0, 2.0]), jnp.array([0.0, 1.9]), jnp.array([3.0, 3.0])
    np.testing.assert_allclose(losses.squared_error(value, target), [0.5, 0.5])
    # Held within 0.5 of 0.0 the first value is 0.5, whose error 3.125 is the larger; the second moved less than 0.5.
    np.testing.assert_allclose(losses.clipped_squared_error(value, old, target, 0.5), [3.125, 0.5])
    slope = jax.grad(lambda v: losses.clipped_squared_error(v, 0.0, 3.0, 0.5))(2.0)
    assert slope == 0.0
    p, q = jnp.array([0.2, 0.3, 0.5]), jnp.array([0.3, 0.3, 0.4])
    assert losses.approximate_kl(jnp.log(p), jnp.log(p)).max() == 0.0
    expected = jnp.sum(p * jnp.log(p / q))  # samples of the old policy p
    np.testing.assert_allclose(jnp.sum(p * losses.approximate_kl(jnp.log(q), jnp.log(p))), expected, rtol=1e-5)
    target = jnp.array([1.0, 2.0, 4.0])
    assert losses.explained_variance(target, target) == 1.0
    np.testing.assert_allclose(losses.explained_variance(jnp.full(3, 2.0), target), 0.0, atol=1e-6)
