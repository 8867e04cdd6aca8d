"""The probes are what their docstrings say: values by playing them, against the closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.envs import probes, registry
from stoix_like.types import FIRST, LAST, MID

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


def test_they_are_registered_by_name():
    """What they have in common with all environments is in tests/contract/test_environment.py."""
    assert {registry.make(f"probe/{name}").task_id for name in probes.PROBES} == {f"probe/{n}" for n in probes.PROBES}


def test_constant_reward():
    assert episode(probes.make_constant_reward(), jax.random.key(0)) == [([0.0], 1.0, 0.0, LAST)]


def test_observation_reward():
    env = probes.make_observation_reward()
    played = [episode(env, jax.random.key(seed))[0] for seed in range(8)]
    assert {(x, reward) for (x,), reward, _, _ in played} == {(-1.0, -1.0), (1.0, 1.0)}
    assert {(discount, kind) for _, _, discount, kind in played} == {(0.0, LAST)}


def test_delayed_reward():
    assert episode(probes.make_delayed_reward(), jax.random.key(0)) == [([0.0], 0.0, 1.0, MID), ([1.0], 1.0, 0.0, LAST)]


def test_action_reward():
    env = probes.make_action_reward()
    assert [episode(env, jax.random.key(0), action)[0][1] for action in (0, 1)] == [-1.0, 1.0]


def test_action_observation_reward():
    env = probes.make_action_observation_reward()
    played = {
        (x, action, reward)
        for seed in range(8)
        for action in (0, 1)
        for (x,), reward, _, _ in episode(env, jax.random.key(seed), action)
    }
    assert played == {(-1.0, 0, 1.0), (-1.0, 1, -1.0), (1.0, 0, -1.0), (1.0, 1, 1.0)}


def test_observations_are_even():
    state, _ = jax.vmap(probes.make_observation_reward().reset)(jax.random.split(jax.random.key(0), 4096))
    assert abs(float(state.sign.mean())) < 4 / 64  # four standard errors


def test_truncated_constant_is_worth_its_closed_form():
    env = probes.make_truncated_constant(num_steps=3)
    steps = episode(env, jax.random.key(0))
    assert steps == [([0.0], 1.0, 1.0, MID), ([0.0], 1.0, 1.0, MID), ([0.0], 1.0, 1.0, LAST)]
    assert env.can_truncate
    bootstrap = 1 / (1 - GAMMA)
    value = sum(GAMMA**t * reward for t, (_, reward, _, _) in enumerate(steps)) + GAMMA**3 * bootstrap
    assert value == pytest.approx(bootstrap)


def test_tagged_levels_pay_their_fraction_at_the_end():
    env = probes.make_tagged_levels(max_length=4)
    for seed in range(6):
        key = jax.random.key(seed)
        state, _ = env.reset(key)
        np.testing.assert_array_equal(state.tag, jax.random.key_data(key))
        steps = episode(env, key)
        assert len(steps) == int(state.length)
        fraction = steps[0][0][2]
        assert 0 <= fraction < 1
        assert [reward for _, reward, _, _ in steps] == [0.0] * (len(steps) - 1) + [fraction]
        assert [seen[:2] for seen, *_ in steps] == [[len(steps), t] for t in range(len(steps))]


def test_tags_differ_between_keys():
    state, timestep = jax.vmap(probes.make_tagged_levels().reset)(jax.random.split(jax.random.key(0), 1000))
    assert len({tuple(tag) for tag in np.asarray(state.tag).tolist()}) == 1000
    assert set(np.asarray(state.length).tolist()) == set(range(1, 9))
    np.testing.assert_array_equal(timestep.extras["tag"], state.tag)
