"""Gumbel search over board games: a batch of trees on snapshots of game states, grown by a policy and value network.

The one door to mctx, which is the optional extra `boardgames`: it is imported when a search is called. The search knows
neither games nor networks: both arrive as functions of `GameModel`. Source: Danihelka et al. 2022, "Policy improvement
by planning with Gumbel" (openreview.net/forum?id=bERaNdoegnO).

**Signs.** mctx backs up one number per node, as `reward + discount * value of the child`, and every node maximises its
own number. For two players that number is the expected outcome of the node's mover. For more, maximising each mover's
own outcome (max^n, Luckhardt and Irani 1986) would need vectors, so the search is **paranoid** (Sturtevant and Korf
2000, "On pruning techniques for multi-player games", AAAI): the root's mover plays against all others, who only harm
it. A node of the root's mover holds that player's expected outcome, a node of anybody else its negative. With two
players whose outcomes sum to 0 both are the same formula, and there is one code path. The sign of a node is +1 or -1 by
its mover; the discount of an edge is the product of the signs at its ends, so that a player who moves twice in a row
keeps the sign; it is 0 where the game ends. A game's own steps know discounts of 0 and 1 only.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from stoix_like.errors import ConfigError, MissingExtraError
from stoix_like.games import BoardGame, GameState
from stoix_like.ops import trees
from stoix_like.ops.distributions import masked_logits
from stoix_like.ops.phases import phase
from stoix_like.types import Array, Key, Observation, Params


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
    value: Array  # [B], expected outcome of the root's mover if it follows `action_weights`
    visits: Array  # [B, A] int32
    q_values: Array  # [B, A], expected outcome of the root's mover; 0 where not visited
    prior_logits: Array  # [B, A], of the network, masked
    network_values: Array  # [B, P], of the network at the root
    depth: Array  # [B] int32, edges from the root to the deepest position that was reached


class _Node(NamedTuple):
    """What mctx keeps for each node."""

    state: GameState
    root_player: Array  # [B] int32


def search(model: GameModel, params: Params, key: Key, states: GameState, config: GumbelConfig) -> GumbelOutput:
    """B independent searches from the states [B, ...]. Pure; the states passed in are not changed. Consumes the key.

    Args:
        model: what is searched.
        params: of the model's network.
        key: for the Gumbel noise at the root, the only randomness.
        states: leading axis B; some may be over.
        config: how.

    Raises:
        ConfigError: fewer than one simulation or considered action.
        MissingExtraError: mctx is not installed.
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
    return output, _best_lines(tree, output.action, jax.vmap(model.game.is_over)(states), depth)


def _search(
    model: GameModel, params: Params, key: Key, states: GameState, config: GumbelConfig
) -> tuple[GumbelOutput, Any]:
    mctx = _mctx()
    _check(config)
    with phase("search"):
        nodes = _Node(states, jax.vmap(model.game.player)(states).astype(jnp.int32))
        logits, value, values = _evaluate(model, params, nodes)
        legal = jax.vmap(model.game.legal_actions)(states)  # [B, A]
        found = mctx.gumbel_muzero_policy(
            params,
            key,
            mctx.RootFnOutput(prior_logits=logits, value=value, embedding=nodes),
            _recurrent(mctx, model),
            num_simulations=config.num_simulations,
            invalid_actions=~legal,
            max_depth=config.max_depth,
            qtransform=_qtransform(mctx, config),
            max_num_considered_actions=config.max_num_considered_actions,
            gumbel_scale=config.gumbel_scale,
        )
    return _read_out(found, logits, value, values, jax.vmap(model.game.is_over)(states)), found.search_tree


def _mctx() -> ModuleType:
    try:
        import mctx
    except ImportError as error:
        raise MissingExtraError("a Gumbel search", "boardgames", "pip install 'stoix_like[boardgames]'") from error
    return mctx


def _check(config: GumbelConfig) -> None:
    sizes = {name: getattr(config, name) for name in ("num_simulations", "max_num_considered_actions")}
    for name, size in sizes.items():
        if size < 1:
            raise ConfigError(f"search: {name} is {size}", "give a number of at least 1")


def _qtransform(mctx: ModuleType, config: GumbelConfig) -> Callable[[Any, Array], Array]:
    def transform(tree: Any, node: Array) -> Array:
        return mctx.qtransform_completed_by_mix_value(
            tree,
            node,
            value_scale=config.value_scale,
            maxvisit_init=config.maxvisit_init,
            rescale_values=config.rescale_values,
        )

    return transform


def sign(player: Array, root_player: Array) -> Array:
    """+1 where the mover is the root's mover, else -1; of any shape, float32."""
    return jnp.where(player == root_player, 1.0, -1.0)


def _recurrent(mctx: ModuleType, model: GameModel) -> Callable[..., tuple[Any, _Node]]:
    game = model.game

    def recurrent(params: Params, _key: Key, action: Array, nodes: _Node) -> tuple[Any, _Node]:
        """One step from each node. A state that is over stays as it is, and pays nothing once more."""
        was_over = jax.vmap(game.is_over)(nodes.state)  # [B]
        stepped = jax.vmap(game.step)(nodes.state, action)
        after = _Node(trees.where(was_over, nodes.state, stepped), nodes.root_player)
        is_over = jax.vmap(game.is_over)(after.state)
        before = sign(jax.vmap(game.player)(nodes.state), nodes.root_player)
        change = before * sign(jax.vmap(game.player)(after.state), nodes.root_player)
        outcome = _of_player(jax.vmap(game.outcome)(after.state), nodes.root_player)  # [B], of the root's mover
        logits, value, _ = _evaluate(model, params, after)
        output = mctx.RecurrentFnOutput(
            reward=jnp.where(is_over & ~was_over, before * outcome, 0.0),
            discount=jnp.where(is_over, 0.0, change),
            prior_logits=logits,
            value=value,
        )
        return output, after

    return recurrent


def _evaluate(model: GameModel, params: Params, nodes: _Node) -> tuple[Array, Array, Array]:
    """(masked logits [B, A], values of the nodes [B] as the search counts them, values of the network [B, P])."""
    game = model.game
    observation = jax.vmap(game.observe)(nodes.state)
    with phase("network"):
        logits, values = model.evaluate(params, observation)
    chex.assert_shape(values, (None, game.num_players))
    player = jax.vmap(game.player)(nodes.state)
    of_root = _of_player(values, (nodes.root_player - player) % game.num_players)
    value = jnp.where(jax.vmap(game.is_over)(nodes.state), 0.0, sign(player, nodes.root_player) * of_root)
    return masked_logits(logits, observation.action_mask), value, values


def _of_player(values: Array, player: Array) -> Array:
    """[B] from [B, P]."""
    return jnp.take_along_axis(values, player[:, None], axis=1)[:, 0]


def _read_out(found: Any, logits: Array, root_value: Array, values: Array, is_over: Array) -> GumbelOutput:
    summary = found.search_tree.summary()
    visits = jnp.where(is_over[:, None], 0, summary.visit_counts.astype(jnp.int32))
    q_values = jnp.where(visits > 0, summary.qvalues, 0.0)
    return GumbelOutput(
        action=found.action.astype(jnp.int32),
        action_weights=found.action_weights,
        value=_improved_value(found.action_weights, q_values, visits, logits, root_value),
        visits=visits,
        q_values=q_values,
        prior_logits=logits,
        network_values=values,
        depth=_depth(found.search_tree, is_over),
    )


def _improved_value(weights: Array, q_values: Array, visits: Array, logits: Array, root_value: Array) -> Array:
    """[B]: the mean of the q-values under the improved policy; where not visited, with the mixed value in their place.

    The mean over simulations, mctx's value of the root, says something else: Sequential Halving visits the actions
    that it still compares equally often, the worst of them too. Mixed value: Danihelka et al. 2022, appendix D.
    """
    is_visited = visits > 0
    prior = jnp.where(is_visited, jnp.maximum(jax.nn.softmax(logits), jnp.finfo(jnp.float32).tiny), 0.0)
    prior /= jnp.maximum(jnp.sum(prior, axis=1, keepdims=True), jnp.finfo(jnp.float32).tiny)
    total = jnp.sum(visits, axis=1)
    mixed = (root_value + total * jnp.sum(prior * q_values, axis=1)) / (1 + total)  # [B]
    return jnp.sum(weights * jnp.where(is_visited, q_values, mixed[:, None]), axis=1)


def _depth(tree: Any, is_over: Array) -> Array:
    """[B]: of the deepest node, without those that repeat a finished game. Parents come before their children."""
    num_rows, num_nodes = tree.node_visits.shape
    rows = jnp.arange(num_rows)

    def visit(node: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        depth, over = carry  # [B, nodes]
        parent = jnp.maximum(tree.parents[:, node], 0)
        action = jnp.maximum(tree.action_from_parent[:, node], 0)
        ends = tree.children_discounts[rows, parent, action] == 0.0
        own = jnp.where(tree.node_visits[:, node] > 0, depth[rows, parent] + ~over[rows, parent], 0)
        return depth.at[:, node].set(own), over.at[:, node].set(ends)

    depth = jnp.zeros((num_rows, num_nodes), jnp.int32)
    over = jnp.zeros((num_rows, num_nodes), bool).at[:, 0].set(is_over)
    depth, _ = jax.lax.fori_loop(1, num_nodes, visit, (depth, over))
    return jnp.max(depth, axis=1)


def _best_lines(tree: Any, first: Array, is_over: Array, depth: int) -> Array:
    rows = jnp.arange(first.shape[0])

    def follow(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], Array]:
        node, action, open_ = carry  # [B]
        open_ &= tree.children_visits[rows, node, action] > 0
        played = jnp.where(open_, action, -1)
        open_ &= tree.children_discounts[rows, node, action] != 0.0
        node = jnp.where(open_, tree.children_index[rows, node, action], node)
        best = jnp.argmax(tree.children_visits[rows, node], axis=-1).astype(jnp.int32)
        return (node, best, open_), played

    start = (jnp.zeros_like(first), first, ~is_over)
    _, line = jax.lax.scan(follow, start, None, length=depth)
    return line.T  # [B, depth]
