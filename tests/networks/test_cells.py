"""The network for worlds of cells: surroundings and turns by hand, and a world turned around."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import refused

import stoix_like as sl
from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.envs.text.grids import ROOM_MOVES
from stoix_like.errors import ConfigError
from stoix_like.networks import build
from stoix_like.networks.cells import surroundings, turned_cells
from stoix_like.types import ActionSpec, Observation

ROWS, COLUMNS = 3, 4
ADAPTER = "architecture.observation_adapter: cells "


def observed(cells, player, left=0.5):
    """A batch of one world."""
    view = {"cells": jnp.asarray(cells)[None], "player": jnp.asarray(player)[None], "actions_left": jnp.array([left])}
    return Observation(view, jnp.ones((1, 4), bool))


def random_world(seed):
    """Random cells [3, 4, 3] and the player on one of them."""
    cells_key, player_key = jax.random.split(jax.random.key(seed))
    cells = jax.random.bernoulli(cells_key, 0.4, (ROWS, COLUMNS, 3)).astype(jnp.float32)
    place = jax.random.randint(player_key, (), 0, ROWS * COLUMNS)
    return cells, jax.nn.one_hot(place, ROWS * COLUMNS).reshape(ROWS, COLUMNS)


def network_for(observation, hidden_dim=16):
    """The network, and parameters whose heads are not small."""
    one = jax.tree.map(lambda x: x[0], observation)
    network = build.make(one, ActionSpec(4), ArchitectureConfig(hidden_dim, shared_torso=True), adapter="cells")
    params = jax.jit(network.init)(jax.random.key(1), observation)
    return network, jax.tree.map(lambda x: x + 0.1 * jax.random.normal(jax.random.key(x.size), x.shape), params)


def test_surroundings_of_two_cells_by_hand():
    """Cells 1 2 3 / 4 5 6: of 5 by 5 around the player, who stands on 2 and on 4."""
    cells = jnp.array([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
    on_two, on_four = jnp.zeros((2, 2, 3)).at[0, 0, 1].set(1.0).at[1, 1, 0].set(1.0)
    found = surroundings(jnp.stack([cells, cells]), jnp.stack([on_two, on_four])).reshape(2, 5, 5)
    empty = [0, 0, 0, 0, 0]
    np.testing.assert_array_equal(found[0], [empty, empty, [0, 1, 2, 3, 0], [0, 4, 5, 6, 0], empty])
    np.testing.assert_array_equal(found[1], [empty, [0, 0, 1, 2, 3], [0, 0, 4, 5, 6], empty, empty])


def test_what_lies_ahead_is_at_the_top():
    """Of 3 by 3 cells: above, below, left and right of the middle are cells 1, 7, 3 and 5."""
    turned = turned_cells(3)
    np.testing.assert_array_equal(turned[:, 1], [1, 7, 3, 5])
    np.testing.assert_array_equal(turned[:, 1], 4 + ROOM_MOVES @ [3, 1])  # the order of Sokoban's actions
    np.testing.assert_array_equal(turned[:, 5], [5, 3, 1, 7])  # and what is to the right of that
    assert (np.sort(turned, axis=1) == np.arange(9)).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_world_turned_around_has_turned_logits_and_the_same_value(seed):
    cells, player = random_world(seed)
    network, params = network_for(observed(cells, player))
    logits, value = network.actor_critic(params, observed(cells, player))
    turned, turned_value = network.actor_critic(params, observed(jnp.rot90(cells), jnp.rot90(player)))
    up, down, left, right = logits[0]
    np.testing.assert_allclose(turned[0], [right, left, up, down], atol=1e-5)  # counter-clockwise: right becomes up
    np.testing.assert_allclose(turned_value, value, atol=1e-5)
    assert float(logits.std()) > 0.01


def test_a_mirrored_world_is_another_one():
    """Left and right of the way ahead are not the same to the MLP."""
    cells, player = random_world(0)
    network, params = network_for(observed(cells, player))
    value = network.critic(params, observed(cells, player))
    assert abs(float((network.critic(params, observed(cells[:, ::-1], player[:, ::-1])) - value)[0])) > 1e-3


def test_border_and_actions_left_are_seen():
    cells, player = jnp.zeros((ROWS, COLUMNS, 3)), jnp.zeros((ROWS, COLUMNS)).at[1, 1].set(1.0)
    network, params = network_for(observed(cells, player))
    seen = [
        network.critic(params, observation)
        for observation in (
            observed(cells, player),
            observed(cells, player, 0.25),
            observed(cells, jnp.roll(player, 1, axis=0)),
        )
    ]
    assert min(abs(float((a - b)[0])) for a, b in ((seen[0], seen[1]), (seen[0], seen[2]))) > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sokoban_reads_it(dtype, key):
    env = sl.make_env("Sokoban-text-v0")
    config = sl.ppo_config(task_id="Sokoban-text-v0", hidden_dim=8, num_layers=1, compute_dtype=dtype)
    network = sl.make_network(env, config)
    _, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(key, 3))
    params = jax.jit(network.init)(key, timestep.observation)
    logits, value = jax.jit(network.actor_critic)(params, timestep.observation)
    assert (logits.shape, value.shape, logits.dtype) == ((3, 4), (3,), jnp.float32)
    assert bool((logits[~timestep.observation.action_mask] < -1e6).all())


def test_worlds_without_player_or_with_other_actions_are_refused(key):
    sudoku = sl.make_env("Sudoku-text-v0")
    _, timestep = jax.eval_shape(sudoku.reset, key)
    with refused(ConfigError, ADAPTER + "needs player in the observation, which has actions_left, cells, given"):
        build.make(timestep.observation, sudoku.action_spec, ArchitectureConfig(), adapter="cells")
    one = jax.tree.map(lambda x: x[0], observed(*random_world(0)))
    with refused(ConfigError, ADAPTER + "scores 4 directions, but the action mask has shape (5,)"):
        build.make(one, ActionSpec(5), ArchitectureConfig(), adapter="cells")
