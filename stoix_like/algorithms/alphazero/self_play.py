"""Self-play: G games side by side in fixed shapes, each replaced when it ends.

A position becomes a sample when its game ends, with the outcome of that game; positions of unfinished games wait in
`SelfPlay.history`. So short games are not favoured, and no sample has an outcome that was guessed. A game that is cut
after `longest_game` plies has none: its positions are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.alphazero.packing import pack
from stoix_like.algorithms.alphazero.state import (
    AlphaZeroSettings,
    Position,
    Sample,
    SelfPlay,
    are_cut,
    cuts_games,
    example_position,
    longest_game,
)
from stoix_like.games import BoardGame, GameState
from stoix_like.ops import distributions, trees
from stoix_like.ops.phases import phase
from stoix_like.search.game_tree import by_seat
from stoix_like.search.gumbel import GumbelOutput
from stoix_like.types import Array, Key, Metrics

#: (key, states [G, ...]) -> (what the search found, [] bool whether it searched in full).
SearchFunction = Callable[[Key, GameState], tuple[GumbelOutput, Array]]


class RandomOpenings(NamedTuple):
    """G games after random openings, none of them over."""

    games: GameState  # [G, ...]
    ply: Array  # [G] int32, plies played
    moves: Array  # [G, most plies] int16, the actions; -1 beyond


class _Finished(NamedTuple):
    """Per ply: which games ended, and how. [T, G, ...]."""

    is_over: Array
    is_cut: Array  # not over, and not gone on with
    length: Array
    left_out: Array  # int32, legal actions that the search has no edge for
    outcome: Array  # [T, G, P]
    search_kl: Array  # nats, of the improved policy from the network's
    agrees: Array  # bool, the search's favourite is the network's


class _Ending(NamedTuple):
    """How the game of each position ended."""

    outcome: Array  # [..., P]
    has_ended: Array  # [...] bool
    was_cut: Array  # [...] bool


def start(game: BoardGame, settings: AlphaZeroSettings, num_games: int, key: Key) -> SelfPlay:
    """G games after their random openings. Use under jit."""
    games, ply, _ = random_openings(game, settings.random_plies, num_games, key)
    longest = longest_game(game, settings.max_game_plies)
    history = jax.tree.map(lambda x: jnp.zeros((num_games, longest, *x.shape), x.dtype), example_position(game))
    return SelfPlay(games, ply, jnp.zeros_like(ply), history)


def random_openings(game: BoardGame, most_plies: int, num_games: int, key: Key) -> RandomOpenings:
    """G games after 0 to `most_plies` random moves.

    Each number is as probable, but for games that a random move would have ended: that move is drawn again.
    """
    first = game.init()
    games = jax.tree.map(lambda x: jnp.tile(x, (num_games,) + (1,) * jnp.ndim(x)), first)
    number_key, move_key = jax.random.split(key)
    wanted = jax.random.randint(number_key, (num_games,), 0, most_plies + 1)

    def move(before: RandomOpenings, move_key: Key) -> tuple[RandomOpenings, None]:
        games, ply, moves = before
        legal = jax.vmap(game.legal_actions)(games)
        action = distributions.sample(move_key, distributions.masked_logits(jnp.zeros(legal.shape), legal))
        moved = jax.vmap(game.step)(games, action)
        goes_on = (ply < wanted) & ~jax.vmap(game.is_over)(moved)
        place = jnp.where(goes_on, ply, most_plies)  # dropped where the move is not made
        moves = moves.at[jnp.arange(num_games), place].set(action.astype(jnp.int16), mode="drop")
        return RandomOpenings(trees.where(goes_on, moved, games), ply + goes_on, moves), None

    nothing = jnp.zeros((num_games,), jnp.int32), jnp.full((num_games, most_plies), -1, jnp.int16)
    opened, _ = jax.lax.scan(move, RandomOpenings(games, *nothing), jax.random.split(move_key, most_plies))
    return opened


class PlaySetup(NamedTuple):
    """What plies are played with.

    Attributes:
        game: its rules.
        search: of all games at once.
        settings: of self-play.
        temperature: of the draws from the improved policy in the first plies.
    """

    game: BoardGame
    search: SearchFunction
    settings: AlphaZeroSettings
    temperature: Array | float


def play(setup: PlaySetup, self_play: SelfPlay, step: Array, key: Key) -> tuple[SelfPlay, Sample, Array, Metrics]:
    """(where self-play stopped, samples [M, ...], which of them count [M], metrics) after T plies of every game.

    M is G * (H + T): all positions that could become samples, in the order of the games. Those that count are the
    positions of the games that were over here, each once over the whole of self-play.

    Args:
        setup: T is the `rollout_length` of its settings.
        self_play: where it stopped before.
        step: noted in the samples, the index of the update.
        key: consumed.
    """
    num_games, settings = self_play.ply.shape[0], setup.settings
    opening_key, play_key = jax.random.split(key)
    starts = random_openings(setup.game, settings.random_plies, num_games, opening_key)

    def move(carry: tuple[GameState, Array], keys: tuple[Key, Array]) -> tuple[tuple[GameState, Array], tuple]:
        return _move(setup, starts, carry, *keys)

    plies = jnp.arange(settings.rollout_length)
    keys = jax.random.split(play_key, settings.rollout_length), plies
    (games, ply), (positions, finished) = jax.lax.scan(move, (self_play.games, self_play.ply), keys)
    history, recorded, samples, counts, predicted = _complete(self_play, positions, finished.is_cut, step)
    metrics = (
        _game_metrics(finished)
        | _limit_metrics(setup, finished)
        | _prediction_metrics(predicted, samples.outcome[:, 0], counts)
    )
    return SelfPlay(games, ply, recorded, history), samples, counts, metrics


def _move(
    setup: PlaySetup,
    starts: RandomOpenings,
    carry: tuple[GameState, Array],
    key: Key,
    index: Array,
) -> tuple[tuple[GameState, Array], tuple[Position, _Finished]]:
    """One ply of every game."""
    game, (games, ply) = setup.game, carry
    search_key, draw_key = jax.random.split(key)
    found, is_full = setup.search(search_key, games)
    action = choose_actions(found, setup.temperature, ply < setup.settings.temperature_plies, draw_key)
    with phase("step"):
        observation = jax.vmap(game.observe)(games)
        player = jax.vmap(game.player)(games)
        moved = jax.vmap(game.step)(games, action)
        is_over, outcome = jax.vmap(game.is_over)(moved), jax.vmap(game.outcome)(moved)
        cut = are_cut(game, setup.settings, is_over, ply + 1)
        ends = is_over | cut
        # Each slot takes another start at each ply, so that slots that end together begin differently. There are G
        # starts an update: where more games end than that, some begin alike.
        fresh = jax.tree.map(lambda x: jnp.roll(x, index, axis=0), (starts.games, starts.ply))
        games, next_ply = trees.where(ends, fresh, (moved, ply + 1))
    position = Position(
        *pack(game, observation, found.action_weights),
        found.values,
        found.network_values[:, 0].astype(jnp.float32),
        player.astype(jnp.int8),
        jnp.broadcast_to(is_full, is_over.shape),
        ends,
        outcome,
    )
    left_out = jnp.maximum(jnp.sum(observation.action_mask, axis=1) - (game.max_legal or game.num_actions), 0)
    return (games, next_ply), (position, _Finished(is_over, cut, ply + 1, left_out, outcome, *_search_change(found)))


def choose_actions(found: GumbelOutput, temperature: Array | float, is_drawn: Array, key: Key) -> Array:
    """[G] actions: drawn from the improved policy, or the search's own."""
    weights = found.action_weights
    logits = distributions.masked_logits(jnp.log(jnp.maximum(weights, 1e-30)) / temperature, weights > 0.0)
    return jnp.where(is_drawn, distributions.sample(key, logits), found.action)


def _search_change(found: GumbelOutput) -> tuple[Array, Array]:
    """(KL of the improved policy from the network's [G], whether both prefer the same action [G])."""
    weights = found.action_weights
    log_prior = jax.nn.log_softmax(found.prior_logits)
    terms = weights * (jnp.log(jnp.maximum(weights, 1e-30)) - log_prior)
    agrees = jnp.argmax(weights, axis=-1) == jnp.argmax(found.prior_logits, axis=-1)
    return jnp.sum(jnp.where(weights > 0.0, terms, 0.0), axis=-1), agrees


def _complete(
    self_play: SelfPlay, positions: Position, cut: Array, step: Array
) -> tuple[Position, Array, Sample, Array, Array]:
    """(the history [G, H, ...], positions in it [G], samples [M, ...], which of them count, the network's values [M]).

    M is G * (H + T). Games were cut at the plies `cut` [T, G].
    """
    before, longest = self_play.history, self_play.history.player.shape[1]
    played = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), positions)  # [T, G, ...] -> [G, T, ...]
    window = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), before, played)  # [G, H + T, ...]
    cut = jnp.concatenate([jnp.zeros(before.is_last.shape, bool), cut.T], axis=1)  # [G, H + T]
    ending = _endings(window, cut)
    index = jnp.arange(window.player.shape[1])[None]  # [1, H + T]
    waits = index >= longest - self_play.recorded[:, None]  # older rows were completed before, or never written
    samples = Sample(
        window.observation,
        window.policy,
        window.root_values,
        by_seat(ending.outcome, window.player),
        window.is_full,
        jnp.broadcast_to(step, window.player.shape),
    )
    recorded = jnp.sum(waits & ~ending.has_ended, axis=1, dtype=jnp.int32)
    history = jax.tree.map(lambda x: x[:, -longest:], window)
    counts = waits & ending.has_ended & ~ending.was_cut
    return history, recorded, *trees.merge_leading((samples, counts, window.predicted))


def _endings(window: Position, cut: Array) -> _Ending:
    """[G, W, ...] of positions [G, W, ...], the last ones of games that were cut marked in `cut` [G, W].

    Rows before a game's first one get the ending of that game too; the caller knows which rows count.
    """

    def back(later: _Ending, row: _Ending) -> tuple[_Ending, _Ending]:
        found: _Ending = trees.where(row.has_ended, row, later)
        return found, found

    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), _Ending(window.outcome, window.is_last, cut))  # [W, G, ...]
    first = jax.tree.map(lambda x: jnp.zeros_like(x[0]), rows)
    _, found = jax.lax.scan(back, first, rows, reverse=True)
    return _Ending(*(jnp.swapaxes(x, 0, 1) for x in found))


def _prediction_metrics(predicted: Array, outcome: Array, counts: Array) -> Metrics:
    """How the network's values of positions [M], when they were played, compare with the outcomes for the mover [M]."""
    weight = counts.astype(jnp.float32)
    return {
        # The slope of outcomes over predictions: below 1 the network is too sure, above 1 not sure enough.
        "trainer/value_calibration": jnp.sum(weight * predicted * outcome)
        / jnp.maximum(jnp.sum(weight * jnp.square(predicted)), 1e-6),
        "trainer/value_error": jnp.sum(weight * jnp.square(predicted - outcome)) / jnp.maximum(jnp.sum(weight), 1.0),
    }


def _limit_metrics(setup: PlaySetup, finished: _Finished) -> Metrics:
    """How often the limits of a game that has any were reached."""
    found = {}
    if cuts_games(setup.game, setup.settings.max_game_plies):
        found["actor/truncated_sum"] = jnp.sum(finished.is_cut * 1.0)
    if setup.game.max_legal is not None:
        found["trainer/actions_left_out_sum"] = jnp.sum(finished.left_out.astype(jnp.float32))
    return found


def _game_metrics(finished: _Finished) -> Metrics:
    """`actor/` metrics of the games that ended, and `trainer/` metrics of the searches.

    A game that was cut is no draw, and has one half of a point for each player.
    """
    done = finished.is_over | finished.is_cut
    length = finished.length.astype(jnp.float32)

    def total(x: Array) -> Array:
        return jnp.sum(jnp.where(done, x, 0.0))

    first_player = finished.outcome[..., 0]
    return {
        "actor/episodes_count": total(jnp.ones_like(length)),
        "actor/episode_length_sum": total(length),
        "actor/episode_length_max": jnp.max(length, initial=-jnp.inf, where=done),
        "actor/episode_length_min": jnp.min(length, initial=jnp.inf, where=done),
        "actor/draw_sum": total((finished.is_over & jnp.all(finished.outcome == 0.0, axis=-1)).astype(jnp.float32)),
        "actor/first_player_score_sum": total(0.5 * (first_player + 1.0)),
        "trainer/search_kl": jnp.mean(finished.search_kl),
        "trainer/search_agreement": jnp.mean(finished.agrees.astype(jnp.float32)),
    }
