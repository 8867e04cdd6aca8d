"""Advantages of tokens, by hand and against plain Python."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from support.token_rows import bilevel_in_plain_python

from stoix_like.algorithms.text.advantages import (
    bilevel_advantages,
    group_advantages,
    is_in_spread_groups,
    on_last_token,
    token_advantages,
)
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


def test_over_turns_and_tokens_by_hand():
    """Two turns; the second ends at value 2 with reward 1, and the first earns nothing. All discounts are 1/2.

    Of turns: A2 = 1 - 2 = -1. A1 = 0 + 2 / 2 - 4 - 1 / 4 = -3.25, so its target is 0.75. The token before the last of
    the first turn has value 1: 4 / 2 - 1 + (0.75 - 4) / 4 = 0.1875.
    """
    value = jnp.array([[[1.0, 4.0, 9.0], [9.0, 9.0, 9.0], [9.0, 2.0, 9.0]]])
    is_chosen = jnp.array([[[True, True, False], [False] * 3, [False, True, False]]])
    reward = jnp.array([[0.0, 5.0, 1.0]])  # of the turn without a token nothing is taken
    advantage, target = bilevel_advantages(value, reward, is_chosen, 0.5, 0.5, 0.5)
    np.testing.assert_allclose(advantage, [[[0.1875, -3.25, 0.0], [0.0] * 3, [0.0, -1.0, 0.0]]])
    np.testing.assert_allclose(target, [[[1.1875, 0.75, 0.0], [0.0] * 3, [0.0, 1.0, 0.0]]])


def test_over_turns_and_tokens_as_in_plain_python_with_turns_that_earn_nothing():
    value = np.array(jax.random.normal(jax.random.key(0), (6, 4, 7)))
    reward = np.array(jax.random.bernoulli(jax.random.key(1), 0.4, (6, 4)), np.float32)
    is_chosen = np.array(jax.random.bernoulli(jax.random.key(2), 0.4, (6, 4, 7)))
    found, target = jax.jit(bilevel_advantages)(value, reward, is_chosen, 0.97, 0.9, 0.8)
    wanted = bilevel_in_plain_python(value, reward, is_chosen, 0.97, 0.9, 0.8)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target, np.where(is_chosen, wanted + value, 0.0), rtol=1e-5, atol=1e-5)
    loud = np.where(is_chosen, value, 1000.0).astype(np.float32)
    for one, other in zip(
        jax.jit(bilevel_advantages)(loud, reward, is_chosen, 0.97, 0.9, 0.8), (found, target), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_over_a_group_by_hand_and_as_in_numpy():
    returns = np.array([1.0, 0.0, 0.0, 3.0, 2.0, 2.0, 2.0, 2.0], np.float32)
    found = group_advantages(returns, 4, leave_one_out=True)
    np.testing.assert_allclose(found, [1 - 3 / 3, -4 / 3, -4 / 3, 3 - 1 / 3, 0, 0, 0, 0], atol=1e-6)
    found = group_advantages(returns, 4, leave_one_out=False)
    np.testing.assert_allclose(found[:4], (returns[:4] - 1.0) / returns[:4].std(), rtol=1e-5)
    np.testing.assert_array_equal(found[4:], 0.0)
    np.testing.assert_array_equal(group_advantages(returns, 1, leave_one_out=True), 0.0)
    for leave_one_out in (True, False):  # a mean of eight times -0.3 is not -0.3
        of_equals = jax.jit(functools.partial(group_advantages, group_size=8, leave_one_out=leave_one_out))
        np.testing.assert_array_equal(of_equals(np.full(16, -0.3, np.float32)), 0.0)


def test_of_groups_that_are_kept_none_is_lost_to_rounding():
    returns = jnp.arange(200.0) ** 2
    assert int(is_in_spread_groups(returns, 2, 0.29).sum()) == 58  # 0.29 * 100 is less than 29 in binary


def test_groups_are_kept_by_the_spread_of_their_returns():
    returns = np.array([0.0, 10.0, 5.0, 5.0, 0.0, 2.0, 1.0, 4.0], np.float32)  # deviations 5, 0, 1, 1.5
    for share, groups in ((0.25, [0]), (0.5, [0, 3]), (0.75, [0, 2, 3]), (1.0, [0, 1, 2, 3]), (0.1, [0])):
        kept = np.asarray(is_in_spread_groups(jnp.asarray(returns), 2, share)).reshape(-1, 2)
        assert np.flatnonzero(kept.all(axis=1)).tolist() == np.flatnonzero(kept.any(axis=1)).tolist() == groups
