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
from stoix_like.config.checks.access import replace_leaves
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


@pytest.fixture(scope="module")
def window(parts):
    """(the learner of a window, its functions compiled, its first state, the samples of the playing learner's ring)."""
    game, network, config, playing = parts
    learner = sl.alphazero.make(game, network, replace_leaves(config, {"self_play": False}))
    init, replay = jax.jit(learner.init), playing.replay
    shards = [jax.tree.map(lambda x, s=s: x[s, : replay.size[s]], replay.samples) for s in range(len(replay.size))]
    samples = jax.tree.map(lambda *rows: np.concatenate(rows), *shards)
    return learner, jax.jit(learner.update), init(jax.random.key(1)), samples


def test_an_update_makes_the_gradient_steps_of_learn_on_the_window(parts, window):
    """And another window compiles nothing."""
    (game, network, config, _), (_, update, first, samples) = parts, window
    state = sl.alphazero.window_of(first, samples)
    found, metrics = update(state)
    settings = sl.alphazero.settings_of(config)
    ring = make_ring(
        capacity=config.alphazero.replay_buffer_size, batch_size=settings.batch_size, num_shards=settings.num_shards
    )
    setup = LearningSetup(game, network, ring, settings)
    budget = LearningBudget(*(jnp.float32(n) for n in (settings.most_gradient_steps * settings.batch_size, 0, 0)))
    before = Learning(state.params, state.optimizer, budget)
    learn = jax.jit(functools.partial(learning.learn, setup))
    after, _ = learn(state.hyper, jnp.float32(1.0), before, state.replay, state.step, role_key(state.key, "replay"))
    jax.tree.map(np.testing.assert_array_equal, found.params, after.params)
    assert metrics["trainer/gradient_steps_sum"] == settings.most_gradient_steps
    assert found.step == 1
    assert float(jnp.sqrt(trees.squared_norm(jax.tree.map(jnp.subtract, found.params.online, state.params.online)))) > 0
    update(sl.alphazero.window_of(found, jax.tree.map(lambda x: x[:40], samples)))
    assert update._cache_size() == 1


def test_without_a_window_nothing_is_learned_and_larger_ones_than_the_replay_are_refused(window):
    _, update, state, samples = window
    found, metrics = update(state)
    jax.tree.map(np.testing.assert_array_equal, found.params, state.params)
    assert metrics["trainer/gradient_steps_sum"] == 0
    with pytest.raises(ConfigError, match="rows for"):
        sl.alphazero.window_of(state, jax.tree.map(lambda x: np.repeat(x, 60, axis=0), samples))


def test_it_plays_nothing_keeps_its_window_out_of_checkpoints_and_begins_as_the_learner_that_plays(parts, window):
    (game, network, config, _), (learner, _, state, _) = parts, window
    assert state.self_play is None
    assert learner.volatile == learner.sharded == ("replay",)
    playing = jax.jit(sl.alphazero.make(game, network, config).init)(jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, playing.params, state.params)
