"""Players of a game as pure functions of batched states: random, by rules of thumb, by search, by a network.

Each is a `games.Player`: (params, states [N, ...], key) -> legal actions [N] int32. For a state that is over the action
means nothing. Players without parameters ignore theirs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from stoix_like.config.checks.engines import Engine
from stoix_like.games import BoardGame, GameState, Player
from stoix_like.ops import distributions, masked
from stoix_like.search import gumbel, mcts
from stoix_like.search.gumbel import GameModel, GumbelConfig
from stoix_like.search.mcts import choose
from stoix_like.types import Array, Key, Params

T = TypeVar("T")

MOST_REPLIES = 100  # moves and replies up to which the heuristic player looks at the replies


def engine_player(game: BoardGame, engine: Engine) -> Player:
    """The player that an engine's name stands for."""
    if engine.kind == "mcts":
        return mcts_player(game, engine.num_simulations)
    return random_player(game) if engine.kind == "random" else heuristic_player(game)


def random_player(game: BoardGame) -> Player:
    """A player to whom all legal actions are as likely."""

    def play(_params: Params, states: GameState, key: Key, /) -> Array:
        legal = jax.vmap(game.legal_actions)(states)  # [N, A]
        return choose(jax.random.bits(key, legal.shape[:1]), legal)

    return play


def heuristic_player(game: BoardGame) -> Player:
    """A player that takes a win; else leaves no win to whoever is next; else follows the game's `preference`.

    The second rule, which blocks, applies to games with A**2 of at most 100: it looks at all replies to all moves.
    Equally preferred actions are as likely.
    """

    def play(_params: Params, states: GameState, key: Key, /) -> Array:
        candidates = jax.vmap(lambda state: _candidates(game, state))(states)  # [N, A]
        liking = jnp.where(candidates, jax.vmap(game.preference)(states), -jnp.inf)
        best = candidates & (liking == jnp.max(liking, axis=1, keepdims=True))
        return choose(jax.random.bits(key, best.shape[:1]), best)

    return play


def _candidates(game: BoardGame, state: GameState) -> Array:
    """[A] bool: the actions that win, else those after which nobody else can win at once, else those that do not lose
    at once, else all legal ones."""
    legal, me = game.legal_actions(state), game.player(state)

    def look(after: GameState) -> tuple[Array, Array, Array]:
        is_over, outcome, lets_win = game.is_over(after), game.outcome(after)[me], jnp.bool_(False)
        if game.num_actions**2 <= MOST_REPLIES:
            lets_win = ~is_over & (game.player(after) != me) & jnp.any(_wins(game, after))
        return is_over & (outcome > 0), is_over & (outcome < 0), lets_win

    wins, loses, lets_win = _after_each(game, state, legal, look)
    lasts = legal & ~loses
    choices = [legal & wins, lasts & ~lets_win, lasts, legal]
    return functools.reduce(lambda worse, better: jnp.where(jnp.any(better), better, worse), reversed(choices))


def _wins(game: BoardGame, state: GameState) -> Array:
    """[A] bool: the actions with which the player to move wins at once."""
    legal, me = game.legal_actions(state), game.player(state)
    wins = _after_each(game, state, legal, lambda after: game.is_over(after) & (game.outcome(after)[me] > 0))
    found: Array = legal & wins
    return found


def _after_each(game: BoardGame, state: GameState, legal: Array, look: Callable[[GameState], T]) -> T:
    """What `look` says of the state after each action, leaves [A] bool.

    Where few of many actions are legal, K of these are looked at at once, and of others it says nothing: False.
    """
    if game.max_legal is None:
        return jax.vmap(lambda action: look(game.step(state, action)))(jnp.arange(game.num_actions))
    at_once, rank = game.max_legal, jnp.cumsum(legal) - 1

    def look_at_some(carry: tuple[Array, T]) -> tuple[Array, T]:
        done, found = carry
        chosen = masked.places(legal & (rank >= done), at_once)  # -1 beyond the last
        seen = jax.vmap(lambda action: look(game.step(state, jnp.maximum(action, 0))))(chosen)
        place = jnp.where(chosen >= 0, chosen, game.num_actions)  # dropped
        return done + at_once, jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), found, seen)

    shapes = jax.eval_shape(lambda: look(state))
    nothing = jax.tree.map(lambda leaf: jnp.zeros((game.num_actions,), leaf.dtype), shapes)
    return jax.lax.while_loop(lambda carry: carry[0] < jnp.sum(legal), look_at_some, (jnp.int32(0), nothing))[1]


def mcts_player(game: BoardGame, num_simulations: int) -> Player:
    """`mcts-n`: plain Monte Carlo tree search with that many simulations a move."""

    def play(_params: Params, states: GameState, key: Key, /) -> Array:
        return mcts.search(game, key, states, num_simulations).action

    return play


def policy_player(model: GameModel, *, deterministic: bool) -> Player:
    """The network without search: its most likely action, or one drawn from it."""

    def play(params: Params, states: GameState, key: Key, /) -> Array:
        observation = jax.vmap(model.game.observe)(states)
        logits = distributions.masked_logits(model.evaluate(params, observation)[0], observation.action_mask)
        return distributions.mode(logits) if deterministic else distributions.sample(key, logits)

    return play


def gumbel_player(model: GameModel, config: GumbelConfig) -> Player:
    """The network with a Gumbel search. With `gumbel_scale` 0 it plays the same in the same position."""

    def play(params: Params, states: GameState, key: Key, /) -> Array:
        return gumbel.search(model, params, key, states, config).action

    return play
