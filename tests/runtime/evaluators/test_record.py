"""Recorded episodes of board games, position by position, and drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from support.piles import make_piles

from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.boards.versus import versus
from stoix_like.runtime.evaluators.record import board_states, record_episode
from stoix_like.runtime.figures.gif import save_gif
from stoix_like.search.players import random_player

NO_OPENING = np.zeros((1, 0), np.int32)


def recorded(game, opponent, action, seed=0):
    """(the environment, an episode, its positions)."""
    env = versus(game, opponent, NO_OPENING)
    policy = lambda _params, _state, observation, key, _deterministic: action(observation, key)
    episode = record_episode(env, policy, None, jax.random.key(seed), deterministic=False)
    return env, episode, board_states(env, episode)


@pytest.mark.parametrize("seat", [0, 1])
def test_a_position_is_recorded_once_whoever_moves_next(seat):
    """The first player moves at plies 0, 3 and 4, the second one at 1, 2 and 5."""
    one = lambda _params, states, _key: jnp.ones(states.ply.shape, jnp.int32)
    two = lambda observation, _key: jnp.full(observation.action_mask.shape[:1], 2)
    _, episode, states = next(
        found
        for found in (recorded(make_piles(2, [0, 1, 1, 0, 0, 1]), one, two, seed) for seed in range(9))
        if found[1].states[0].seat == seat
    )
    assert episode.is_whole
    plies = [int(state.ply) for state in states]
    assert plies == [[0, 1, 3, 4, 5, 6], [1, 2, 3, 5, 6]][seat]


@pytest.mark.full
def test_a_whole_game_of_ringrift_is_drawn(tmp_path):
    game = make_game("hex8")
    some = lambda observation, key: jax.random.categorical(key, jnp.where(observation.action_mask, 0.0, -jnp.inf))
    env, episode, states = recorded(game, random_player(game), some)
    assert episode.is_whole
    seat, last = int(episode.states[0].seat), states[-1]
    assert bool(jax.jit(game.is_over)(last))
    assert episode.episode_return == jax.jit(game.outcome)(last)[seat] == (1.0 if last.winner == seat else -1.0)
    path = save_gif(env, states, tmp_path / "game")
    with Image.open(path) as image:
        durations = []
        for frame in range(image.n_frames):
            image.seek(frame)
            durations.append(image.info["duration"])
    assert len(durations) > 30
    assert sum(durations) == (len(states) - 1) * 450 + 2500  # frames that look the same are one, shown longer
