"""Advantages of tokens, by hand and against plain Python."""

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.text.advantages import on_last_token, token_advantages
from stoix_like.ops.masked import masked_mean, standardize


def in_plain_python(value, reward, is_chosen, gamma, gae_lambda):
    advantages = np.zeros_like(value)
    for row in range(len(value)):
        steps = np.flatnonzero(is_chosen[row])
        after = 0.0
        for place, step in reversed(list(enumerate(steps))):
            following = value[row, steps[place + 1]] if place + 1 < len(steps) else 0.0
            after = reward[row, step] + gamma * following - value[row, step] + gamma * gae_lambda * after
            advantages[row, step] = after
    return advantages


def test_by_hand():
    """Two chosen tokens with values 1 and 2, then a reward of 3: -1 + 1 = 0 left after the second, with gamma 1/2."""
    value, reward = jnp.array([[1.0, 9.0, 2.0]]), jnp.array([[0.0, 9.0, 3.0]])
    advantage, target = token_advantages(value, reward, jnp.array([[True, False, True]]), 0.5, 0.5)
    np.testing.assert_allclose(advantage, [[0.0 + 0.5 * 2.0 - 1.0 + 0.25 * 1.0, 0.0, 3.0 - 2.0]])
    np.testing.assert_allclose(target, [[1.25, 0.0, 3.0]])


def random_rows(seed=0):
    value, reward = jax.random.normal(jax.random.key(seed), (2, 6, 40))
    return np.array(value), np.array(reward), np.array(jax.random.bernoulli(jax.random.key(seed + 1), 0.4, (6, 40)))


def test_of_chosen_tokens_as_in_plain_python():
    value, reward, is_chosen = random_rows()
    found, target = jax.jit(token_advantages)(value, reward, is_chosen, 0.97, 0.9)
    wanted = in_plain_python(value, reward, is_chosen, 0.97, 0.9)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target, np.where(is_chosen, wanted + value, 0.0), rtol=1e-5, atol=1e-5)


def test_what_is_not_chosen_may_hold_a_thousand():
    value, reward, is_chosen = random_rows()
    wanted = token_advantages(value, reward, is_chosen, 0.97, 0.9)
    loud = [np.where(is_chosen, x, 1000.0).astype(np.float32) for x in (value, reward)]
    for one, other in zip(token_advantages(*loud, is_chosen, 0.97, 0.9), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_turns_reward_stands_on_its_last_chosen_token():
    is_chosen = jnp.array([[[True, True, False], [True, True, True], [False, False, False]]])
    found = on_last_token(jnp.array([[-0.1, 2.0, 7.0]]), is_chosen)
    np.testing.assert_array_equal(found, np.float32([[[0, -0.1, 0], [0, 0, 2.0], [0, 0, 0]]]))


def test_means_and_deviations_of_what_counts():
    x, mask = jnp.array([[1.0, 1000.0], [3.0, 5.0]]), jnp.array([[True, False], [True, True]])
    assert float(masked_mean(x, mask)) == 3.0
    standard = standardize(x, mask)
    np.testing.assert_allclose(standard, [[-(1.5**0.5), 0.0], [0.0, 1.5**0.5]], rtol=1e-6)
    assert float(masked_mean(x, jnp.zeros_like(mask))) == 0.0
