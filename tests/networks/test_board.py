"""Torsos for boards: line features against loops in Python, neighbours against a convolution, heads, adapters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.envs.boards.connect_four import make_connect_four
from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.errors import ConfigError
from stoix_like.networks import build
from stoix_like.networks.board import line_features
from stoix_like.networks.heads import OutcomeHead
from stoix_like.networks.neighbors import NeighborLayer, neighbor_product
from stoix_like.types import ActionSpec, Observation

GAMES = {"tic_tac_toe": make_tic_tac_toe, "connect_four": make_connect_four}


def random_planes(game, batch, seed=0):
    """Planes [B, C, 2] of positions after random plies."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(batch):
        state = game.init()
        for _ in range(random.integers(0, game.max_plies)):
            moved = game.step(state, random.choice(np.flatnonzero(game.legal_actions(state))))
            if game.is_over(moved):
                break
            state = moved
        rows.append(np.asarray(game.observe(state).agent_view))
    return np.stack(rows)


def features_by_loops(lines, planes):
    """What `line_features` says of one position, from its docstring."""
    own, other = planes[:, 0], planes[:, 1]
    cells, below = lines.cells.tolist(), lines.below
    length = len(cells[0])
    now = [
        not own[c] and not other[c] and (below is None or below[c] < 0 or own[below[c]] or other[below[c]])
        for c in range(len(own))
    ]
    found = [*planes.reshape(-1), *now]
    for mine, theirs in ((own, other), (other, own)):
        counts = [0 if any(theirs[c] for c in line) else sum(int(mine[c]) for c in line) for line in cells]
        for number in range(1, length):
            found += [count == number for count in counts]
        completes = [False] * len(own)
        for line, count in zip(cells, counts, strict=True):
            if count == length - 1:
                completes[next(c for c in line if not mine[c])] = True
        found += [*completes, *(a and b for a, b in zip(completes, now, strict=True))]
    return np.array(found, np.float32)


@pytest.mark.parametrize("name", GAMES)
def test_line_features_are_those_of_loops(name):
    game = GAMES[name]()
    planes = random_planes(game, 8)
    found = jax.jit(lambda p: line_features(game.layout.lines, p))(planes)
    for row, position in zip(np.asarray(found), planes, strict=True):
        np.testing.assert_array_equal(row, features_by_loops(game.layout.lines, position))


def test_the_neighbour_layer_is_a_convolution_on_a_square_board(key):
    game = make_connect_four()
    x = jax.random.normal(key, (42, 2, 3))
    layer = NeighborLayer(game.layout.neighbors, 5)
    params = layer.init(key, x)
    kernel = params["params"]["Dense_0"]["Dense_0"]["kernel"].reshape(9, 3, 5)  # the cell, then eight directions
    order = [1, 2, 3, 4, 0, 5, 6, 7, 8]  # row by row, the centre fifth
    shaped = kernel[np.array(order)].reshape(3, 3, 3, 5)
    grid = jnp.swapaxes(x, 0, 1).reshape(2, 6, 7, 3)
    wanted = jax.lax.conv_general_dilated(grid, shaped, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    np.testing.assert_allclose(layer.apply(params, x), jnp.swapaxes(wanted.reshape(2, 42, 5), 0, 1), atol=1e-5)


SHARED_NEIGHBOR = np.array([[2, -1], [2, 0], [-1, 1]])  # cell 2 is that of cells 0 and 1


@pytest.mark.parametrize("name", ["connect_four", "hex_11x11", "hex8", None])
def test_the_gradient_of_the_product_over_neighbours_is_that_of_a_plain_one(name, key):
    """Against XLA's own gradient of gathered neighbours, also of a board that has no table of the way back."""
    neighbors = SHARED_NEIGHBOR if name is None else make_game(name).layout.neighbors
    table = np.concatenate([np.arange(len(neighbors))[:, None], neighbors], axis=1)
    keys = jax.random.split(key, 3)
    cells = jax.random.normal(keys[0], (len(table), 2, 3))
    kernel = jax.random.normal(keys[1], (table.shape[1] * 3, 4))
    weights = jax.random.normal(keys[2], (len(table), 2, 4))

    def plain(cells, kernel):
        padded = jnp.concatenate([cells, jnp.zeros((1, 2, 3))])
        gathered = jnp.swapaxes(padded[table], 1, 2).reshape(len(table), 2, -1)
        return gathered @ kernel

    def total(product):
        return lambda cells, kernel: jnp.sum(jnp.sin(product(cells, kernel)) * weights)

    found = jax.grad(total(functools.partial(neighbor_product, table)), (0, 1))(cells, kernel)
    wanted = jax.grad(total(plain), (0, 1))(cells, kernel)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def network_of(game, adapter, *, num_players=2, **changes):
    config = ArchitectureConfig(**({"hidden_dim": 8, "num_layers": 2, "shared_torso": True} | changes))
    observation = jax.eval_shape(lambda: game.observe(game.init()))
    return build.make(
        observation,
        ActionSpec(game.num_actions),
        config,
        adapter=adapter,
        layout=game.layout,
        num_players=num_players,
    )


@pytest.mark.parametrize(
    ("adapter", "shared_torso"), [("lines", True), ("board", False), full("lines", False), full("board", True)]
)
def test_two_players_have_one_value_and_its_negative(adapter, shared_torso, key):
    game = make_connect_four()
    network = network_of(game, adapter, shared_torso=shared_torso)
    planes = jnp.asarray(random_planes(game, 4))
    mask = jnp.ones((4, 7), bool).at[:, 3].set(False)
    params = jax.jit(network.init)(key, Observation(planes, mask))
    logits, values = jax.jit(network.actor_critic)(params, Observation(planes, mask))
    assert logits.shape == (4, 7)
    assert values.shape == (4, 2)
    assert (logits[:, 3] < -1e30).all()
    np.testing.assert_array_equal(values[:, 0], -values[:, 1])
    assert (jnp.abs(values) < 1.0).all()
    assert len(np.unique(np.asarray(values[:, 0]))) > 1  # it reads its input


@pytest.mark.full
def test_of_three_players_values_sum_to_zero_and_without_players_it_is_one(key):
    game = make_tic_tac_toe()
    observation = jax.tree.map(lambda x: x[None], game.observe(game.init()))
    network = network_of(game, "board", num_players=3)
    values = jax.jit(network.critic)(jax.jit(network.init)(key, observation), observation)
    assert values.shape == (1, 3)
    np.testing.assert_allclose(values.sum(axis=1), 0.0, atol=1e-6)
    head = OutcomeHead(3)
    params = head.init(key, jnp.zeros((1, 8)))
    sure = jax.tree.map(lambda x: 1e3 * x + 10.0, params)  # every tanh at its end
    for shift in ([1.0, -1.0, -1.0], [1.0, 1.0, -1.0]):
        last = sure["params"]["Dense_0"]["Dense_0"]
        last |= {"kernel": jnp.zeros_like(last["kernel"]), "bias": 1e3 * jnp.array(shift)}
        assert jnp.abs(head.apply(sure, jnp.ones((1, 8)))).max() <= 1.0  # none is worth more than a win
    network = network_of(game, "board", num_players=None)  # as PPO's
    assert jax.eval_shape(lambda: network.critic(network.init(key, observation), observation)).shape == (1,)


def test_adapters_that_do_not_fit_are_refused():
    game = make_tic_tac_toe()
    observation = jax.eval_shape(lambda: game.observe(game.init()))
    with pytest.raises(ConfigError, match="board needs a board game, and this task is none"):
        build.make(observation, ActionSpec(9), ArchitectureConfig(), adapter="board")
    layout = game.layout._replace(lines=None)
    with pytest.raises(ConfigError, match="lines needs a game that is won by lines"):
        build.make(observation, ActionSpec(9), ArchitectureConfig(), adapter="lines", layout=layout)
