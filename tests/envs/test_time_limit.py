"""A limit of steps truncates; an end of the task stays an end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.envs import probes, registry
from stoix_like.envs.time_limit import with_time_limit
from stoix_like.errors import ConfigError
from stoix_like.types import FIRST, LAST, MID

NOTHING = jnp.int32(0)


def level_of_length(env, length):
    reset = jax.jit(env.reset)
    for seed in range(100):
        state, timestep = reset(jax.random.key(seed))
        if int(state.inner.length) == length:
            return state, timestep
    raise AssertionError("no such level")


@pytest.fixture(scope="module")
def limited():
    env = with_time_limit(probes.make_tagged_levels(8), 3)
    return env, jax.jit(env.step)


def types_and_discounts(step, state, num_steps):
    result = []
    for _ in range(num_steps):
        state, timestep = step(state, NOTHING)
        result.append((int(timestep.step_type), float(timestep.discount)))
    return result


def test_the_limit_is_last_with_discount_one(limited):
    env, step = limited
    state, timestep = level_of_length(env, 5)
    assert int(timestep.step_type) == FIRST
    assert types_and_discounts(step, state, 3) == [(MID, 1.0), (MID, 1.0), (LAST, 1.0)]


def test_an_earlier_end_keeps_discount_zero(limited):
    env, step = limited
    state, _ = level_of_length(env, 2)
    assert types_and_discounts(step, state, 2) == [(MID, 1.0), (LAST, 0.0)]


def test_an_end_at_the_limit_is_an_end(limited):
    env, step = limited
    state, _ = level_of_length(env, 3)
    assert types_and_discounts(step, state, 3) == [(MID, 1.0), (MID, 1.0), (LAST, 0.0)]


def test_what_the_environment_says_of_itself(limited):
    env, _ = limited
    assert env.can_truncate
    assert env.time_limit == 3
    assert with_time_limit(probes.make_tagged_levels(8), 20).time_limit == 8
    assert with_time_limit(probes.make_tagged_levels(8)._replace(time_limit=None), 20).time_limit == 20


def test_metrics_and_keys_reach_the_inner_state(limited):
    env, _ = limited
    state, timestep = level_of_length(env, 5)
    assert float(env.episode_metrics(state, timestep)["level_length"]) == 5.0
    new = env.rekey(state, jax.random.key(77))
    assert jax.random.key_data(new.inner.key).tolist() == [0, 77]
    assert int(new.steps) == 0


def test_animation_draws_the_inner_states():
    drawn = []
    env = probes.make_constant_reward()._replace(animate=lambda states, path: drawn.append((states, path)))
    limited_env = with_time_limit(env, 3)
    state, _ = limited_env.reset(jax.random.key(0))
    limited_env.animate([state], "x.gif")
    assert drawn == [([state.inner], "x.gif")]
    assert with_time_limit(probes.make_constant_reward(), 3).animate is None


def test_maze_is_truncated_and_not_terminated():
    env = registry.make("Maze-v0", max_episode_steps=2)
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    step = jax.jit(env.step)
    for _ in range(2):
        illegal = jnp.argmin(timestep.observation.action_mask)  # stands still: the goal is not reached
        state, timestep = step(state, illegal)
    assert (int(timestep.step_type), float(timestep.discount)) == (LAST, 1.0)
    np.testing.assert_array_equal(timestep.observation.agent_view["step_count"], 2)


def test_a_limit_below_one_is_refused():
    with pytest.raises(ConfigError, match="must be at least 1, got 0"):
        with_time_limit(probes.make_constant_reward(), 0)
