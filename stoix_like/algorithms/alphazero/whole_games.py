"""N games of self-play from their first move to their last, in fixed shapes: the unit of work of a pipeline.

`self_play.play` plays a number of plies, and games that go on wait for the next call. Here every game that begins ends,
so that the games depend on nothing but the players and one key. G slots play side by side, and a slot whose game ends
takes the next of the N. A game that is cut after `max_game_plies` ends, too, without an outcome.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.alphazero.packing import PackedObservation, pack
from stoix_like.algorithms.alphazero.self_play import (
    PlaySetup,
    RandomOpenings,
    SearchFunction,
    choose_actions,
    random_openings,
)
from stoix_like.algorithms.alphazero.state import AlphaZeroSettings, are_cut, example_position, longest_game
from stoix_like.games import BoardGame, GameState
from stoix_like.ops import distributions, trees
from stoix_like.ops.phases import phase
from stoix_like.search import mcts
from stoix_like.search.game_tree import by_seat
from stoix_like.search.gumbel import GumbelOutput
from stoix_like.types import Array, Key, Observation


class GameRecords(NamedTuple):
    """What is known of N games: a row per game, positions by ply. Rows of random moves have no position."""

    moves: Array  # [N, H] int16, the actions, random ones included; -1 beyond the end
    num_random: Array  # [N] int32, random plies at the start
    num_plies: Array  # [N] int32, of the whole game; 0 while it goes on
    is_cut: Array  # [N] bool, it was cut, and its outcome is not known
    outcome: Array  # [N, P] float32
    observation: Observation | PackedObservation  # [N, H, ...], planes and legal actions for the mover
    policy: Array  # [N, H, A] float32, or [N, H, K] float16 of the legal ones, improved by the search
    root_values: Array  # [N, H, P] float32, the search's, the mover's first
    predicted: Array  # [N, H] float32, the network's for the mover, before the search
    player: Array  # [N, H] int8, the mover
    is_full: Array  # [N, H] bool, searched in full


class GameBatch(NamedTuple):
    """N games on their way, G of them at a time."""

    games: GameState  # [G, ...]
    game_index: Array  # [G] int32, which of the N games each slot plays; N: none
    ply: Array  # [G] int32, plies played, random ones included
    next_index: Array  # [] int32, the game that begins next
    step: Array  # [] int32, searches of all slots so far
    openings: RandomOpenings  # of the N games
    records: GameRecords


def begin(game: BoardGame, settings: AlphaZeroSettings, num_games: int, num_slots: int, key: Key) -> GameBatch:
    """N games before their first search, the first G of them on their way. Use under jit.

    Args:
        game: its rules.
        settings: `random_plies` at the start.
        num_games: N.
        num_slots: G, at most N.
        key: of the openings.
    """
    openings = random_openings(game, settings.random_plies, num_games, key)
    slots = jnp.arange(num_slots, dtype=jnp.int32)
    games, ply = jax.tree.map(lambda x: x[:num_slots], (openings.games, openings.ply))
    return GameBatch(
        games, slots, ply, jnp.int32(num_slots), jnp.int32(0), openings, _empty_records(game, settings, openings)
    )


def _empty_records(game: BoardGame, settings: AlphaZeroSettings, openings: RandomOpenings) -> GameRecords:
    num_games, num_players, longest = len(openings.ply), game.num_players, longest_game(game, settings.max_game_plies)
    position = example_position(game)
    moves = jnp.full((num_games, longest), -1, jnp.int16)

    def empty(example: Any) -> Any:
        return jax.tree.map(lambda x: jnp.zeros((num_games, longest, *x.shape), x.dtype), example)

    return GameRecords(
        moves=moves.at[:, : openings.moves.shape[1]].set(openings.moves),
        num_random=openings.ply,
        num_plies=jnp.zeros((num_games,), jnp.int32),
        is_cut=jnp.zeros((num_games,), bool),
        outcome=jnp.zeros((num_games, num_players)),
        observation=empty(position.observation),
        policy=empty(position.policy),
        root_values=jnp.zeros((num_games, longest, num_players)),
        predicted=jnp.zeros((num_games, longest)),
        player=jnp.zeros((num_games, longest), jnp.int8),
        is_full=jnp.zeros((num_games, longest), bool),
    )


def num_finished(batch: GameBatch) -> Array:
    """[] int32, how many of the N games have ended."""
    return jnp.sum(batch.records.num_plies > 0, dtype=jnp.int32)


def num_playing(batch: GameBatch) -> Array:
    """[] int32, slots with a game that goes on."""
    return jnp.sum(batch.game_index < batch.records.num_plies.shape[0], dtype=jnp.int32)


def with_fewer_slots(batch: GameBatch, num_slots: int) -> GameBatch:
    """The batch in so many slots, in which all games on their way must have a place: `num_playing` is at most that.

    Not to be jitted: the records stay where they are.
    """
    part = batch.games, batch.game_index, batch.ply
    games, index, ply = _kept_slots(part, batch.records.num_plies.shape[0], num_slots)
    return batch._replace(games=games, game_index=index, ply=ply)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _kept_slots(part: tuple[GameState, Array, Array], num_games: int, num_slots: int) -> tuple[GameState, Array, Array]:
    kept = jnp.argsort(part[1] >= num_games, stable=True)[:num_slots]
    found: tuple[GameState, Array, Array] = jax.tree.map(lambda x: x[kept], part)
    return found


def advance(
    setup: PlaySetup,
    batch: GameBatch,
    key: Key,
    most_steps: Array | int,
    num_idle: int = 0,
) -> GameBatch:
    """The batch when all games have ended, or `most_steps` searches later. Pure; jit it.

    Each step has a key of its own, so with the same `key` it is the same whether it is played at once or in pieces.

    Args:
        setup: searches G games at once.
        batch: from `begin`, or from the call before.
        key: of the batch, the same in every call.
        most_steps: of this call.
        num_idle: if it is not 0, it ends when so many slots have no game any more: fewer slots can play the rest.
    """
    end = batch.step + most_steps
    fewest = 0 if num_idle == 0 else batch.ply.shape[0] - num_idle

    def goes_on(batch: GameBatch) -> Array:
        return (num_playing(batch) > fewest) & (batch.step < end)

    def step(batch: GameBatch) -> GameBatch:
        return _step(setup, batch, jax.random.fold_in(key, batch.step))

    played: GameBatch = jax.lax.while_loop(goes_on, step, batch)
    return played


def _step(setup: PlaySetup, batch: GameBatch, key: Key) -> GameBatch:
    """One ply of the games in all slots."""
    game = setup.game
    search_key, draw_key = jax.random.split(key)
    found, is_full = setup.search(search_key, batch.games)
    action = choose_actions(found, setup.temperature, batch.ply < setup.settings.temperature_plies, draw_key)
    with phase("step"):
        moved = jax.vmap(game.step)(batch.games, action)
        is_over, is_game = jax.vmap(game.is_over)(moved), batch.game_index < len(batch.records.num_plies)  # [G]
        cut = are_cut(game, setup.settings, is_over, batch.ply + 1)
        ends = is_game & (is_over | cut)
        records = _recorded(game, batch, found, is_full, action, moved, ends, cut)
        return _replaced(batch._replace(records=records), moved, ends)


def _recorded(
    game: BoardGame,
    batch: GameBatch,
    found: GumbelOutput,
    is_full: Array,
    action: Array,
    moved: GameState,
    ends: Array,
    cut: Array,
) -> GameRecords:
    """The records with the present positions, and with the outcomes of the games that end, or that they were cut."""
    records, place = batch.records, (batch.game_index, batch.ply)
    positions = (
        action.astype(jnp.int16),
        *pack(game, jax.vmap(game.observe)(batch.games), found.action_weights),
        found.values,
        found.network_values[:, 0].astype(jnp.float32),
        jax.vmap(game.player)(batch.games).astype(jnp.int8),
        jnp.broadcast_to(is_full, ends.shape),
    )
    names = ("moves", "observation", "policy", "root_values", "predicted", "player", "is_full")
    kept = tuple(getattr(records, name) for name in names)
    # slots without a game stand at index N, and what they would write is dropped
    written = jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), kept, positions)
    ended = jnp.where(ends, batch.game_index, len(records.num_plies))
    return records._replace(
        **dict(zip(names, written, strict=True)),
        num_plies=records.num_plies.at[ended].set(batch.ply + 1, mode="drop"),
        is_cut=records.is_cut.at[ended].set(cut, mode="drop"),
        outcome=records.outcome.at[ended].set(jax.vmap(game.outcome)(moved), mode="drop"),
    )


def _replaced(batch: GameBatch, moved: GameState, ends: Array) -> GameBatch:
    """The batch after a ply, in which games that ended are replaced by the next ones, in the order of the slots."""
    num_games = len(batch.records.num_plies)
    following = batch.next_index + jnp.cumsum(ends, dtype=jnp.int32) - 1  # [G]
    index = jnp.where(ends, jnp.minimum(following, num_games), batch.game_index)
    begins = ends & (index < num_games)
    source = jnp.where(begins, index, 0)
    games, ply = jax.tree.map(lambda x: x[source], (batch.openings.games, batch.openings.ply))
    games, ply = trees.where(begins, (games, ply), (moved, batch.ply + 1))
    next_index = jnp.minimum(batch.next_index + jnp.sum(ends, dtype=jnp.int32), num_games)
    return batch._replace(games=games, game_index=index, ply=ply, next_index=next_index, step=batch.step + 1)


def mcts_search(game: BoardGame, num_simulations: int) -> SearchFunction:
    """Plain tree search in the place of a network's: the policy is the share of visits, and no network predicts."""

    def search(key: Key, states: GameState) -> tuple[GumbelOutput, Array]:
        found = mcts.search(game, key, states, num_simulations)
        visits = found.visits.astype(jnp.float32)
        policy = visits / jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
        values = by_seat(found.values, jax.vmap(game.player)(states))
        legal = jax.vmap(game.legal_actions)(states)
        prior = distributions.masked_logits(jnp.zeros(legal.shape), legal)
        nothing = jnp.zeros_like(policy)
        depth = jnp.zeros(visits.shape[:1], jnp.int32)
        output = GumbelOutput(found.action, policy, values, found.visits, nothing, prior, jnp.zeros_like(values), depth)
        return output, jnp.bool_(True)

    return search
