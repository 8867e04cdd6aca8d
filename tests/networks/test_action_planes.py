"""The network of policy planes: what it sees and scores of each action, against loops over the actions."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.envs.boards.registry import make_game
from stoix_like.errors import ConfigError
from stoix_like.networks import action_planes as module
from stoix_like.networks import build
from stoix_like.networks.action_planes import ActionPlanesHead, BoardFeatures, legal_planes, num_planes
from stoix_like.types import ActionSpec, Observation

NAMES = ("hex8", "square8:4", "square8_swap")


def features_of(game, batch=3, width=8, seed=0):
    generator = np.random.default_rng(seed)
    cells = generator.normal(size=(batch, game.layout.num_cells, width)).astype(np.float32)
    summary = generator.normal(size=(batch, 5)).astype(np.float32)
    return BoardFeatures(jnp.asarray(cells), jnp.asarray(summary))


@pytest.mark.parametrize("name", NAMES)
def test_actions_of_a_cell_differ_by_plane_and_those_without_a_cell_by_number(name):
    game = make_game(name)
    places = game.layout.action_places
    keys = list(zip(places.cells.tolist(), places.planes.tolist(), strict=True))
    assert len(set(keys)) == len(keys) == game.num_actions
    names, coordinates = game.layout.action_names, game.layout.places
    kinds = {}
    for action, (cell, plane) in enumerate(keys):
        moved = coordinates[places.landings[action]] - coordinates[cell] if places.landings[action] >= 0 else ()
        kind = re.sub(r"\b[a-i][1-9]\b", "", names[action]), tuple(moved)  # "place 2 ", or " to " and how far
        if cell >= 0:
            kinds.setdefault(plane, set()).add(kind)
    assert all(len(found) == 1 for found in kinds.values())
    assert len(set.union(*kinds.values())) == len(kinds) == num_planes(places)
    assert sorted(names[action] for action in np.flatnonzero(places.cells < 0)) in (["skip"], ["skip", "swap"])


@pytest.mark.parametrize("name", NAMES)
def test_the_score_of_an_action_is_of_its_cell_its_plane_and_its_landing(name):
    game = make_game(name)
    places, features = game.layout.action_places, features_of(game)
    head = ActionPlanesHead(places)
    params = head.init(jax.random.key(0), features)
    weights = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    logits = head.apply(params, features)

    def dense(part, rows):
        layer = weights[part]["Dense_0"]
        return np.asarray(rows, np.float64) @ layer["kernel"] + layer["bias"]

    by_plane, of_all = dense("by_plane", features.cells), dense("of_all", features.summary)
    starts, landings = dense("starts", features.cells), dense("landings", features.cells)
    wanted = np.zeros(logits.shape)
    for action, (cell, plane, landing) in enumerate(zip(*places, strict=True)):
        wanted[:, action] = by_plane[:, cell, plane] if cell >= 0 else of_all[:, plane]
        if landing >= 0:
            wanted[:, action] += (starts[:, cell] * landings[:, landing]).sum(axis=1) / module.PAIR_WIDTH**0.5
    np.testing.assert_allclose(logits, wanted, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_legal_actions_are_seen_from_their_cells(name):
    game = make_game(name)
    places, num_cells = game.layout.action_places, game.layout.num_cells
    legal = np.random.default_rng(0).random((4, game.num_actions)) < 0.3
    wanted = np.zeros((4, num_cells, num_planes(places)), bool)
    for action, (cell, plane) in enumerate(zip(places.cells, places.planes, strict=True)):
        if cell >= 0:
            wanted[:, cell, plane] = legal[:, action]
    np.testing.assert_array_equal(legal_planes(places, num_cells, jnp.asarray(legal)), wanted)


def test_gradients_are_those_of_the_plain_gather():
    index = np.array([3, 0, 5, 1, 5])  # 5 is none of five scores
    scores = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32))
    inverse = np.array([1, 3, 5, 0, 5])  # 5 is none of five actions

    def ours(scores):
        return jnp.sum(jnp.sin(module._taken(scores, index, inverse)))

    def plain(scores):
        return jnp.sum(jnp.sin(jnp.pad(scores, ((0, 0), (0, 1)))[:, index]))

    np.testing.assert_array_equal(ours(scores), plain(scores))
    np.testing.assert_array_equal(jax.grad(ours)(scores), jax.grad(plain)(scores))


def test_the_network_reads_shared_planes_once_and_masks_illegal_actions():
    game = make_game("hex8")
    config = ArchitectureConfig(hidden_dim=8, num_layers=1, shared_torso=True)
    seen = jax.eval_shape(lambda: game.observe(game.init()))
    network = build.make(
        seen, ActionSpec(game.num_actions), config, adapter="action_planes", layout=game.layout, num_players=2
    )
    generator = np.random.default_rng(0)
    num_shared = game.layout.num_shared_planes
    planes = generator.random((2, *seen.agent_view.shape)) < 0.5
    planes[..., -num_shared:] = planes[:, :1, -num_shared:]
    legal = generator.random((2, game.num_actions)) < 0.1
    params = network.init(jax.random.key(0), Observation(jnp.asarray(planes), jnp.asarray(legal)))
    logits, values = network.actor_critic(params, Observation(jnp.asarray(planes), jnp.asarray(legal)))
    assert (np.asarray(logits)[~legal] < -1e30).all()
    assert (np.abs(np.asarray(logits)[legal]) < 10).all()
    np.testing.assert_allclose(values.sum(axis=1), 0.0, atol=1e-6)
    other = planes.copy()
    other[:, 0, -1] ^= True  # of the first cell, where it is read
    changed, _ = network.actor_critic(params, Observation(jnp.asarray(other), jnp.asarray(legal)))
    assert (np.asarray(changed)[legal] != np.asarray(logits)[legal]).all()


def test_other_boards_have_no_places_of_actions():
    game = make_game("tic_tac_toe")
    seen = jax.eval_shape(lambda: game.observe(game.init()))
    with pytest.raises(ConfigError, match="action_planes needs a game that has places of actions"):
        build.make(seen, ActionSpec(9), ArchitectureConfig(), adapter="action_planes", layout=game.layout)
