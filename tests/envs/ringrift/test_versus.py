"""RingRift against a fixed player as an environment: whole episodes, and what they are worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs.ringrift.test_game import game_of

from stoix_like.envs.boards.versus import versus
from stoix_like.envs.ringrift.state import NOT_OVER
from stoix_like.search.players import random_player
from stoix_like.types import FIRST, LAST, MID

NUM_EPISODES = 4


@pytest.mark.full
def test_whole_episodes_are_worth_their_outcome():
    """Two seats that move at random, several decisions in a row; who wins is read from the state."""
    game = game_of("hex8")
    opening = [game.layout.action_names.index(name) for name in ("place 2 c3", "c3 to e3")]
    env = versus(game, random_player(game), np.array([opening], np.int32))
    keys = jax.random.split(jax.random.key(2), NUM_EPISODES)  # two in each seat
    state, timestep = jax.jit(jax.vmap(env.reset))(keys)
    assert (timestep.step_type == FIRST).all()
    assert (np.asarray(state.game.player) == state.seat).all()
    step = jax.jit(jax.vmap(env.step))
    generator, is_over, rewards, decisions = np.random.default_rng(0), np.zeros(NUM_EPISODES, bool), 0.0, 0
    while not is_over.all():
        order = np.where(timestep.observation.action_mask, generator.random((NUM_EPISODES, game.num_actions)), -1.0)
        after, timestep = step(state, jnp.asarray(order.argmax(axis=1), jnp.int32))
        decisions, rewards = decisions + 1, rewards + np.where(is_over, 0.0, timestep.reward)
        assert_goes_on(state.seat, after, timestep)
        state, is_over = after, np.asarray(timestep.step_type == LAST)
    assert set(np.asarray(state.seat).tolist()) == {0, 1}
    np.testing.assert_array_equal(rewards, np.where(state.game.winner == state.seat, 1.0, -1.0))
    assert 20 < decisions < env.time_limit
    metrics = jax.vmap(env.episode_metrics)(state, timestep)
    np.testing.assert_array_equal(metrics["win"], state.game.winner == state.seat)
    np.testing.assert_array_equal(metrics["first_player"], state.game.winner == 0)
    assert not metrics["draw"].any()


def assert_goes_on(seat, state, timestep):
    """The seat keeps; until the end it is our turn, and nothing is earned."""
    is_over = np.asarray(state.game.ending) != NOT_OVER
    np.testing.assert_array_equal(state.seat, seat)
    np.testing.assert_array_equal(timestep.step_type, np.where(is_over, LAST, MID))
    np.testing.assert_array_equal(timestep.discount, np.where(is_over, 0.0, 1.0))
    assert (np.asarray(state.game.player) == seat)[~is_over].all()
    assert not np.asarray(timestep.reward)[~is_over].any()
    assert timestep.observation.action_mask.any(axis=1).all()
