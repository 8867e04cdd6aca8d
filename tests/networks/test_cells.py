"""The torso for worlds of cells: neighbours by hand, the stack of the board's torso, and the player's cell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import refused

import stoix_like as sl
from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.errors import ConfigError
from stoix_like.games import BoardLayout
from stoix_like.networks import build
from stoix_like.networks.board import BoardTorso
from stoix_like.networks.cells import CellsTorso, square_neighbors
from stoix_like.types import Observation

WIDTH, ROWS, COLUMNS = 8, 3, 4


def observed(player, seed=0):
    """Two equal worlds of random cells whose players stand at `player`, a cell each."""
    cells = jax.random.bernoulli(jax.random.key(seed), 0.4, (1, ROWS, COLUMNS, 3)).astype(jnp.float32)
    places = jax.nn.one_hot(jnp.array(player), ROWS * COLUMNS).reshape(-1, ROWS, COLUMNS)
    view = {
        "cells": jnp.tile(cells, (len(player), 1, 1, 1)),
        "player": places,
        "actions_left": jnp.full(len(player), 0.5),
    }
    return Observation(view, jnp.ones((len(player), 4), bool))


def test_neighbours_of_two_rows_of_three():
    expected = [[-1, 3, -1, 1], [-1, 4, 0, 2], [-1, 5, 1, -1], [0, -1, -1, 4], [1, -1, 3, 5], [2, -1, 4, -1]]
    np.testing.assert_array_equal(square_neighbors(2, 3), expected)


def test_it_is_the_boards_torso_with_the_features_of_the_players_cell(key):
    """With the same parameters, which have the same names."""
    observation, torso = observed([0, 7]), CellsTorso(WIDTH, 2)
    params = torso.init(key, observation)
    found = torso.apply(params, observation)
    view = observation.agent_view
    left = jnp.full((2, ROWS, COLUMNS, 1), 0.5)
    planes = jnp.concatenate([view["cells"], view["player"][..., None], left], axis=-1).reshape(2, -1, 5)
    board = BoardTorso(BoardLayout((ROWS, COLUMNS), "square", square_neighbors(ROWS, COLUMNS), ()), WIDTH, 2)
    whole = board.apply(params, Observation(planes, observation.action_mask))
    np.testing.assert_allclose(found[:, :-WIDTH], whole, rtol=1e-6)
    of_player = found[:, -WIDTH:]
    assert bool((jnp.abs(of_player[0] - of_player[1]) > 1e-4).any())
    nowhere = observation._replace(agent_view=view | {"player": jnp.zeros_like(view["player"])})
    np.testing.assert_array_equal(torso.apply(params, nowhere)[:, -WIDTH:], 0.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sokoban_reads_it_and_sudoku_has_no_player(dtype, key):
    env = sl.make_env("Sokoban-text-v0")
    config = sl.ppo_config(task_id="Sokoban-text-v0", hidden_dim=WIDTH, num_layers=1, compute_dtype=dtype)
    network = sl.make_network(env, config)
    _, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(key, 3))
    params = jax.jit(network.init)(key, timestep.observation)
    logits, value = jax.jit(network.actor_critic)(params, timestep.observation)
    assert (logits.shape, value.shape, logits.dtype) == ((3, 4), (3,), jnp.float32)
    assert bool((logits[~timestep.observation.action_mask] < -1e6).all())
    sudoku = sl.make_env("Sudoku-text-v0")
    _, timestep = jax.eval_shape(sudoku.reset, key)
    with refused(
        ConfigError,
        "architecture.observation_adapter: cells needs player in the observation, which has actions_left, cells, given",
    ):
        build.make(timestep.observation, sudoku.action_spec, ArchitectureConfig(), adapter="cells")
