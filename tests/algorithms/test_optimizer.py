"""Adam per network: closed form of the first step, separate clips and rates, a shared torso with the actor."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax

from stoix_like.algorithms.optimizer import ADAM_EPS, apply_gradients, init_optimizer
from stoix_like.types import NetworkParams


class Rates(NamedTuple):
    actor_lr: float = 0.1
    critic_lr: float = 0.01
    max_grad_norm: float = 1.0


def one_step(gradients, rates=None, factor=1.0):
    params = NetworkParams(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))
    rates = rates or Rates()
    return apply_gradients(params, init_optimizer(params), gradients, rates, jnp.float32(factor))[0]


def test_first_step_is_the_rate_times_the_sign_for_each_network():
    gradients = NetworkParams(jnp.zeros(2), jnp.array([0.3, -0.4]), jnp.array([-0.6, 0.0]))
    after = one_step(gradients)
    expected = -0.1 * np.array([0.3, -0.4]) / (np.abs([0.3, -0.4]) + ADAM_EPS)
    np.testing.assert_allclose(after.actor, expected, rtol=1e-5)
    np.testing.assert_allclose(after.critic, [0.01, 0.0], rtol=1e-4)


def test_the_clip_of_one_network_does_not_touch_the_other():
    small, huge = jnp.array([1e-5, 0.0]), jnp.array([1e3, 1e3])
    after = one_step(NetworkParams(jnp.zeros(2), small, huge))
    # eps = 1e-5 halves a step of gradient 1e-5; a joint norm would have shrunk it to nothing.
    np.testing.assert_allclose(after.actor[0], -0.05, rtol=1e-4)


def test_a_shared_torso_takes_the_actors_rate_and_clip():
    gradients = NetworkParams(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0]), jnp.array([1.0, 0.0]))
    after = one_step(gradients, Rates(actor_lr=0.1, critic_lr=5.0))
    adam = optax.scale_by_adam(eps=ADAM_EPS)
    clipped = (gradients.torso / 5.0, gradients.actor / 5.0)  # their joint norm is 5
    changes, _ = adam.update(clipped, adam.init(clipped))
    np.testing.assert_allclose(after.torso, -0.1 * changes[0], rtol=1e-6)
    np.testing.assert_allclose(after.actor, -0.1 * changes[1], rtol=1e-6)


def test_factor_zero_changes_nothing_but_moments():
    gradients = NetworkParams(jnp.ones(2), jnp.ones(2), jnp.ones(2))
    after = one_step(gradients, factor=0.0)
    assert all(float(jnp.abs(x).max()) == 0.0 for x in after)
