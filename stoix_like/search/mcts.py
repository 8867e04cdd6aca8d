"""Plain Monte Carlo tree search over board games: no network, one random playout for each new position.

It is the yardstick that needs no training, `mcts-n` in rankings: PUCT with a uniform prior and c = 1.25 (Silver et al.
2017, "Mastering the game of Go without human knowledge", Methods), values in [-1, 1], 0 where unvisited, ties at
random. Each node maximises its own mover's mean outcome, see `game_tree`. Embeddings are legal actions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.errors import ConfigError
from stoix_like.games import BoardGame, GameState
from stoix_like.ops import trees
from stoix_like.ops.phases import phase
from stoix_like.search import game_tree
from stoix_like.search.game_tree import Tree, at
from stoix_like.types import Array, Key

EXPLORATION = 1.25  # c of PUCT


class MctsOutput(NamedTuple):
    """What a search found. Rows whose root is over have no visits, and their action means nothing."""

    action: Array  # [B] int32, the most visited one, ties at random
    visits: Array  # [B, A] int32
    values: Array  # [B, P], mean outcome of the simulations for each player; player i is player i of the game


def search(game: BoardGame, key: Key, states: GameState, num_simulations: int) -> MctsOutput:
    """B independent searches from the states [B, ...]. Pure; the states passed in are not changed. Consumes the key.

    Raises:
        ConfigError: fewer than one simulation.
    """
    if num_simulations < 1:
        raise ConfigError(f"mcts: {num_simulations} simulations", "give a number of at least 1")
    with phase("search"):
        final_key, loop_key = jax.random.split(key)
        tree = game_tree.init(game, states, *_edges(game, states), num_simulations + 1)

        def simulate(index: Array, tree: Tree) -> Tree:
            return _simulate(game, jax.random.fold_in(loop_key, index), tree, index + 1)

        tree = jax.lax.fori_loop(0, num_simulations, simulate, tree)
        return _read_out(game, final_key, tree)


def _edges(game: BoardGame, states: GameState) -> tuple[Array | None, Array]:
    """(the actions of the edges [B, K], which of them there are [B, K] bool)."""
    legal = jax.vmap(game.legal_actions)(states)
    actions = game_tree.edge_actions(game, legal)
    return actions, legal if actions is None else actions >= 0


def _simulate(game: BoardGame, key: Key, tree: Tree, new: Array) -> Tree:
    """The trees after one more simulation, whose node is `new` wherever the game goes on."""
    descent_key, playout_key = jax.random.split(key)
    num_rows = tree.player.shape[1]
    seeds = jax.random.bits(descent_key, (num_rows,))

    def choose_best(node: Array, depth: Array) -> Array:
        scores = _scores(tree, node)
        best = scores == jnp.max(scores, axis=1, keepdims=True)
        return choose(_mix(seeds + depth.astype(jnp.uint32)), best, _actions_at(tree, node))

    root = game_tree.roots_of(tree)
    walk = game_tree.descend(tree, choose_best, choose_best(root, jnp.zeros_like(root)))
    before = jax.tree.map(lambda leaf: at(leaf, walk.node), tree.states)
    ended = at(tree.is_over, walk.node)  # [B]: of a walk only the root
    action = game_tree.action_of(tree, walk.node, walk.edge)
    states = trees.where(ended, before, jax.vmap(game.step)(before, action))
    tree = game_tree.expand(game, tree, walk, new, states, *_edges(game, states))
    outcome = _playout(game, jax.random.bits(playout_key, (num_rows,)), states)  # [B, P]
    return game_tree.back_up(tree, jnp.where(walk.child >= 0, walk.child, new), outcome)


def _scores(tree: Tree, node: Array) -> Array:
    """PUCT scores [B, K] of the edges at the nodes [B]; -inf where there is none."""
    edges = game_tree.edges_of(tree, node)
    is_legal = at(tree.embeddings, node)
    prior = 1.0 / jnp.maximum(jnp.sum(is_legal, axis=1, keepdims=True), 1)  # [B, 1]
    total = jnp.sum(edges.visits, axis=1, keepdims=True)  # [B, 1]
    scores = edges.q_values + EXPLORATION * prior * jnp.sqrt(total) / (1.0 + edges.visits)
    return jnp.where(is_legal, scores, -jnp.inf)


def _playout(game: BoardGame, seeds: Array, states: GameState) -> Array:
    """Outcomes [B, P] of one random game from each state, of the game as it is where it is over."""

    def is_running(carry: tuple[Array, GameState]) -> Array:
        return jnp.any(~jax.vmap(game.is_over)(carry[1])) & (carry[0] < game.max_plies)

    def advance(carry: tuple[Array, GameState]) -> tuple[Array, GameState]:
        ply, states = carry
        action = random_actions(game, _mix(seeds + ply.astype(jnp.uint32)), states)
        after = jax.vmap(game.step)(states, action)
        return ply + 1, trees.where(jax.vmap(game.is_over)(states), states, after)

    _, states = jax.lax.while_loop(is_running, advance, (jnp.int32(0), states))
    return jax.vmap(game.outcome)(states)


def _actions_at(tree: Tree, node: Array) -> Array | None:
    """The actions [B, K] of the edges at the nodes [B]; None: edge k is action k."""
    return None if tree.actions is None else at(tree.actions, node)


def _read_out(game: BoardGame, key: Key, tree: Tree) -> MctsOutput:
    root = game_tree.roots_of(tree)
    visits, actions = game_tree.edges_of(tree, root).visits, _actions_at(tree, root)  # [B, K]
    candidates = jnp.where(tree.embeddings[game_tree.ROOT], visits, -1.0)
    best = candidates == jnp.max(candidates, axis=1, keepdims=True)
    edge = choose(jax.random.bits(key, visits.shape[:1]), best, actions)
    values = tree.sums[game_tree.ROOT] / jnp.maximum(tree.visits[game_tree.ROOT], 1.0)[:, None]
    visits = game_tree.by_action(game, actions, visits.astype(jnp.int32))
    return MctsOutput(game_tree.action_of(tree, root, edge), visits, values)


def random_actions(game: BoardGame, seeds: Array, states: GameState) -> Array:
    """[B] int32, a legal action of each state, each as likely: by the seeds [B] uint32."""
    if game.random_action is not None:
        return jax.vmap(game.random_action)(states, seeds)
    return choose(seeds, jax.vmap(game.legal_actions)(states))


def choose(seeds: Array, mask: Array, names: Array | None = None) -> Array:
    """[B] int32, the place of an entry of the mask [B, A] that is True, each as likely: by the seeds [B] uint32.

    Every entry gets a number mixed from the seed and its name [B, A], its place unless given, and the largest wins.
    That takes one random word per row, where Gumbel noise takes one per entry.
    """
    names = jnp.arange(mask.shape[1])[None] if names is None else names
    numbers = _mix(seeds[:, None] ^ names.astype(jnp.uint32) * jnp.uint32(0x9E3779B9))  # 2^32 by the golden ratio
    return jnp.argmax(jnp.where(mask, numbers | 1, 0), axis=1).astype(jnp.int32)


def _mix(words: Array) -> Array:
    """The words, uint32, mixed so that neighbours differ in half their bits: the last step of MurmurHash3 (Appleby)."""
    words = (words ^ (words >> 16)) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> 16)
