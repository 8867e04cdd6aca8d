"""Evaluation counts whole first episodes, so that neither short nor long ones are favoured."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

import stoix_like as sl
from stoix_like.evaluation import episodes
from stoix_like.evaluation.episodes import EpisodeResults

NUM_LEVELS = 512


def _anything(params, env_state, observation, key, deterministic):
    """The policy of an environment with one action."""
    return jnp.zeros(observation.action_mask.shape[:-1], jnp.int32)


def _uniform(params, env_state, observation, key, deterministic):
    logits = jnp.where(observation.action_mask, 0.0, -1e9)
    return jnp.argmax(logits, -1) if deterministic else jax.random.categorical(key, logits)


@functools.cache
def _tagged():
    return sl.make_env("probe/tagged_levels")


@functools.cache
def _choice():
    """Two actions, one step: the return tells which was taken."""
    return sl.make_env("probe/action_observation_reward")


def _evaluate(env, policy, keys, key, *, params=None, **options):
    play = functools.partial(episodes.evaluate_levels, env, policy, **options)
    return jax.jit(play)(params, keys, key)


@pytest.fixture
def level_keys():
    return jax.random.split(jax.random.key(7), NUM_LEVELS)


def _expected(level_keys):
    """What an episode on each tagged level is worth, from the level itself: (return, length)."""
    state, timestep = jax.vmap(_tagged().reset)(level_keys)
    return timestep.observation.agent_view["features"][:, 2], state.length


@pytest.mark.parametrize("num_envs", [NUM_LEVELS, full(64), 1])
def test_every_level_is_played_once_whole_and_in_order(level_keys, num_envs):
    keys = level_keys if num_envs > 1 else level_keys[:16]
    results = _evaluate(_tagged(), _anything, keys, jax.random.key(0), num_envs=num_envs)
    fraction, length = _expected(keys)
    np.testing.assert_array_equal(results.episode_return, fraction)
    np.testing.assert_array_equal(results.episode_length, length)
    np.testing.assert_array_equal(results.env_metrics["level_length"], length)


def test_long_and_short_episodes_count_alike():
    """Lengths are drawn uniformly from 1 to 8. Counting episodes as they finish would show short ones more often."""
    play = functools.partial(episodes.evaluate, _tagged(), _anything, num_episodes=4096, num_envs=64)
    results = jax.jit(play)(None, jax.random.key(3))
    counts = np.bincount(np.asarray(results.episode_length), minlength=9)[1:]
    assert counts.sum() == 4096
    # 512 of each are expected with a deviation of sqrt(4096 / 8 * 7 / 8) = 21; five deviations, over a fixed key
    assert np.abs(counts - 512).max() < 106
    fraction = np.asarray(results.episode_return)
    # uniform in [0, 1): the mean of 4,096 has a deviation of 0.289 / 64 = 0.0045
    assert abs(fraction.mean() - 0.5) < 5 * 0.0045


def test_evaluation_follows_the_key_where_it_samples_or_draws_levels():
    keys = jax.random.split(jax.random.key(5), 64)
    score = functools.partial(_evaluate, _choice(), _uniform, keys, num_envs=64)
    greedy = [score(jax.random.key(i), deterministic=True) for i in range(2)]
    jax.tree.map(np.testing.assert_array_equal, *greedy)
    sampled = [score(jax.random.key(i), deterministic=False) for i in (0, 0, 1)]
    jax.tree.map(np.testing.assert_array_equal, *sampled[:2])
    assert (sampled[0].episode_return != sampled[2].episode_return).any()
    assert (sampled[0].episode_return != greedy[0].episode_return).any()
    play = jax.jit(functools.partial(episodes.evaluate, _tagged(), _anything, num_episodes=64))
    first, again, other = (play(None, jax.random.key(i)) for i in (0, 0, 1))
    assert isinstance(first, EpisodeResults)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert (first.episode_return != other.episode_return).all()


def test_own_metrics_are_those_of_the_final_step():
    """Small mazes played at random: solved exactly where the return is 1, and lost only at the time limit."""
    env = sl.make_env("Maze-v0", kwargs={"num_rows": 5, "num_cols": 5})
    keys = jax.random.split(jax.random.key(2), 64)
    results = _evaluate(env, _uniform, keys, jax.random.key(0), num_envs=64, deterministic=False)
    solved = np.asarray(results.env_metrics["solve_rate"])
    np.testing.assert_array_equal(solved, results.episode_return)
    assert 0 < solved.sum() < 64
    lengths = np.asarray(results.episode_length)
    assert (lengths[solved == 0] == 25).all()
    assert len(set(lengths[solved == 1].tolist())) > 4


def test_episodes_that_do_not_divide_are_refused_and_those_that_do_not_end_marked(monkeypatch):
    """Tagged levels last 1 to 8 steps. One that ends with the last step allowed is whole."""
    keys = jax.random.split(jax.random.key(7), 64)
    _, lengths = _expected(keys)
    monkeypatch.setattr(episodes, "MOST_STEPS", 5)
    results = _evaluate(_tagged(), _anything, keys, jax.random.key(0), num_envs=16)
    np.testing.assert_array_equal(results.is_unfinished, lengths > 5)
    np.testing.assert_array_equal(results.episode_length, np.minimum(lengths, 5))
    assert 0 < results.is_unfinished.sum() < 64
    assert not results.is_truncated.any()
    with pytest.raises(ValueError, match="10 episodes are not a multiple of 4 environments"):
        episodes.evaluate(_tagged(), _anything, None, jax.random.key(0), num_episodes=10, num_envs=4)
