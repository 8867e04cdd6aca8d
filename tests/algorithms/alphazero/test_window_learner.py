"""Learning without play: from a window that is handed over, as the learner that plays learns from its ring."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.configs import SMALL_ALPHAZERO

import stoix_like as sl
from stoix_like.algorithms.alphazero import learning
from stoix_like.algorithms.alphazero.learning import Learning, LearningSetup
from stoix_like.algorithms.alphazero.state import LearningBudget
from stoix_like.errors import ConfigError
from stoix_like.ops import trees
from stoix_like.replay import make_ring
from stoix_like.types import role_key


@pytest.fixture(scope="module")
def parts():
    """(game, network, configuration, a state of the learner that plays, whose ring has samples)."""
    config = sl.alphazero_config(**SMALL_ALPHAZERO | {"task_id": "tic_tac_toe", "opponent": "random"})
    env = sl.make_env("tic_tac_toe", opponent="random")
    network = sl.make_network(env, config)
    learner = sl.alphazero.make(env.game, network, config)
    state, update = jax.jit(learner.init)(jax.random.key(0)), jax.jit(learner.update)
    for _ in range(6):
        state, _ = update(state)
    return env.game, network, config, jax.device_get(state)


def window_learner(parts):
    game, network, config, _ = parts
    return sl.alphazero.make(game, network, replaced(config))


def replaced(config):
    from stoix_like.config.checks.access import replace_leaves

    return replace_leaves(config, {"self_play": False})


def samples_of(parts):
    """The samples of the playing learner's ring, [M, ...]."""
    replay = parts[3].replay
    shards = [jax.tree.map(lambda x, s=s: x[s, : replay.size[s]], replay.samples) for s in range(len(replay.size))]
    return jax.tree.map(lambda *rows: np.concatenate(rows), *shards)


def test_an_update_makes_the_gradient_steps_of_learn_on_the_window(parts):
    game, network, config, _ = parts
    learner, samples = window_learner(parts), samples_of(parts)
    state = sl.alphazero.window_of(jax.jit(learner.init)(jax.random.key(1)), samples)
    found, metrics = jax.jit(learner.update)(state)
    settings = sl.alphazero.settings_of(config)
    ring = make_ring(
        capacity=config.alphazero.replay_buffer_size, batch_size=settings.batch_size, num_shards=settings.num_shards
    )
    setup = LearningSetup(network, ring, game.symmetries, settings)
    budget = LearningBudget(*(jnp.float32(n) for n in (settings.most_gradient_steps * settings.batch_size, 0, 0)))
    before = Learning(state.params, state.optimizer, budget)
    learn = jax.jit(functools.partial(learning.learn, setup))
    after, _ = learn(state.hyper, jnp.float32(1.0), before, state.replay, state.step, role_key(state.key, "replay"))
    jax.tree.map(np.testing.assert_array_equal, found.params, after.params)
    assert metrics["trainer/gradient_steps_sum"] == settings.most_gradient_steps
    assert found.step == 1
    assert float(jnp.sqrt(trees.squared_norm(jax.tree.map(jnp.subtract, found.params.online, state.params.online)))) > 0


def test_it_plays_nothing_and_its_window_is_left_out_of_checkpoints(parts):
    learner = window_learner(parts)
    shapes = jax.eval_shape(learner.init, jax.random.key(0))
    assert shapes.self_play is None
    assert learner.volatile == ("replay",)
    assert learner.sharded == ("replay",)


def test_without_a_window_nothing_is_learned(parts):
    learner = window_learner(parts)
    state = jax.jit(learner.init)(jax.random.key(1))
    found, metrics = jax.jit(learner.update)(state)
    jax.tree.map(np.testing.assert_array_equal, found.params, state.params)
    assert metrics["trainer/gradient_steps_sum"] == 0


def test_another_window_compiles_nothing(parts):
    learner, samples = window_learner(parts), samples_of(parts)
    update, state = jax.jit(learner.update), jax.jit(learner.init)(jax.random.key(1))
    for number in (len(samples.is_full), 40):
        state, _ = update(sl.alphazero.window_of(state, jax.tree.map(lambda x, n=number: x[:n], samples)))
    assert update._cache_size() == 1


def test_its_first_parameters_are_those_of_the_learner_that_plays(parts):
    game, network, config, _ = parts
    one, other = sl.alphazero.make(game, network, config), window_learner(parts)
    states = [jax.jit(learner.init)(jax.random.key(3)) for learner in (one, other)]
    jax.tree.map(np.testing.assert_array_equal, states[0].params, states[1].params)


def test_more_samples_than_the_replay_keeps_are_refused(parts):
    learner, samples = window_learner(parts), samples_of(parts)
    state = jax.jit(learner.init)(jax.random.key(1))
    many = jax.tree.map(lambda x: np.repeat(x, 60, axis=0), samples)
    with pytest.raises(ConfigError, match="rows for"):
        sl.alphazero.window_of(state, many)
