"""Propagation against hand-computed paths and against automatic differentiation of the loop."""

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.networks.propagation import neighbours, propagate


def test_values_flow_around_a_wall():
    """One source of 10 at the left of a 2x3 grid, cost 1, the upper middle closed: the upper right is 4 steps away."""
    source = jnp.full((2, 3), -100.0).at[0, 0].set(10.0)[..., None]
    cost = jnp.ones((2, 3)).at[0, 1].set(1000.0)[..., None]
    values = jax.jit(propagate, static_argnums=2)(source, cost, 6)[..., 0]
    np.testing.assert_array_equal(values, [[10.0, -100.0, 6.0], [9.0, 8.0, 7.0]])


def test_the_number_of_steps_bounds_the_way():
    source = jnp.full((1, 5), -100.0).at[0, 0].set(10.0)[..., None]
    values = propagate(source, jnp.ones((1, 5, 1)), 2)[0, :, 0]
    np.testing.assert_array_equal(values, [10.0, 9.0, 8.0, -100.0, -100.0])


def test_gradient_equals_that_of_the_unrolled_loop(key):
    k = jax.random.split(key, 3)
    source, weights = 6.0 * jax.random.normal(k[0], (5, 6, 4)), jax.random.normal(k[1], (5, 6, 4))
    cost = jax.random.uniform(k[2], (5, 6, 4), minval=0.05, maxval=1.0)

    def unrolled(source, cost, num_steps):
        values = source
        for _ in range(num_steps):
            up, right, down, left = neighbours(values)
            values = jnp.maximum(source, jnp.maximum(jnp.maximum(up, right), jnp.maximum(down, left)) - cost)
        return values

    gradients = [
        jax.jit(jax.grad(lambda s, c, f=f: jnp.sum(weights * f(s, c, 30)), argnums=(0, 1)))(source, cost)
        for f in (propagate, unrolled)
    ]
    for ours, loop in zip(jax.tree.leaves(gradients[0]), jax.tree.leaves(gradients[1]), strict=True):
        np.testing.assert_allclose(ours, loop, atol=1e-5)  # sums of up to thirty terms of order one
    assert float(jnp.abs(gradients[0][1]).max()) > 1.0  # not trivially zero


def test_ties_share_the_gradient():
    """The middle of three cells hears two equal sources: half the gradient goes to each, and its cost pays once."""
    source = jnp.array([5.0, -100.0, 5.0])[None, :, None]
    gradient = jax.grad(lambda s, c: propagate(s, c, 3)[0, 1, 0], argnums=(0, 1))(source, jnp.ones((1, 3, 1)))
    np.testing.assert_array_equal(gradient[0][0, :, 0], [0.5, 0.0, 0.5])
    np.testing.assert_array_equal(gradient[1][0, :, 0], [0.0, -1.0, 0.0])
