"""Trees of game positions that searches grow: a batch of them, with outcomes of all players in every node.

Both searches of games stand on these trees. They differ in how an action is chosen and in what a new position is worth.

**Values are vectors.** What is backed up is the outcome of every player, [P], and each node is judged by the component
of its own mover: max^n (Luckhardt and Irani 1986, "An algorithmic solution of N-person games", AAAI). No sign appears
anywhere, whoever moves, however often in a row and however many play. For two players whose outcomes sum to 0 that is
minimax. For more, the alternative is paranoid search (Sturtevant and Korf 2000, "On pruning techniques for multi-player
games", AAAI), in which all others play against the root's mover: one number per node is enough for it, but it expects
of the others that they harm themselves in order to harm us, which no player does that learns to win.

**Edges are legal actions.** Where a game says how many actions are legal at most (`max_legal`, K), a node has K edges,
the first K legal actions in their order. Of other games it has one for each of the A actions.

**Nodes are the leading axis.** All rows of a batch write their new node to the same place, which is one slice, and
everything else touches single entries. Nothing selects between whole trees: in a vmapped `while_loop`, whose rows end
at different times, JAX does so with all that the loop carries, so the walk down carries indices alone, and the walk up
joins the vmapped rows to its own (`_add_along_paths`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.games import BoardGame, GameState
from stoix_like.ops.masked import places
from stoix_like.types import Array

ROOT = 0
UNVISITED = -1


class Tree(NamedTuple):
    """B trees of M nodes. Node 0 is the root; simulation i makes node i + 1, or none if it ends at a known one."""

    children: Array  # [M, B, K] int32, by edge: index of the node or `UNVISITED`
    actions: Array | None  # [M, B, K] int16, of the edges; -1: there is no such edge. None: edge k is action k
    parents: Array  # [M, B] int32
    visits: Array  # [M, B] float32, simulations that came through
    sums: Array  # [M, B, P] float32, of their outcomes; player i is player i of the game
    player: Array  # [M, B] int32, to move
    is_over: Array  # [M, B] bool
    deepest: Array  # [B] int32, edges from the root to the deepest position
    states: GameState  # [M, B, ...]
    embeddings: Any  # pytree [M, B, ...], what a search knows of each position


class Edges(NamedTuple):
    """What the trees know of all edges at one node each."""

    visits: Array  # [B, K] float32
    q_values: Array  # [B, K] float32, mean outcome for the node's mover; 0 where not visited


class Walk(NamedTuple):
    """Walks from the roots. `child` is the known node at which they ended, or `UNVISITED`: then the edge is new."""

    node: Array  # [B] int32
    edge: Array  # [B] int32, taken there
    child: Array  # [B] int32
    depth: Array  # [B] int32, edges from the root to the child


def edge_actions(game: BoardGame, legal: Array) -> Array | None:
    """The actions of the edges [B, K] int16 of positions with these legal actions [B, A]; None: edge k is action k."""
    if game.max_legal is None:
        return None
    return jax.vmap(functools.partial(places, count=game.max_legal))(legal).astype(jnp.int16)


def by_edge(actions: Array | None, values: Array) -> Array:
    """Values of actions [B, A] as those of edges [B, K]; those of no edge mean nothing."""
    return values if actions is None else jnp.take_along_axis(values, jnp.maximum(actions, 0).astype(int), axis=1)


def by_action(game: BoardGame, actions: Array | None, values: Array, fill: float = 0.0) -> Array:
    """Values of edges [B, K] as those of actions [B, A], `fill` where there is no edge."""
    if actions is None:
        return values
    place = jnp.where(actions >= 0, actions, game.num_actions).astype(int)  # dropped
    empty = jnp.full((len(actions), game.num_actions), fill, values.dtype)
    return jax.vmap(lambda row, at, of_edges: row.at[at].set(of_edges, mode="drop"))(empty, place, values)


def action_of(tree: Tree, node: Array, edge: Array) -> Array:
    """The actions [B] int32 of edges [B] of the nodes [B]."""
    return edge if tree.actions is None else at(tree.actions, node, edge).astype(jnp.int32)


def init(game: BoardGame, states: GameState, actions: Array | None, embeddings: Any, num_nodes: int) -> Tree:
    """Trees with room for M nodes, of which there are the roots [B, ...] with the edges `actions` [B, K]."""
    player, is_over = _facts(game, states)
    num_rows, num_edges = player.shape[0], game.max_legal or game.num_actions

    def room(leaf: Array) -> Array:
        return jnp.zeros((num_nodes, *leaf.shape), leaf.dtype).at[ROOT].set(leaf)

    return Tree(
        children=jnp.full((num_nodes, num_rows, num_edges), UNVISITED, jnp.int32),
        actions=None if actions is None else room(actions),
        parents=jnp.zeros((num_nodes, num_rows), jnp.int32),
        visits=jnp.zeros((num_nodes, num_rows), jnp.float32),
        sums=jnp.zeros((num_nodes, num_rows, game.num_players), jnp.float32),
        player=room(player),
        is_over=room(is_over),
        deepest=jnp.zeros((num_rows,), jnp.int32),
        states=jax.tree.map(room, states),
        embeddings=jax.tree.map(room, embeddings),
    )


def _facts(game: BoardGame, states: GameState) -> tuple[Array, Array]:
    """(who is to move [B] int32, whether it is over [B])."""
    return jax.vmap(game.player)(states).astype(jnp.int32), jax.vmap(game.is_over)(states)


def at(leaf: Array, *index: Array) -> Array:
    """The entries [B, ...] of an array [M, B, ...] at one node [B] each, or at a node, an edge [B] and so on.

    The rows are mapped, not counted by `arange`: then XLA knows that each reads its own part, and rows that are divided
    over devices stay where they are.
    """
    return jax.vmap(lambda rows, *place: rows[place], in_axes=(1, *[0] * len(index)))(leaf, *index)


def roots_of(tree: Tree) -> Array:
    """The index of the root, [B] int32."""
    return jnp.full(tree.deepest.shape, ROOT, jnp.int32)


def of_player(values: Array, player: Array) -> Array:
    """The component of one player each: [B] from [B, P]."""
    return jnp.take_along_axis(values, player[:, None], axis=1)[:, 0]


def by_seat(values: Array, player: Array) -> Array:
    """Values by player [..., P] in the order of the seats from `player` [...] on, such as the mover's first."""
    num_players = values.shape[-1]
    later = jnp.arange(num_players).reshape((1,) * player.ndim + (num_players,))
    seats = (player[..., None].astype(jnp.int32) + later) % num_players
    return jnp.take_along_axis(values, seats, axis=-1)


def mover_of(tree: Tree, node: Array) -> Array:
    """The player whose outcome is maximised at the nodes [B]: who is to move there, [B] int32."""
    return at(tree.player, node)


def edges_of(tree: Tree, node: Array) -> Edges:
    """The edges [B, K] at the nodes [B]."""
    children = at(tree.children, node)  # [B, K]
    known = jnp.maximum(children, 0)
    is_visited = children >= 0
    visits = jnp.where(is_visited, at(tree.visits, known), 0.0)
    sums = jnp.where(is_visited, at(tree.sums, known, mover_of(tree, node)), 0.0)
    return Edges(visits, sums / jnp.maximum(visits, 1.0))


def outcomes_of(tree: Tree, node: Array) -> Array:
    """The mean outcome of every player behind each edge at the nodes [B]: [B, K, P], 0 where not visited."""
    children = at(tree.children, node)  # [B, K]
    known = jnp.maximum(children, 0)
    sums = jnp.where((children >= 0)[..., None], at(tree.sums, known), 0.0)  # [B, K, P]
    return sums / jnp.maximum(at(tree.visits, known), 1.0)[..., None]


def descend(tree: Tree, choose: Callable[[Array, Array], Array], first: Array, max_depth: int | None = None) -> Walk:
    """The walks that begin with the edges `first` [B] and end at a new edge, at the end of a game, or when they are
    `max_depth` edges long. Those from a root that is over end there.

    Args:
        tree: where.
        choose: (nodes [B], depths [B]) -> edges [B] int32.
        first: at the roots.
        max_depth: edges.
    """
    root = roots_of(tree)
    is_over = tree.is_over[ROOT]  # [B]
    child = jnp.where(is_over, root, at(tree.children, root, first))
    start = Walk(root, first, child, jnp.where(is_over, 0, 1))

    def goes_on(walk: Walk) -> Array:
        on = (walk.child >= 0) & ~at(tree.is_over, jnp.maximum(walk.child, 0))  # [B]
        return on if max_depth is None else on & (walk.depth < max_depth)

    def advance(carry: tuple[Walk, Array]) -> tuple[Walk, Array]:
        walk, is_moving = carry
        node = jnp.where(is_moving, walk.child, walk.node)
        edge = jnp.where(is_moving, choose(node, walk.depth), walk.edge)
        child = jnp.where(is_moving, at(tree.children, node, edge), walk.child)
        after = Walk(node, edge, child, walk.depth + is_moving)
        return after, goes_on(after) & is_moving

    walk, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[1]), advance, (start, goes_on(start)))
    return walk


def expand(
    game: BoardGame,
    tree: Tree,
    walk: Walk,
    new: Array,
    states: GameState,
    actions: Array | None,
    embeddings: Any,
) -> Tree:
    """The trees with the positions [B, ...] as node `new` [] below the walks that ended at a new edge.

    For the others it is written as well, but no walk ever reaches it.
    """
    num_nodes = tree.visits.shape[0]
    player, is_over = _facts(game, states)
    above = jnp.where(walk.child >= 0, num_nodes, walk.node)  # beyond the last node nothing is written

    def put(leaf: Array, x: Array) -> Array:
        return leaf.at[new].set(x)

    return tree._replace(
        children=_link(tree.children, above, walk.edge, new),
        actions=None if tree.actions is None or actions is None else put(tree.actions, actions),
        parents=put(tree.parents, walk.node),
        player=put(tree.player, player),
        is_over=put(tree.is_over, is_over),
        deepest=jnp.maximum(tree.deepest, walk.depth),
        states=jax.tree.map(put, tree.states, states),
        embeddings=jax.tree.map(put, tree.embeddings, embeddings),
    )


def _link(children: Array, node: Array, edge: Array, new: Array) -> Array:
    """The children [M, B, K] with node `new` [] below the nodes [B] by the edges [B]; M stands for no node."""
    numbers = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(0, 2),
        scatter_dims_to_operand_dims=(0, 2),
        operand_batching_dims=(1,),
        scatter_indices_batching_dims=(0,),
    )
    index = jnp.stack([node, edge], axis=-1)  # [B, 2]
    added = jnp.broadcast_to(new.astype(children.dtype), node.shape)  # [B]
    return jax.lax.scatter(children, index, added, numbers, mode=jax.lax.GatherScatterMode.FILL_OR_DROP)


def _add(totals: Array, node: Array, values: Array) -> Array:
    """The totals [G, M, B, ...] with the values [G, B, ...] added at the nodes [G, B]; M stands for no node."""
    numbers = jax.lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(2, values.ndim)),
        inserted_window_dims=(1,),
        scatter_dims_to_operand_dims=(1,),
        operand_batching_dims=(0, 2),
        scatter_indices_batching_dims=(0, 1),
    )
    mode = jax.lax.GatherScatterMode.FILL_OR_DROP
    return jax.lax.scatter_add(totals, node[..., None], values, numbers, mode=mode)


def back_up(tree: Tree, leaf: Array, outcome: Array) -> Tree:
    """The trees after the outcomes [B, P] were counted at the leaves [B] and at all nodes above them."""
    grouped = jax.tree.map(lambda x: x[None], (tree.visits, tree.sums, tree.parents, leaf, outcome))  # [1, ...]
    visits, sums = _add_along_paths(*grouped)
    return tree._replace(visits=visits[0], sums=sums[0])


@jax.custom_batching.custom_vmap
def _add_along_paths(visits: Array, sums: Array, parents: Array, leaf: Array, outcome: Array) -> tuple[Array, Array]:
    """(visits [G, M, B], sums [G, M, B, P]) with the outcomes [G, B, P] added from the leaves [G, B] up to the roots.

    G searches with one loop, until all of them are at their roots. Under `vmap` the mapped axis becomes part of G. By
    JAX's own rule each row of the map would stop by itself, by a choice between old and new trees at every edge.
    """
    num_nodes = visits.shape[1]
    ones = jnp.ones(leaf.shape, visits.dtype)

    def advance(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        node, visits, sums = carry  # node [G, B]: `num_nodes` where the root is counted already, which is dropped
        at_top = (node == ROOT) | (node == num_nodes)
        above = jnp.where(at_top, num_nodes, jax.vmap(at)(parents, node))
        return above, _add(visits, node, ones), _add(sums, node, outcome)

    _, visits, sums = jax.lax.while_loop(lambda carry: jnp.any(carry[0] < num_nodes), advance, (leaf, visits, sums))
    return visits, sums


@_add_along_paths.def_vmap
def _joined(axis_size: int, is_mapped: Sequence[bool], *arrays: Array) -> tuple[tuple[Array, Array], tuple[bool, bool]]:
    def join(x: Array, mapped: bool) -> Array:
        whole = x if mapped else jnp.broadcast_to(x[None], (axis_size, *x.shape))  # [V, G, ...]
        return whole.reshape(-1, *whole.shape[2:])  # [V * G, ...]

    visits, sums = _add_along_paths(*map(join, arrays, is_mapped))
    return (visits.reshape(axis_size, -1, *visits.shape[1:]), sums.reshape(axis_size, -1, *sums.shape[1:])), (
        True,
        True,
    )
