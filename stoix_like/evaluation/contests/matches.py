"""Matches of two players over openings: each opening is played once with A in every seat, while B has the others.

The games of one opening are a pair (a group, of several players): what an opening favours cancels within it, so
summaries count pairs and never single games.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.evaluation import statistics
from stoix_like.evaluation.contests.elo import elo_difference
from stoix_like.evaluation.contests.match_records import possible_means
from stoix_like.evaluation.contests.openings import positions
from stoix_like.evaluation.statistics import Interval
from stoix_like.games import BoardGame, GameState, Player
from stoix_like.ops import trees
from stoix_like.types import Array, Key, Params


class Games(NamedTuple):
    """N games on their way."""

    state: GameState  # [N, ...]
    seat: Array  # [N] int32, of player A; B has all others
    plies: Array  # [N] int32, those of the opening included
    moves: Array  # [N, H] int16, the actions so far, those of the opening included; -1 beyond


class MatchState(NamedTuple):
    """A match on its way.

    Of two players the games stand in two halves: in every step A acts on one, B on the other, and then they exchange
    them. A half begins where its player is to move, so in a game whose players alternate nobody waits. Of more players
    all P * M games stand in one part, on which both act.
    """

    parts: tuple[Games, ...]
    first: Array  # [M] int32, the seat that moves first after the opening
    step: Array  # [] int32, so far


class MatchResults(NamedTuple):
    """One row per opening, one column per seat of A. Of a game that was cut short the outcome is 0, as of a draw."""

    score: Array  # [M, P] float32, of A: 1 for a win, 0.5 for a draw, 0 for a loss; (outcome + 1) / 2
    outcome: Array  # [M, P, P] float32, of every seat, the last axis
    plies: Array  # [M, P] int32, of the whole game, those of the opening included
    first: Array  # [M] int32, the seat that moves first after the opening
    is_unfinished: Array  # [M, P] bool
    moves: Array  # [M, P, H] int16, the actions of the whole game; -1 beyond its end


class MatchSummary(NamedTuple):
    """What a match says, in floats and integers of Python. Scores are A's, from 0 to 1; a group is an opening's games.

    Attributes:
        num_groups: openings, M.
        num_games: M * P.
        score: mean, with the bounds of `statistics.bounded_interval` over groups.
        standard_error: of the mean score over groups; NaN of one group.
        elo: the difference at which the score is expected, A - B, with its bounds; infinite where the score is 0 or 1.
        group_counts: [2P + 1], groups by the points that A made in them, 0, 1/2, ..., P, rounded to the nearest. Of two
            players the pentanomial.
        wins: games with the score 1.
        draws: all games between.
        losses: games with the score 0.
        first_score: the mean score of who moves first after the opening, whoever it is.
        seat_scores: [P], A's mean score by its seat.
        mean_plies: of a game, the opening's included.
        num_unfinished: games that were cut short.
        group_variance_share: the variance of a group's mean score over that of as many independent games with the
            variance of all games here; NaN if that is 0. Below 1, openings favour a side.
    """

    num_groups: int
    num_games: int
    score: Interval
    standard_error: float
    elo: Interval
    group_counts: tuple[int, ...]
    wins: int
    draws: int
    losses: int
    first_score: float
    seat_scores: tuple[float, ...]
    mean_plies: float
    num_unfinished: int
    group_variance_share: float


def play_pairs(
    game: BoardGame,
    player_a: Player,
    player_b: Player,
    params_a: Params,
    params_b: Params,
    moves: Array,
    key: Key,
    *,
    most_steps: int | None = None,
) -> MatchResults:
    """Results [M, P] of A against B from the openings `moves` [M, k]. Pure; jit it, with the parameters as arguments.

    Args:
        game: of P players.
        player_a: the one that is scored.
        player_b: all its opponents.
        params_a: of A.
        params_b: of B.
        moves: legal ones that leave the game undecided, such as `openings(game, k).moves`.
        key: of the match.
        most_steps: after which games are cut; twice `game.max_plies`, by when all are over, unless given.
    """
    playing = begin(game, moves)
    most_steps = 2 * game.max_plies if most_steps is None else most_steps
    playing = advance(game, (player_a, player_b), (params_a, params_b), playing, key, most_steps)
    return results(game, playing)


def begin(game: BoardGame, moves: Array | np.ndarray) -> MatchState:
    """The match before its first step, from openings [M, k]."""
    state = positions(game, jnp.asarray(moves))
    num_openings, opening_plies = moves.shape
    first = jax.vmap(game.player)(state)  # [M]
    plies = jnp.full((num_openings,), opening_plies, jnp.int32)
    played = (
        jnp.full((num_openings, game.max_plies), -1, jnp.int16).at[:, :opening_plies].set(jnp.asarray(moves, jnp.int16))
    )
    if game.num_players == 2:
        parts: tuple[Games, ...] = (Games(state, first, plies, played), Games(state, 1 - first, plies, played))
    else:
        seat = jnp.repeat(jnp.arange(game.num_players, dtype=jnp.int32), num_openings)  # [P * M]
        rows = state, plies, played
        state, plies, played = jax.tree.map(lambda x: jnp.tile(x, (game.num_players,) + (1,) * (x.ndim - 1)), rows)
        parts = (Games(state, seat, plies, played),)
    return MatchState(parts, first, jnp.int32(0))


def num_over(game: BoardGame, playing: MatchState) -> Array:
    """[] int32: how many of the P * M games are over."""
    return jnp.sum(jnp.concatenate([jax.vmap(game.is_over)(part.state) for part in playing.parts]))


def is_finished(game: BoardGame, playing: MatchState) -> Array:
    """[] bool: every game is over."""
    return num_over(game, playing) == sum(len(part.plies) for part in playing.parts)


def advance(
    game: BoardGame,
    players: tuple[Player, Player],
    params: tuple[Params, Params],
    playing: MatchState,
    key: Key,
    most_steps: Array | int,
) -> MatchState:
    """The match when all games are over, or `most_steps` steps later. Pure; jit it.

    Each step has a key of its own, so with the same `key` it is the same whether it is played at once or in pieces.

    Args:
        game: as given to `begin`.
        players: A and B.
        params: theirs.
        playing: from `begin`, or from the call before.
        key: of the match, the same in every call.
        most_steps: of this call. A step has at most one action of each player in each game, and of two players an
            action in every second step if the players do not alternate.
    """
    end = playing.step + most_steps

    def goes_on(playing: MatchState) -> Array:
        return ~is_finished(game, playing) & (playing.step < end)

    def step(playing: MatchState) -> MatchState:
        keys = jax.random.split(jax.random.fold_in(key, playing.step))
        if len(playing.parts) == 1:
            parts: tuple[Games, ...] = (_both_act(game, players, params, playing.parts[0], keys),)
        else:
            acted = zip(playing.parts, players, params, keys, (True, False), strict=True)
            of_a, of_b = (_act(game, part, player(own, part.state, k), is_a) for part, player, own, k, is_a in acted)
            parts = (of_b, of_a)
        return MatchState(parts, playing.first, playing.step + 1)

    played: MatchState = jax.lax.while_loop(goes_on, step, playing)
    return played


def _both_act(
    game: BoardGame, players: tuple[Player, Player], params: tuple[Params, Params], games: Games, keys: Key
) -> Games:
    of_a, of_b = (player(own, games.state, key) for player, own, key in zip(players, params, keys, strict=True))
    is_as = jax.vmap(game.player)(games.state) == games.seat
    return _step(game, games, jnp.where(is_as, of_a, of_b), jnp.ones(is_as.shape, bool))


def _act(game: BoardGame, games: Games, action: Array, is_a: bool) -> Games:
    """The games after the actions [N] of A or B, where it is their turn."""
    is_as = jax.vmap(game.player)(games.state) == games.seat
    return _step(game, games, action, is_as == is_a)


def _step(game: BoardGame, games: Games, action: Array, moves: Array) -> Games:
    moves = moves & ~jax.vmap(game.is_over)(games.state)
    state = trees.where(moves, jax.vmap(game.step)(games.state, action), games.state)
    place = jnp.where(moves, games.plies, game.max_plies)  # dropped where nobody moves
    recorded = games.moves.at[jnp.arange(len(place)), place].set(action.astype(jnp.int16), mode="drop")
    return games._replace(state=state, plies=games.plies + moves, moves=recorded)


def results(game: BoardGame, playing: MatchState) -> MatchResults:
    """What has come out so far; games that go on are marked as unfinished."""
    num_openings, num_players = playing.first.shape[0], game.num_players
    games: Games = jax.tree.map(lambda *parts: jnp.concatenate(parts), *playing.parts)  # [P * M]
    opening = jnp.arange(num_openings * num_players) % num_openings

    def table(values: Array) -> Array:
        """Values [P * M, ...] at their opening and the seat of A, [M, P, ...]."""
        empty = jnp.zeros((num_openings, num_players, *values.shape[1:]), values.dtype)
        return empty.at[opening, games.seat].set(values)

    outcome = table(jax.vmap(game.outcome)(games.state))  # [M, P, P]
    of_a = jnp.diagonal(outcome, axis1=1, axis2=2)  # [M, P]
    is_unfinished = ~table(jax.vmap(game.is_over)(games.state))
    score, plies, moves = (of_a + 1.0) / 2.0, table(games.plies), table(games.moves)
    return MatchResults(score, outcome, plies, playing.first, is_unfinished, moves)


def summarize(results: MatchResults, confidence: float = 0.95) -> MatchSummary:
    """The numbers of a match, on the host. Intervals and errors are over groups of games, never over games.

    Raises:
        ValueError: a match without openings; a confidence outside (0, 1).
    """
    found = jax.device_get(results)
    scores = np.asarray(found.score, np.float64)  # [M, P]
    num_groups, num_seats = scores.shape
    groups = scores.mean(axis=1)  # [M]
    interval = group_interval(groups, num_seats, confidence)
    wins, losses = int((scores == 1.0).sum()), int((scores == 0.0).sum())
    several = num_groups > 1
    single_variance = scores.var(ddof=1)
    share = groups.var(ddof=1) * num_seats / single_variance if several and single_variance > 0 else float("nan")
    counts = np.bincount(np.rint(2 * scores.sum(axis=1)).astype(int), minlength=2 * num_seats + 1)
    first = np.take_along_axis(found.outcome, found.first[:, None, None], axis=2)  # [M, P, 1]
    return MatchSummary(
        num_groups=num_groups,
        num_games=scores.size,
        score=interval,
        standard_error=float(groups.std(ddof=1) / num_groups**0.5) if several else float("nan"),
        elo=Interval(*map(elo_difference, interval)),
        group_counts=tuple(counts.tolist()),
        wins=wins,
        draws=scores.size - wins - losses,
        losses=losses,
        first_score=float((np.mean(first, dtype=np.float64) + 1.0) / 2.0),
        seat_scores=tuple(scores.mean(axis=0).tolist()),
        mean_plies=float(np.mean(found.plies)),
        num_unfinished=int(found.is_unfinished.sum()),
        group_variance_share=float(share),
    )


def group_interval(groups: np.ndarray, num_seats: int, confidence: float = 0.95) -> Interval:
    """(mean, low, high) of mean scores of groups [M] of `num_seats` games, one virtual group added for the width."""
    return statistics.bounded_interval(groups, possible_means(num_seats), confidence)


def elo_text(summary: MatchSummary) -> str:
    """The difference in Elo as a person writes it: `+35 [-12, +83]`, or `at least +402` of a score of 1."""
    point, low, high = summary.elo
    if np.isposinf(point) and np.isfinite(low):
        return f"at least {low:+.0f}"
    if np.isneginf(point) and np.isfinite(high):
        return f"at most {high:+.0f}"
    return f"{point:+.0f} [{low:+.0f}, {high:+.0f}]"
