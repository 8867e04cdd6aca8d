"""Gumbel search of two players against mctx's, which is the oracle: the same actions and visits for the same key."""

import functools

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest
from support import small_games
from support.marks import full

from stoix_like.envs.boards.connect_four import make_connect_four
from stoix_like.envs.boards.othello import make_othello
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.ops import trees
from stoix_like.ops.distributions import masked_logits
from stoix_like.search import gumbel
from stoix_like.search.gumbel import GameModel, GumbelConfig

GAMES = {"tic_tac_toe": make_tic_tac_toe, "connect_four": make_connect_four, "othello": make_othello}


def random_network(game, seed, sharpness):
    """A random hidden layer over what is observed, so that no two actions or positions are worth the same."""
    draw = np.random.default_rng(seed)
    observation = game.observe(game.init())
    size = observation.agent_view.size
    inner = jnp.asarray(draw.normal(size=(size, 32)) / np.sqrt(size), jnp.float32)
    outer = jnp.asarray(draw.normal(size=(32, game.num_actions + 1)), jnp.float32)

    def evaluate(_params, observation):
        flat = observation.agent_view.reshape(observation.action_mask.shape[0], -1).astype(jnp.float32)
        hidden = jnp.sin(7.0 * (flat @ inner) + 1.0) @ outer
        value = jnp.tanh(hidden[:, -1])
        return sharpness * hidden[:, :-1], jnp.stack([value, -value], axis=1)

    return evaluate


def searched_by_mctx(model, key, states, config):
    """What mctx finds: one number per node, the expected outcome of its mover. An edge after which another moves turns
    the sign, and one that ends the game has discount 0 and the outcome as its reward."""
    game = model.game

    def mover_of(states):
        return jax.vmap(game.player)(states)[:, None]

    def evaluate(states):
        observation = jax.vmap(game.observe)(states)
        logits, values = model.evaluate((), observation)
        value = jnp.where(jax.vmap(game.is_over)(states), 0.0, values[:, 0])
        return masked_logits(logits, observation.action_mask), value

    def recurrent(_params, _key, action, states):
        was_over = jax.vmap(game.is_over)(states)
        after = trees.where(was_over, states, jax.vmap(game.step)(states, action))
        is_over = jax.vmap(game.is_over)(after)
        outcome = jnp.take_along_axis(jax.vmap(game.outcome)(after), mover_of(states), axis=1)[:, 0]
        change = jnp.where(mover_of(states) == mover_of(after), 1.0, -1.0)[:, 0]
        logits, value = evaluate(after)
        reward, discount = jnp.where(is_over & ~was_over, outcome, 0.0), jnp.where(is_over, 0.0, change)
        return mctx.RecurrentFnOutput(reward=reward, discount=discount, prior_logits=logits, value=value), after

    logits, value = evaluate(states)
    transform = functools.partial(
        mctx.qtransform_completed_by_mix_value,
        value_scale=config.value_scale,
        maxvisit_init=config.maxvisit_init,
        rescale_values=config.rescale_values,
        epsilon=gumbel.LEAST_RANGE,
    )
    found = mctx.gumbel_muzero_policy(
        (),
        key,
        mctx.RootFnOutput(prior_logits=logits, value=value, embedding=states),
        recurrent,
        num_simulations=config.num_simulations,
        invalid_actions=~jax.vmap(game.legal_actions)(states),
        max_depth=config.max_depth,
        qtransform=transform,
        max_num_considered_actions=config.max_num_considered_actions,
        gumbel_scale=config.gumbel_scale,
    )
    summary = found.search_tree.summary()
    q_values = jnp.where(summary.visit_counts > 0, summary.qvalues, 0.0)
    return found.action, summary.visit_counts, found.action_weights, q_values


def positions(game, num_positions, seed):
    """[B, ...]: after 0 to all plies of random play, none of them over."""

    @jax.jit
    def play(key):
        def advance(carry, inputs):
            index, step_key = inputs
            states, stop = carry
            legal = jax.vmap(game.legal_actions)(states)
            action = jax.random.categorical(step_key, jnp.where(legal, 0.0, -jnp.inf))
            after = jax.vmap(game.step)(states, action)
            goes_on = (index < stop) & ~jax.vmap(game.is_over)(after)
            return (trees.where(goes_on, after, states), jnp.where(goes_on, stop, 0)), None

        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_positions, *x.shape)), game.init())
        stop = jax.random.randint(key, (num_positions,), 0, game.max_plies)
        plies = (jnp.arange(game.max_plies), jax.random.split(key, game.max_plies))
        return jax.lax.scan(advance, (states, stop), plies)[0][0]

    return play(jax.random.key(seed))


def assert_same(game, states, config, evaluate, seed=0):
    model = GameModel(game, evaluate)
    ours = jax.jit(lambda key: gumbel.search(model, (), key, states, config))(jax.random.key(seed))
    theirs = jax.jit(lambda key: searched_by_mctx(model, key, states, config))(jax.random.key(seed))
    action, visits, weights, q_values = jax.device_get(theirs)
    np.testing.assert_array_equal(ours.visits, visits)
    np.testing.assert_array_equal(ours.action, action)
    np.testing.assert_allclose(ours.q_values, q_values, atol=2e-6)  # a sum of 64 floats against a running mean
    np.testing.assert_allclose(ours.action_weights, weights, atol=2e-5)
    return ours


CASES = [
    ("connect_four", GumbelConfig(16), 1.0),
    full("connect_four", GumbelConfig(16, rescale_values=True), 0.3),
    full("connect_four", GumbelConfig(64, rescale_values=True), 1.0),
    full("tic_tac_toe", GumbelConfig(32, max_num_considered_actions=4, gumbel_scale=0.0), 1.0),
    full("tic_tac_toe", GumbelConfig(40, max_depth=2), 0.5),
    full("tic_tac_toe", GumbelConfig(5, value_scale=0.3, maxvisit_init=10.0), 0.5),
    full("othello", GumbelConfig(16, max_num_considered_actions=8, rescale_values=True), 0.3),
]


@pytest.mark.parametrize(("name", "config", "sharpness"), CASES)
def test_actions_visits_and_values_are_those_of_mctx(name, config, sharpness, monkeypatch):
    """Two lines that lead to the same position are worth the same but for rounding. Rescaled values of a node below
    which there are only such lines would be that rounding divided by 1e-8; here by 1e-3, in both."""
    monkeypatch.setattr(gumbel, "LEAST_RANGE", 1e-3)
    game = GAMES[name]()
    assert_same(game, positions(game, 128, seed=1), config, random_network(game, 2, sharpness))


@pytest.mark.parametrize("rescale_values", [full(False), True])
def test_two_moves_in_a_row_keep_the_sign_as_in_mctx(rescale_values, monkeypatch):
    monkeypatch.setattr(gumbel, "LEAST_RANGE", 1e-3)
    table, game, roots = small_games.two_players()
    relative = np.random.default_rng(0).uniform(-1, 1, table.player.shape).astype(np.float32)
    logits = jnp.asarray(np.random.default_rng(1).normal(size=table.legal.shape), jnp.float32)

    def evaluate(_params, observation):
        value = jnp.asarray(relative)[observation.agent_view[:, 0]]
        return logits[observation.agent_view[:, 0]], jnp.stack([value, -value], axis=1)

    assert_same(game, jnp.asarray(roots, jnp.int32), GumbelConfig(32, rescale_values=rescale_values), evaluate)
