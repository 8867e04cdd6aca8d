"""Contests of several players over openings: each opening is played in every order in which they can sit.

Matches have one player in one seat and another in all others (`matches`); here every seat has another player. What an
opening or a seat favours cancels within the games of an opening, so intervals of scores count openings.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.evaluation.contests.matches import group_interval
from stoix_like.evaluation.contests.openings import positions
from stoix_like.evaluation.contests.ratings import Ranking, RatingTable, rate_rankings
from stoix_like.evaluation.statistics import Interval
from stoix_like.games import BoardGame, GameState, Player
from stoix_like.ops import trees
from stoix_like.types import Array, Key, Params


class SeatedGames(NamedTuple):
    """N games on their way."""

    state: GameState  # [N, ...]
    seats: Array  # [N, P] int32, the player in each seat
    plies: Array  # [N] int32, those of the opening included
    step: Array  # [] int32, so far


class SeatedResults(NamedTuple):
    """One row per opening, one column per order. Of a game that was cut short the outcome is 0 for all."""

    outcome: Array  # [M, S, P] float32, by seat
    seats: Array  # [S, P] int32, the player in each seat
    plies: Array  # [M, S] int32, of the whole game
    is_unfinished: Array  # [M, S] bool


class Standing(NamedTuple):
    """What a contest says of one player, in floats and integers of Python.

    Attributes:
        name: of the player.
        score: mean, from 0 to 1, with bounds over openings: (outcome + 1) / 2.
        games: that it played.
        wins: games with the score 1.
        losses: games with the score 0.
        seat_scores: [P], its mean score by its seat.
    """

    name: str
    score: Interval
    games: int
    wins: int
    losses: int
    seat_scores: tuple[float, ...]


class ContestSummary(NamedTuple):
    """The players, the highest rating first, and their Plackett-Luce ratings."""

    standings: tuple[Standing, ...]
    ratings: RatingTable
    mean_plies: float
    num_unfinished: int


def orders(num_players: int, num_seats: int) -> np.ndarray:
    """[S, P] int32: all orders in which `num_seats` of the players can sit."""
    return np.array(list(itertools.permutations(range(num_players), num_seats)), np.int32)


def begin(game: BoardGame, moves: Array | np.ndarray, seats: np.ndarray) -> SeatedGames:
    """The M * S games before their first step, from openings [M, k] and orders [S, P]."""
    state = positions(game, jnp.asarray(moves))  # [M, ...]
    num_openings, opening_plies = moves.shape
    state = jax.tree.map(lambda leaf: jnp.repeat(leaf, len(seats), axis=0), state)
    plies = jnp.full((num_openings * len(seats),), opening_plies, jnp.int32)
    return SeatedGames(state, jnp.tile(jnp.asarray(seats), (num_openings, 1)), plies, jnp.int32(0))


def num_over(game: BoardGame, playing: SeatedGames) -> Array:
    """[] int32: how many games are over."""
    return jnp.sum(jax.vmap(game.is_over)(playing.state))


def advance(
    game: BoardGame,
    players: Sequence[Player],
    params: Sequence[Params],
    playing: SeatedGames,
    key: Key,
    most_steps: Array | int,
) -> SeatedGames:
    """The games when all are over, or `most_steps` actions of each later. Pure; jit it.

    Every player looks at every game, and the one whose turn it is is heard. Each step has a key of its own, so with the
    same `key` the games are the same whether they are played at once or in pieces.
    """
    end = playing.step + most_steps

    def goes_on(playing: SeatedGames) -> Array:
        return (num_over(game, playing) < len(playing.plies)) & (playing.step < end)

    def step(playing: SeatedGames) -> SeatedGames:
        state, seats, plies, number = playing
        keys = jax.random.split(jax.random.fold_in(key, number), len(players))
        answers = jnp.stack([play(own, state, k) for play, own, k in zip(players, params, keys, strict=True)])  # [K, N]
        games = jnp.arange(len(plies))
        action = answers[seats[games, jax.vmap(game.player)(state)], games]
        goes_on = ~jax.vmap(game.is_over)(state)
        moved = trees.where(goes_on, jax.vmap(game.step)(state, action), state)
        return SeatedGames(moved, seats, plies + goes_on, number + 1)

    played: SeatedGames = jax.lax.while_loop(goes_on, step, playing)
    return played


def results(game: BoardGame, playing: SeatedGames, num_orders: int) -> SeatedResults:
    """What has come out so far; games that go on are marked as unfinished."""

    def table(values: Array) -> Array:
        return values.reshape(-1, num_orders, *values.shape[1:])

    outcome, is_over = jax.vmap(game.outcome)(playing.state), jax.vmap(game.is_over)(playing.state)
    return SeatedResults(table(outcome), playing.seats[:num_orders], table(playing.plies), table(~is_over))


def summarize(found: SeatedResults, names: Sequence[str]) -> ContestSummary:
    """The numbers of a contest, on the host. Ratings are of mean 0; they take games for independent."""
    outcome, seats = np.asarray(found.outcome, np.float64), np.asarray(found.seats)  # [M, S, P], [S, P]
    rankings = [
        Ranking(tuple(names[player] for player in order), tuple(row.tolist()))
        for rows in outcome
        for order, row in zip(seats, rows, strict=True)
    ]
    ratings = rate_rankings(rankings)
    place = {row.name: index for index, row in enumerate(ratings.rows)}
    standings = [_standing(name, (outcome + 1.0) / 2.0, seats == player) for player, name in enumerate(names)]
    standings.sort(key=lambda standing: place[standing.name])
    mean_plies, unfinished = float(np.mean(found.plies)), int(np.sum(found.is_unfinished))
    return ContestSummary(tuple(standings), ratings, mean_plies, unfinished)


def _standing(name: str, scores: np.ndarray, is_seated: np.ndarray) -> Standing:
    """Of the player who sits where `is_seated` [S, P] is true, from scores [M, S, P]."""
    own = scores[:, is_seated]  # [M, games of an opening]
    seat_scores = tuple(float(scores[:, is_seated[:, seat], seat].mean()) for seat in range(is_seated.shape[1]))
    interval = group_interval(own.mean(axis=1), own.shape[1])
    return Standing(name, interval, own.size, int((own == 1.0).sum()), int((own == 0.0).sum()), seat_scores)
