"""Gumbel search over board games: a batch of trees on snapshots of game states, grown by a policy and value network.

The search knows neither games nor networks: both arrive as functions of `GameModel`. Source: Danihelka et al. 2022,
"Policy improvement by planning with Gumbel" (openreview.net/forum?id=bERaNdoegnO): at the root Sequential Halving
(Karnin et al. 2013) over actions drawn without replacement, below it the action that brings the visits closest to the
improved policy, and everywhere the mixed value of appendix D for actions that were not visited.

For two players whose values sum to 0 it takes the actions of mctx 0.0.71's `gumbel_muzero_policy` for the same key,
which the tests hold it to. It is not on mctx, whose vmapped backup selects between whole trees at every edge, so that a
simulation there costs time in proportion to the tree. Nor has it mctx's one number per node: outcomes are vectors, and
each node maximises its mover's own (max^n, see `game_tree`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.errors import ConfigError
from stoix_like.games import BoardGame, GameState
from stoix_like.ops.distributions import MASK_FILL, masked_logits
from stoix_like.ops.phases import phase
from stoix_like.search import game_tree
from stoix_like.search.game_tree import Edges, Tree, at, of_player
from stoix_like.search.halving import considered_visits
from stoix_like.types import Array, Key, Observation, Params

LEAST_SCORE = -1e9  # of a considered action, so that one that is alone is taken whatever its logit
LEAST_RANGE = 1e-8  # of q-values that are rescaled
_TINY = float(jnp.finfo(jnp.float32).tiny)


class GumbelConfig(NamedTuple):
    """How is searched. `gumbel_scale` may be a traced scalar; the rest shapes the program.

    With `rescale_values`, mctx's default, the q-values of a node are stretched to [0, 1] before they are added to the
    logits. Where all of them are nearly equal, as in a drawn position, that turns the network's noise into a policy:
    tic-tac-toe then never became stably free of losses in a prototype. Outcomes are in [-1, 1] already, so by default
    they are taken as they are.
    """

    num_simulations: int = 32
    max_num_considered_actions: int = 16  # at the root, drawn without replacement
    gumbel_scale: Array | float = 1.0  # 0: no noise at the root, for play that depends on no key
    value_scale: float = 0.1  # logits per unit of q, times (maxvisit_init + most visits)
    maxvisit_init: float = 50.0  # visits
    rescale_values: bool = False
    max_depth: int | None = None  # edges from the root


class GameModel(NamedTuple):
    """What is searched.

    Attributes:
        game: its rules.
        evaluate: (params, observations [B, ...]) -> (logits [B, A], masked or not; values [B, P]). values[:, i] is the
            expected outcome of player (mover + i) mod P.
    """

    game: BoardGame
    evaluate: Callable[[Params, Observation], tuple[Array, Array]]


class GumbelOutput(NamedTuple):
    """What a search found. Rows whose root is over hold value, visits and q-values of 0 and mean nothing else."""

    action: Array  # [B] int32, legal
    action_weights: Array  # [B, A], the improved policy: sums to 1, 0 where illegal
    values: Array  # [B, P], expected outcomes if the root's mover follows `action_weights`, the mover's own first
    visits: Array  # [B, A] int32
    q_values: Array  # [B, A], expected outcome of the root's mover; 0 where not visited
    prior_logits: Array  # [B, A], of the network, masked
    network_values: Array  # [B, P], of the network at the root
    depth: Array  # [B] int32, edges from the root to the deepest position that was reached


class _Evaluation(NamedTuple):
    """What the network says of positions, and the rules where the game is over."""

    logits: Array  # [B, K] of the edges, masked
    values: Array  # [B, P], expected outcome of each player of the game, the outcome itself where it is over


class _Root(NamedTuple):
    """What stays the same in all simulations."""

    legal: Array  # [B, K] bool, which edges there are
    noise: Array  # [B, K], Gumbel
    schedule: Array  # [S, B], visits of the actions that each simulation compares


def search(model: GameModel, params: Params, key: Key, states: GameState, config: GumbelConfig) -> GumbelOutput:
    """B independent searches from the states [B, ...]. Pure; the states passed in are not changed. Consumes the key.

    Args:
        model: what is searched.
        params: of the model's network.
        key: for the Gumbel noise at the root, the only randomness.
        states: leading axis B; some may be over.
        config: how.

    Raises:
        ConfigError: fewer than one simulation, considered action or edge.
    """
    return _search(model, params, key, states, config)[0]


def search_lines(
    model: GameModel, params: Params, key: Key, states: GameState, config: GumbelConfig, depth: int
) -> tuple[GumbelOutput, Array]:
    """`search`, and the line that each tree expects: [B, depth] int32 actions, -1 beyond its end.

    The line begins with the chosen action and goes on with the most visited ones, up to the end of the game or to a
    position from which nothing was tried.
    """
    output, tree = _search(model, params, key, states, config)
    return output, _best_lines(tree, output.action, depth)


def _search(
    model: GameModel, params: Params, key: Key, states: GameState, config: GumbelConfig
) -> tuple[GumbelOutput, Tree]:
    _check(config)
    with phase("search"):
        evaluation, actions, network_values = _evaluate(model, params, states)
        legal = jax.vmap(model.game.legal_actions)(states) if actions is None else actions >= 0  # [B, K]
        _, noise_key = jax.random.split(key)  # as mctx splits it
        noise = config.gumbel_scale * jax.random.gumbel(noise_key, legal.shape)
        root = _Root(legal, noise, _schedule(legal, config))
        tree = game_tree.init(model.game, states, actions, evaluation, config.num_simulations + 1)

        def simulate(index: Array, tree: Tree) -> Tree:
            return _simulate(model, params, config, root, index, tree)

        tree = jax.lax.fori_loop(0, config.num_simulations, simulate, tree)
        return _read_out(model.game, tree, root, network_values, config), tree


def _check(config: GumbelConfig) -> None:
    names = ("num_simulations", "max_num_considered_actions", "max_depth")
    for name, size in {name: getattr(config, name) for name in names}.items():
        if size is not None and size < 1:
            raise ConfigError(f"search: {name} is {size}", "give a number of at least 1")


def _evaluate(model: GameModel, params: Params, states: GameState) -> tuple[_Evaluation, Array | None, Array]:
    """(what counts in the search, the actions of the edges [B, K], values of the network [B, P], the mover's first)."""
    game = model.game
    observation = jax.vmap(game.observe)(states)
    with phase("network"):
        logits, values = model.evaluate(params, observation)
    chex.assert_shape(values, (None, game.num_players))
    player, is_over = jax.vmap(game.player)(states), jax.vmap(game.is_over)(states)
    places = (jnp.arange(game.num_players)[None] - player[:, None]) % game.num_players  # [B, P]
    by_player = jnp.take_along_axis(values.astype(jnp.float32), places, axis=1)
    by_player = jnp.where(is_over[:, None], jax.vmap(game.outcome)(states), by_player)
    actions = game_tree.edge_actions(game, observation.action_mask)
    is_edge = observation.action_mask if actions is None else actions >= 0
    return _Evaluation(masked_logits(game_tree.by_edge(actions, logits), is_edge), by_player), actions, values


def _schedule(legal: Array, config: GumbelConfig) -> Array:
    """[S, B] int32: how often an action was visited if simulation s compares it, by the number of legal actions."""
    most = min(config.max_num_considered_actions, legal.shape[1])
    table = np.stack([considered_visits(number, config.num_simulations) for number in range(most + 1)], axis=1)
    num_considered = jnp.minimum(jnp.sum(legal, axis=1, dtype=jnp.int32), most)  # [B]
    return jnp.asarray(table)[:, num_considered]


def _simulate(model: GameModel, params: Params, config: GumbelConfig, root: _Root, index: Array, tree: Tree) -> Tree:
    """The trees after one more simulation, whose node is `index` + 1 where it finds a new position."""

    def choose(node: Array, _depth: Array) -> Array:
        return _interior_edge(tree, node, config)

    first = _root_edge(tree, root, root.schedule[index], config)
    walk = game_tree.descend(tree, choose, first, config.max_depth)
    before = jax.tree.map(lambda leaf: at(leaf, walk.node), tree.states)
    with phase("model"):
        action = game_tree.action_of(tree, walk.node, walk.edge)
        states = jax.vmap(model.game.step)(before, action)  # where the walk ended at a known node, that position
    evaluation, actions, _ = _evaluate(model, params, states)
    tree = game_tree.expand(model.game, tree, walk, index + 1, states, actions, evaluation)
    return game_tree.back_up(tree, jnp.where(walk.child >= 0, walk.child, index + 1), evaluation.values)


def _root_edge(tree: Tree, root: _Root, considered: Array, config: GumbelConfig) -> Array:
    """[B] int32: of the edges with so many visits [B], the best by noise, logits and values."""
    logits, edges, completed = _judged(tree, game_tree.roots_of(tree), config)
    scores = jnp.maximum(root.noise + (logits - jnp.max(logits, axis=1, keepdims=True)) + completed, LEAST_SCORE)
    is_considered = root.legal & (edges.visits == considered[:, None].astype(jnp.float32))
    return jnp.argmax(jnp.where(is_considered, scores, -jnp.inf), axis=1).astype(jnp.int32)


def _interior_edge(tree: Tree, node: Array, config: GumbelConfig) -> Array:
    """[B] int32: the edge whose share of the visits lags most behind its share of the improved policy (section 5)."""
    logits, edges, completed = _judged(tree, node, config)
    share = edges.visits / (1.0 + jnp.sum(edges.visits, axis=1, keepdims=True))
    return jnp.argmax(jax.nn.softmax(logits + completed) - share, axis=1).astype(jnp.int32)


def _judged(tree: Tree, node: Array, config: GumbelConfig) -> tuple[Array, Edges, Array]:
    """(logits [B, K], edges, completed and scaled q-values [B, K] in logits) at the nodes [B]."""
    edges = game_tree.edges_of(tree, node)
    logits = at(tree.embeddings.logits, node)
    value = of_player(at(tree.embeddings.values, node), game_tree.mover_of(tree, node))  # [B]
    q_values = _completed(edges.visits, edges.q_values, logits, value)
    if config.rescale_values:
        low, high = jnp.min(q_values, axis=1, keepdims=True), jnp.max(q_values, axis=1, keepdims=True)
        q_values = (q_values - low) / jnp.maximum(high - low, LEAST_RANGE)
    scale = (config.maxvisit_init + jnp.max(edges.visits, axis=1, keepdims=True)) * config.value_scale  # [B, 1]
    return logits, edges, scale * q_values


def _completed(visits: Array, q_values: Array, logits: Array, value: Array) -> Array:
    """The q-values [B, K], with the mixed value where an edge was not visited.

    It mixes the network's value [B] of the node, as one visit, with the mean of the q-values by the network's policy
    over what was visited, as all the others (Danihelka et al. 2022, appendix D).
    """
    is_visited = visits > 0.0
    policy = jnp.where(is_visited, jnp.maximum(jax.nn.softmax(logits), _TINY), 0.0)  # [B, K]
    policy /= jnp.maximum(jnp.sum(policy, axis=1, keepdims=True), _TINY)
    total = jnp.sum(visits, axis=1)  # [B]
    mixed = (value + total * jnp.sum(policy * q_values, axis=1)) / (1.0 + total)
    return jnp.where(is_visited, q_values, mixed[:, None])


def _read_out(game: BoardGame, tree: Tree, root: _Root, network_values: Array, config: GumbelConfig) -> GumbelOutput:
    node, is_over = game_tree.roots_of(tree), tree.is_over[game_tree.ROOT]
    logits, edges, completed = _judged(tree, node, config)
    weights = jax.nn.softmax(masked_logits(logits + completed, root.legal))
    outcomes, of_network = game_tree.outcomes_of(tree, node), tree.embeddings.values[game_tree.ROOT]
    values = _improved_values(weights, edges.visits, outcomes, logits, of_network)  # [B, P], by player
    values = game_tree.by_seat(values, game_tree.mover_of(tree, node))
    edge = _root_edge(tree, root, jnp.max(edges.visits, axis=1), config)
    actions = None if tree.actions is None else tree.actions[game_tree.ROOT]
    whole = functools.partial(game_tree.by_action, game, actions)
    return GumbelOutput(
        action=game_tree.action_of(tree, node, edge),
        action_weights=whole(weights),
        values=jnp.where(is_over[:, None], 0.0, values),
        visits=whole(edges.visits.astype(jnp.int32)),
        q_values=whole(edges.q_values),
        prior_logits=whole(logits, MASK_FILL),
        network_values=network_values,
        depth=tree.deepest,
    )


def _improved_values(weights: Array, visits: Array, outcomes: Array, logits: Array, values: Array) -> Array:
    """[B, P]: each player's mean outcome under the improved policy, with its mixed value for actions not visited.

    The mean over simulations, mctx's value of the root, says something else: Sequential Halving visits the actions
    that it still compares equally often, the worst of them too.

    Args:
        weights: [B, K], the improved policy.
        visits: [B, K].
        outcomes: [B, K, P], mean ones behind each edge.
        logits: [B, K], of the network.
        values: [B, P], of the network.
    """
    of_each = jax.vmap(_completed, in_axes=(None, -1, None, -1), out_axes=-1)
    return jnp.sum(weights[..., None] * of_each(visits, outcomes, logits, values), axis=1)


def _best_lines(tree: Tree, first: Array, depth: int) -> Array:
    rows = jnp.arange(first.shape[0])

    def follow(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], Array]:
        node, edge, is_open = carry  # [B]
        child = tree.children[node, rows, edge]
        is_open &= child >= 0
        played = jnp.where(is_open, game_tree.action_of(tree, node, edge), -1)
        node = jnp.where(is_open, child, node)
        best = jnp.argmax(game_tree.edges_of(tree, node).visits, axis=1).astype(jnp.int32)
        return (node, best, is_open), played

    root = game_tree.roots_of(tree)
    first = first if tree.actions is None else jnp.argmax(tree.actions[game_tree.ROOT] == first[:, None], axis=1)
    start = (root, first.astype(jnp.int32), ~tree.is_over[game_tree.ROOT])
    _, line = jax.lax.scan(follow, start, None, length=depth)
    return line.T  # [B, depth]
