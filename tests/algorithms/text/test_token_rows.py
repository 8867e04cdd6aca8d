"""The rows of PPO over tokens: groups, their returns, and the filter by these."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.token_rows import bilevel_in_plain_python, loss_of, played

from stoix_like.algorithms.text import token_ppo
from stoix_like.algorithms.text.token_rows import compute_rows

EARNED = [0.0, 1.0, 0.3, 1.0, 0.0, 0.0, 0.0, 0.1]


def with_rewards(setup, state, reward, penalty):
    """(rewards with penalties [N, T], rows) of the episodes, of which each turn that was played earns these [N]."""
    _, _, episodes, _ = played()
    earned, paid = (jnp.where(episodes.turns.was_played, jnp.array(x)[:, None], 0.0) for x in (reward, penalty))
    turns = episodes.turns._replace(reward=earned, penalty=paid)
    rows = jax.jit(functools.partial(compute_rows, setup))(state, episodes._replace(turns=turns))
    return np.asarray(earned + paid, np.float64), rows


def with_settings(**settings):
    setup, state, *_ = played()
    return setup._replace(settings=setup.settings._replace(**settings)), state


def test_rows_of_groups_without_spread_are_not_learned_from():
    """Of two groups of four the second has the larger deviation of returns, but not of rewards without penalties.

    Over their deviations, or scaled by 0 as here, both would be alike, and the first one would stay.
    """
    setup, state = with_settings(rollout_filter_ratio=0.5)
    state = state._replace(hyper=state.hyper._replace(reward_scale=jnp.float32(0.0)))
    earned, rows = with_rewards(setup, state, EARNED, [0.0, 0.0, 0.0, 0.0, -0.1, -4.0, -0.1, -0.1])
    returns = earned.sum(axis=1)
    spread = returns.reshape(2, 4).std(axis=1)
    assert spread[1] > 1.5 * spread[0] > 0.0
    kept = np.repeat([False, True], 4)
    _, _, episodes, _ = played()
    by_episode = np.asarray(rows.is_chosen).reshape(len(returns), -1)
    np.testing.assert_array_equal(by_episode.any(axis=1), kept & np.asarray(episodes.is_chosen).any(axis=(1, 2)))
    for name in ("length", "before"):  # so that nothing is read where the kept rows may end
        assert not np.asarray(getattr(rows.packed, name)).reshape(len(returns), -1)[~kept].any()
    params, *_ = jax.jit(functools.partial(token_ppo.optimize, setup))(state, rows)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))  # also where kept rows are shorter than others
    advantage = np.asarray(rows.advantage)[np.asarray(rows.is_chosen)]
    np.testing.assert_allclose([advantage.mean(), advantage.std()], [0.0, 1.0], atol=1e-3)  # of those that are kept


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_advantages_of_groups_are_those_of_their_scaled_returns_in_all_tokens_of_an_episode(kind):
    """Whatever is standardised otherwise: a mean over tokens would depend on the lengths of answers."""
    of = played(advantage_estimator=kind, standardize_advantages="batch")[0].settings
    assert of.standardization == "none"
    setup, state = with_settings(advantage_estimator=kind, standardization=of.standardization)
    state = state._replace(hyper=state.hyper._replace(reward_scale=jnp.float32(3.0)))
    earned, rows = with_rewards(setup, state, EARNED, [-0.1] * 8)
    groups = 3.0 * earned.sum(axis=1).reshape(2, 4)
    above = groups - groups.mean(axis=1, keepdims=True)
    wanted = above / groups.std(axis=1, keepdims=True) if kind == "grpo" else above * 4 / 3
    advantage = np.asarray(rows.advantage).reshape(8, -1)
    chosen = np.asarray(rows.is_chosen).reshape(advantage.shape)
    np.testing.assert_allclose(advantage, np.where(chosen, wanted.reshape(8, 1), 0.0), rtol=1e-4, atol=1e-5)
    _, metrics = jax.jit(functools.partial(loss_of, setup))(state, rows)
    assert "trainer/value_loss" not in metrics


def test_over_turns_the_discount_of_turns_counts():
    setup, state = with_settings(advantage_estimator="bilevel_gae", standardization="none")
    hyper = {"gamma": 0.97, "gae_lambda": 0.9, "turn_gamma": 0.5, "reward_scale": 2.0}
    state = state._replace(hyper=state.hyper._replace(**{name: jnp.float32(x) for name, x in hyper.items()}))
    earned, rows = with_rewards(setup, state, EARNED, [0.0] * 8)
    _, _, episodes, _ = played()
    value, is_chosen = np.asarray(episodes.value), np.asarray(episodes.is_chosen)
    wanted = bilevel_in_plain_python(value, 2.0 * earned, is_chosen, 0.97, 0.9, 0.5)
    np.testing.assert_allclose(np.asarray(rows.advantage).reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)
