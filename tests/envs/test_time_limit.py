"""A limit of steps truncates, an end of the task stays an end; the probes played against their closed forms."""

import jax
import jax.numpy as jnp
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


def test_the_limit_truncates_and_an_end_before_or_at_it_is_an_end(limited):
    env, step = limited
    ends = {5: (LAST, 1.0), 3: (LAST, 0.0), 2: (LAST, 0.0)}  # by length of the level, where the limit is 3
    for length, end in ends.items():
        state, timestep = level_of_length(env, length)
        assert int(timestep.step_type) == FIRST
        num_steps = min(length, 3)
        assert types_and_discounts(step, state, num_steps) == [(MID, 1.0)] * (num_steps - 1) + [end], length


def test_the_environment_below_is_told_of_and_reached(limited):
    env, _ = limited
    assert env.can_truncate
    assert env.time_limit == 3
    assert with_time_limit(probes.make_tagged_levels(8), 20).time_limit == 8
    assert with_time_limit(probes.make_tagged_levels(8)._replace(time_limit=None), 20).time_limit == 20
    state, timestep = level_of_length(env, 5)
    assert float(env.episode_metrics(state, timestep)["level_length"]) == 5.0
    new = env.rekey(state, jax.random.key(77))
    assert jax.random.key_data(new.inner.key).tolist() == [0, 77]
    assert int(new.steps) == 0
    drawn = []
    animated = probes.make_constant_reward()._replace(animate=lambda states, path: drawn.append((states, path)))
    limited_env = with_time_limit(animated, 3)
    state, _ = limited_env.reset(jax.random.key(0))
    limited_env.animate([state], "x.gif")
    assert drawn == [([state.inner], "x.gif")]
    assert with_time_limit(probes.make_constant_reward(), 3).animate is None
    with pytest.raises(ConfigError, match="must be at least 1, got 0"):
        with_time_limit(probes.make_constant_reward(), 0)


GAMMA = 0.9


def episode(env, key, action=0):
    """[(observation acted on, reward, discount, step type)] of one episode with one action throughout."""
    state, timestep = env.reset(key)
    assert int(timestep.step_type) == FIRST
    steps = []
    for _ in range(50):
        seen = timestep.observation.agent_view["features"].tolist()
        state, timestep = env.step(state, jnp.int32(action))
        steps.append((seen, float(timestep.reward), float(timestep.discount), int(timestep.step_type)))
        if timestep.last():
            return steps
    raise AssertionError("the episode does not end")


def test_rewards_of_the_probes_by_hand_and_the_truncated_ones_worth_in_closed_form():
    assert episode(probes.make_constant_reward(), jax.random.key(0)) == [([0.0], 1.0, 0.0, LAST)]
    assert episode(probes.make_delayed_reward(), jax.random.key(0)) == [([0.0], 0.0, 1.0, MID), ([1.0], 1.0, 0.0, LAST)]
    env = probes.make_action_reward()
    assert [episode(env, jax.random.key(0), action)[0][1] for action in (0, 1)] == [-1.0, 1.0]
    env = probes.make_observation_reward()
    played = [episode(env, jax.random.key(seed))[0] for seed in range(8)]
    assert {(x, reward) for (x,), reward, _, _ in played} == {(-1.0, -1.0), (1.0, 1.0)}
    assert {(discount, kind) for _, _, discount, kind in played} == {(0.0, LAST)}
    env = probes.make_action_observation_reward()
    played = {
        (x, action, reward)
        for seed in range(8)
        for action in (0, 1)
        for (x,), reward, _, _ in episode(env, jax.random.key(seed), action)
    }
    assert played == {(-1.0, 0, 1.0), (-1.0, 1, -1.0), (1.0, 0, -1.0), (1.0, 1, 1.0)}
    state, _ = jax.vmap(probes.make_observation_reward().reset)(jax.random.split(jax.random.key(0), 4096))
    assert abs(float(state.sign.mean())) < 4 / 64  # four standard errors
    # they are registered by name
    assert {registry.make(f"probe/{name}").task_id for name in probes.PROBES} == {f"probe/{n}" for n in probes.PROBES}
    env = probes.make_truncated_constant(num_steps=3)
    steps = episode(env, jax.random.key(0))
    assert steps == [([0.0], 1.0, 1.0, MID), ([0.0], 1.0, 1.0, MID), ([0.0], 1.0, 1.0, LAST)]
    assert env.can_truncate
    bootstrap = 1 / (1 - GAMMA)
    value = sum(GAMMA**t * reward for t, (_, reward, _, _) in enumerate(steps)) + GAMMA**3 * bootstrap
    assert value == pytest.approx(bootstrap)
