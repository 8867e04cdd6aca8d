"""GAE against a hand-computed case and the definition as an O(T^2) double sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.ops import returns

gae = jax.jit(returns.gae)


def brute_force_gae(reward, discount, is_last, value, next_value, lambda_):
    """a_t = sum over k >= t of (product of lambda * discount over rows t .. k-1, cut after a last row) * delta_k."""
    length, num_envs = reward.shape
    advantage = np.zeros_like(reward)
    for env in range(num_envs):
        for t in range(length):
            weight = 1.0
            for k in range(t, length):
                delta = reward[k, env] + discount[k, env] * next_value[k, env] - value[k, env]
                advantage[t, env] += weight * delta
                if is_last[k, env]:
                    break
                weight *= lambda_ * discount[k, env]
    return advantage


def random_rollout(seed, length=13, num_envs=5):
    g = np.random.default_rng(seed)
    is_last = g.random((length, num_envs)) < 0.25
    is_truncation = is_last & (g.random((length, num_envs)) < 0.5)
    discount = np.where(is_last & ~is_truncation, 0.0, 0.9)
    value, next_value, reward = (g.normal(size=(length, num_envs)) for _ in range(3))
    return reward, discount, is_last, value, next_value


def test_by_hand_with_a_termination_and_a_truncation():
    # Rows: an ordinary step, a truncation (bootstraps 4, cuts the sum), a termination (bootstraps nothing).
    reward = jnp.array([1.0, 2.0, 3.0])
    discount = jnp.array([0.5, 0.5, 0.0])
    is_last = jnp.array([False, True, True])
    value = jnp.array([1.0, 2.0, 3.0])
    next_value = jnp.array([2.0, 4.0, 100.0])
    advantage, target = gae(reward, discount, is_last, value, next_value, 0.5)
    # deltas: 1 + .5*2 - 1 = 1; 2 + .5*4 - 2 = 2; 3 + 0 - 3 = 0.  a0 = 1 + .5*.5*2 = 1.5; a1 = 2; a2 = 0
    np.testing.assert_allclose(advantage, [1.5, 2.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(target, [2.5, 4.0, 3.0], rtol=1e-6)


@pytest.mark.parametrize("lambda_", [0.0, 0.8, 1.0])
def test_equals_the_double_sum(lambda_):
    """In which nothing after a last row is looked at."""
    rollout = random_rollout(0, num_envs=25)
    expected = brute_force_gae(*rollout, lambda_)
    advantage, target = gae(*(jnp.asarray(x, jnp.asarray(x).dtype) for x in rollout), lambda_)
    np.testing.assert_allclose(advantage, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(target, expected + rollout[3], rtol=2e-5, atol=2e-5)


def test_standardize_over_the_whole_batch_and_of_a_constant():
    x = jax.random.normal(jax.random.key(0), (7, 11)) * 5 + 3
    y = returns.standardize(x)
    np.testing.assert_allclose([jnp.mean(y), jnp.std(y)], [0.0, 1.0], atol=1e-5)
    np.testing.assert_array_equal(returns.standardize(jnp.full((4, 4), 0.125)), jnp.zeros((4, 4)))
