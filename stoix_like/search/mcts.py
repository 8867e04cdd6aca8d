"""Plain Monte Carlo tree search over board games: no network, one random playout for each new position.

It is the yardstick that needs no training, `mcts-n` in rankings: PUCT with a uniform prior and c = 1.25 (Silver et al.
2017, "Mastering the game of Go without human knowledge", Methods), values in [-1, 1], 0 where unvisited, ties at
random. What is backed up is the outcome of every player, [P], and each node maximises its own mover's mean (max^n,
Luckhardt and Irani 1986): no sign appears anywhere, whoever moves and however many play.

Not on mctx: a vmapped backup there selects between whole trees at every edge, so that a simulation costs time in
proportion to the tree. Here nodes are the leading axis. All rows write their new node to the same place, which is one
slice, and everything else touches single entries.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.errors import ConfigError
from stoix_like.games import BoardGame, GameState
from stoix_like.ops import trees
from stoix_like.ops.phases import phase
from stoix_like.types import Array, Key

EXPLORATION = 1.25  # c of PUCT
_UNVISITED = -1


class MctsOutput(NamedTuple):
    """What a search found. Rows whose root is over have no visits, and their action means nothing."""

    action: Array  # [B] int32, the most visited one, ties at random
    visits: Array  # [B, A] int32
    values: Array  # [B, P], mean outcome of the simulations for each player; player i is player i of the game


class _Tree(NamedTuple):
    """B trees of M nodes. Node 0 is the root; simulation i makes node i + 1, or none if the game ends before."""

    children: Array  # [M, B, A] int32, index of the node or `_UNVISITED`
    legal: Array  # [M, B, A] bool
    parents: Array  # [M, B] int32
    visits: Array  # [M, B] float32
    sums: Array  # [M, B, P] float32, of outcomes
    player: Array  # [M, B] int32, to move
    is_over: Array  # [M, B] bool
    states: GameState  # [M, B, ...]


def search(game: BoardGame, key: Key, states: GameState, num_simulations: int) -> MctsOutput:
    """B independent searches from the states [B, ...]. Pure; the states passed in are not changed. Consumes the key.

    Raises:
        ConfigError: fewer than one simulation.
    """
    if num_simulations < 1:
        raise ConfigError(f"mcts: {num_simulations} simulations", "give a number of at least 1")
    with phase("search"):
        final_key, loop_key = jax.random.split(key)
        tree = _plant(game, states, num_simulations)

        def simulate(index: Array, tree: _Tree) -> _Tree:
            return _simulate(game, jax.random.fold_in(loop_key, index), tree, index + 1)

        tree = jax.lax.fori_loop(0, num_simulations, simulate, tree)
        return _read_out(final_key, tree)


def _plant(game: BoardGame, states: GameState, num_simulations: int) -> _Tree:
    """Trees with a root each and room for one node per simulation."""
    player = jax.vmap(game.player)(states).astype(jnp.int32)
    num_rows, num_nodes = player.shape[0], num_simulations + 1

    def room(leaf: Array) -> Array:
        return jnp.zeros((num_nodes, *leaf.shape), leaf.dtype).at[0].set(leaf)

    return _Tree(
        children=jnp.full((num_nodes, num_rows, game.num_actions), _UNVISITED, jnp.int32),
        legal=room(jax.vmap(game.legal_actions)(states)),
        parents=jnp.zeros((num_nodes, num_rows), jnp.int32),
        visits=jnp.zeros((num_nodes, num_rows), jnp.float32),
        sums=jnp.zeros((num_nodes, num_rows, game.num_players), jnp.float32),
        player=room(player),
        is_over=room(jax.vmap(game.is_over)(states)),
        states=jax.tree.map(room, states),
    )


def _simulate(game: BoardGame, key: Key, tree: _Tree, new: Array) -> _Tree:
    """The trees after one more simulation, whose node is `new` wherever the game goes on."""
    descent_key, playout_key = jax.random.split(key)
    num_rows = tree.player.shape[1]
    parent, action = _descend(jax.random.bits(descent_key, (num_rows,)), tree)
    rows = jnp.arange(num_rows)
    ended = tree.is_over[parent, rows]  # [B]: the walk stopped at the end of a game
    before = jax.tree.map(lambda leaf: leaf[parent, rows], tree.states)
    state = trees.where(ended, before, jax.vmap(game.step)(before, action))
    tree = _expand(game, tree, new, parent, action, state)
    outcome = _playout(game, jax.random.bits(playout_key, (num_rows,)), state)  # [B, P]
    return _back_up(tree, jnp.where(ended, parent, new), outcome)


def _descend(seeds: Array, tree: _Tree) -> tuple[Array, Array]:
    """(nodes [B], actions [B]) at which the walks from the roots end: the action is new, or the node is terminal."""
    rows = jnp.arange(seeds.shape[0])

    def advance(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        depth, node, action, child = carry
        is_moving = child >= 0  # [B]
        node = jnp.where(is_moving, child, node)
        children = tree.children[node, rows]  # [B, A]
        scores = _scores(tree, node, children)
        is_best = scores == jnp.max(scores, axis=1, keepdims=True)
        action = jnp.where(is_moving, choose(_mix(seeds + depth.astype(jnp.uint32)), is_best), action)
        goes_on = is_moving & ~tree.is_over[node, rows]
        return depth + 1, node, action, jnp.where(goes_on, children[rows, action], _UNVISITED)

    none = jnp.zeros_like(rows)
    start = (jnp.int32(0), none, none, none)  # the root is the child of nothing
    _, node, action, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[3] >= 0), advance, start)
    return node, action


def _scores(tree: _Tree, node: Array, children: Array) -> Array:
    """PUCT scores [B, A] of the children [B, A] of the nodes [B]; -inf where illegal."""
    rows = jnp.arange(node.shape[0])
    known = jnp.maximum(children, 0)
    is_legal = tree.legal[node, rows]
    is_visited = children >= 0
    visits = jnp.where(is_visited, tree.visits[known, rows[:, None]], 0.0)
    mover = tree.player[node, rows]
    sums = jnp.where(is_visited, tree.sums[known, rows[:, None], mover[:, None]], 0.0)
    prior = 1.0 / jnp.maximum(jnp.sum(is_legal, axis=1, keepdims=True), 1)  # [B, 1]
    total = jnp.sum(visits, axis=1, keepdims=True)  # [B, 1]
    scores = sums / jnp.maximum(visits, 1.0) + EXPLORATION * prior * jnp.sqrt(total) / (1.0 + visits)
    return jnp.where(is_legal, scores, -jnp.inf)


def _expand(game: BoardGame, tree: _Tree, new: Array, parent: Array, action: Array, state: GameState) -> _Tree:
    """The trees with the states [B, ...] as node `new`. Below the end of a game no walk ever reaches it."""
    rows = jnp.arange(parent.shape[0])
    player = jax.vmap(game.player)(state).astype(jnp.int32)
    return tree._replace(
        children=tree.children.at[parent, rows, action].set(new),
        legal=tree.legal.at[new].set(jax.vmap(game.legal_actions)(state)),
        parents=tree.parents.at[new].set(parent),
        player=tree.player.at[new].set(player),
        is_over=tree.is_over.at[new].set(jax.vmap(game.is_over)(state)),
        states=jax.tree.map(lambda leaf, x: leaf.at[new].set(x), tree.states, state),
    )


def _playout(game: BoardGame, seeds: Array, states: GameState) -> Array:
    """Outcomes [B, P] of one random game from each state, of the game as it is where it is over."""

    def is_running(carry: tuple[Array, GameState]) -> Array:
        return jnp.any(~jax.vmap(game.is_over)(carry[1])) & (carry[0] < game.max_plies)

    def advance(carry: tuple[Array, GameState]) -> tuple[Array, GameState]:
        ply, states = carry
        action = choose(_mix(seeds + ply.astype(jnp.uint32)), jax.vmap(game.legal_actions)(states))
        after = jax.vmap(game.step)(states, action)
        return ply + 1, trees.where(jax.vmap(game.is_over)(states), states, after)

    _, states = jax.lax.while_loop(is_running, advance, (jnp.int32(0), states))
    return jax.vmap(game.outcome)(states)


def _back_up(tree: _Tree, leaf: Array, outcome: Array) -> _Tree:
    """The trees after the outcomes [B, P] were counted at the leaves [B] and at all nodes above them."""
    num_nodes, num_rows = tree.visits.shape
    rows = jnp.arange(num_rows)

    def advance(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        node, visits, sums = carry  # node [B]: `num_nodes` where the root is counted already, which is dropped
        visits = visits.at[node, rows].add(1.0, mode="drop")
        sums = sums.at[node, rows].add(outcome, mode="drop")
        at_top = (node == 0) | (node == num_nodes)
        return jnp.where(at_top, num_nodes, tree.parents[node, rows]), visits, sums

    carry = (leaf, tree.visits, tree.sums)
    _, visits, sums = jax.lax.while_loop(lambda carry: jnp.any(carry[0] < num_nodes), advance, carry)
    return tree._replace(visits=visits, sums=sums)


def _read_out(key: Key, tree: _Tree) -> MctsOutput:
    children = tree.children[0]  # [B, A]
    visits = jnp.where(children >= 0, tree.visits[jnp.maximum(children, 0), jnp.arange(children.shape[0])[:, None]], 0)
    candidates = jnp.where(tree.legal[0], visits, -1.0)
    best = candidates == jnp.max(candidates, axis=1, keepdims=True)
    action = choose(jax.random.bits(key, children.shape[:1]), best)
    values = tree.sums[0] / jnp.maximum(tree.visits[0], 1.0)[:, None]
    return MctsOutput(action, visits.astype(jnp.int32), values)


def choose(seeds: Array, mask: Array) -> Array:
    """[B] int32, one of the entries of the mask [B, A] that are True, each as likely: by the seeds [B] uint32.

    Every entry gets a number mixed from the seed and its place, and the largest wins. That takes one random word per
    row, where Gumbel noise takes one per entry.
    """
    places = jnp.arange(mask.shape[1], dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)  # [A], 2^32 by the golden ratio
    numbers = _mix(seeds[:, None] ^ places[None])  # [B, A]
    return jnp.argmax(jnp.where(mask, numbers | 1, 0), axis=1).astype(jnp.int32)


def _mix(words: Array) -> Array:
    """The words, uint32, mixed so that neighbours differ in half their bits: the last step of MurmurHash3 (Appleby)."""
    words = (words ^ (words >> 16)) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> 16)
