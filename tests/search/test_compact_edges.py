"""Trees whose edges are the legal actions alone: they find what trees with an edge for every action find."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.envs.boards.othello import make_othello
from stoix_like.ops.masked import places
from stoix_like.search import gumbel, mcts
from stoix_like.search.gumbel import GameModel, GumbelConfig

WHOLE = make_othello()
COMPACT = WHOLE._replace(max_legal=40)  # of 65; at most 33 are legal


def network(_, observation):
    """Some logits and values that differ between positions."""
    flat = observation.agent_view.reshape(len(observation.agent_view), -1).astype(jnp.float32)
    numbers = flat @ jnp.sin(jnp.arange(flat.shape[1] * 66, dtype=jnp.float32)).reshape(-1, 66)
    value = jnp.tanh(numbers[:, 65])
    return numbers[:, :65], jnp.stack([value, -value], axis=1)


@functools.cache
def positions(num_plies=30, count=16):
    def ply(states, number):
        seeds = jax.random.bits(jax.random.fold_in(jax.random.key(1), number), (count,))
        return jax.vmap(WHOLE.step)(states, mcts.random_actions(WHOLE, seeds, states)), None

    first = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), WHOLE.init())
    return jax.lax.scan(ply, first, jnp.arange(num_plies))[0]


@pytest.mark.parametrize("config", [GumbelConfig(24, gumbel_scale=0.0), GumbelConfig(24, 4, 0.0, rescale_values=True)])
def test_a_gumbel_search_finds_the_same(config):
    def search(game, key, states):
        return gumbel.search_lines(GameModel(game, network), None, key, states, config, 4)

    found = [jax.jit(functools.partial(search, game))(jax.random.key(0), positions()) for game in (WHOLE, COMPACT)]
    (whole, lines), (compact, compact_lines) = jax.device_get(found)
    for name in ("action", "visits", "depth", "network_values"):
        np.testing.assert_array_equal(getattr(compact, name), getattr(whole, name))
    for name in ("action_weights", "values", "q_values"):
        np.testing.assert_allclose(getattr(compact, name), getattr(whole, name), atol=5e-5)
    np.testing.assert_array_equal(compact.prior_logits, whole.prior_logits)
    np.testing.assert_array_equal(compact_lines, lines)


def test_a_plain_search_finds_the_same():
    """Ties are broken by the numbers of actions, not by their edges."""

    def search(game, key, states):
        return mcts.search(game, key, states, 24)

    found = [jax.jit(functools.partial(search, game))(jax.random.key(0), positions()) for game in (WHOLE, COMPACT)]
    jax.tree.map(np.testing.assert_array_equal, *jax.device_get(found))


def test_what_has_no_edge_is_not_played():
    few = WHOLE._replace(max_legal=2)
    legal = jax.vmap(WHOLE.legal_actions)(positions())
    first = np.asarray(jax.vmap(functools.partial(places, count=2))(legal))
    for found in (
        gumbel.search(GameModel(few, network), None, jax.random.key(0), positions(), GumbelConfig(8)),
        mcts.search(few, jax.random.key(0), positions(), 8),
    ):
        assert (np.asarray(found.action)[:, None] == first).any(axis=1).all()
        assert np.asarray(jnp.sum(found.visits, axis=1)).tolist() == [8] * len(first)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 200])
def test_places_are_those_of_numpy(size):
    mask = np.random.default_rng(size).random((50, size)) < np.linspace(0, 1, 50)[:, None]
    found = np.asarray(jax.vmap(functools.partial(places, count=40))(jnp.asarray(mask)))
    for row, of_row in zip(mask, found, strict=True):
        wanted = np.flatnonzero(row)[:40]
        assert of_row.tolist() == wanted.tolist() + [-1] * (40 - len(wanted))
