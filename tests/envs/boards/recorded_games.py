"""Random games of every board game, played by one compiled program and recorded ply by ply."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.boards.registry import make_game

NUM_GAMES = 8
NAMES = ("tic_tac_toe", "connect_four", "othello", "hex_11x11", "go_9x9")
#: How much likelier than another action the last one is: the swap of hex is tried often, the pass of go seldom.
LAST_WEIGHT = {"hex_11x11": 60.0, "go_9x9": 0.1}


class Ply(NamedTuple):
    """What the functions of a game say of one state, and the action that was taken there."""

    planes: np.ndarray
    mask: np.ndarray
    legal: np.ndarray
    player: np.ndarray
    outcome: np.ndarray
    is_over: np.ndarray
    cells: np.ndarray
    preference: np.ndarray
    action: np.ndarray


def look(game, state, action):
    planes, mask = game.observe(state)
    seen = (game.legal_actions(state), game.player(state), game.outcome(state), game.is_over(state), game.cells(state))
    return Ply(planes, mask, *seen, game.preference(state), action)


def random_action(game, state, key):
    weights = jnp.ones((game.num_actions,)).at[-1].set(LAST_WEIGHT.get(game.name, 1.0))
    return jax.random.categorical(key, jnp.where(game.legal_actions(state), jnp.log(weights), -jnp.inf))


@functools.cache
def game_of(name):
    return make_game(name)


@functools.cache
def play_function(name):
    """Jitted: (states [N, ...], keys [T, N], actions [T, N]) -> every ply [T, N, ...].

    An action of -1 is drawn at random. A game that is over stays as it ended.
    """
    game = game_of(name)

    def ply(state, key, action):
        action = jnp.where(action < 0, random_action(game, state, key), action)
        after = game.step(state, action)
        is_over = game.is_over(state)
        kept = jax.tree.map(lambda old, new: jnp.where(is_over, old, new), state, after)
        return kept, look(game, state, action)

    def play(states, keys, actions):
        return jax.lax.scan(lambda state, given: jax.vmap(ply)(state, *given), states, (keys, actions))[1]

    return jax.jit(play)


def first_states(game, num_games=NUM_GAMES):
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_games, *leaf.shape)), jax.jit(game.init)())


@functools.cache
def recorded(name, num_games=NUM_GAMES, seed=0):
    """Random games, [T + 1, N, ...]: the states before each action, and those in which the games ended."""
    game = game_of(name)
    keys = jax.random.split(jax.random.key(seed), (game.max_plies + 1, num_games))
    actions = jnp.full(keys.shape, -1)
    return jax.tree.map(np.asarray, play_function(name)(first_states(game, num_games), keys, actions))


def replayed(name, actions, states=None):
    """What recorded actions [T + 1, N] make of other first states, [T + 1, N, ...]."""
    keys = jax.random.split(jax.random.key(0), actions.shape)
    states = first_states(game_of(name), actions.shape[1]) if states is None else states
    return jax.tree.map(np.asarray, play_function(name)(states, keys, jnp.asarray(actions, jnp.int32)))


def played(name, actions):
    """One game of the given actions, [num_actions + 1, ...]: the states before each, and the last."""
    padded = np.zeros((game_of(name).max_plies + 1, NUM_GAMES), np.int32)  # [T + 1, N], as `recorded` has compiled
    padded[: len(actions)] = np.asarray(actions)[:, None]
    return jax.tree.map(lambda leaf: leaf[: len(actions) + 1, 0], replayed(name, padded))
