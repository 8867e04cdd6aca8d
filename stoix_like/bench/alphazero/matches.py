"""What trained runs of a board game are worth: matches, moves that keep a position's value, ratings over time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.algorithms import tasks
from stoix_like.bench.alphazero import connect_four_solver
from stoix_like.bench.learning.trainings import RUNS
from stoix_like.bench.timing.measure import Measurement
from stoix_like.evaluation.contests import matches, openings
from stoix_like.evaluation.statistics import Interval, mean_interval, score_interval
from stoix_like.games import BoardGame
from stoix_like.runtime.arena import league
from stoix_like.runtime.arena.contestants import Contestant, ContestantSpec, load_contestant
from stoix_like.runtime.arena.match import MatchRunner
from stoix_like.runtime.console.messages import print_to_stderr
from stoix_like.runtime.console.text import interval_text
from stoix_like.runtime.runs.saved import SavedRun, load_run
from stoix_like.runtime.storage.atomic import atomic_write_json

FIRST_PLAYER_GAMES = 64  # from the empty board


class TrainedRuns(NamedTuple):
    """Runs of one training, a run per seed, with the parameters of their last checkpoint."""

    prefix: str  # of the rows
    game: BoardGame
    runs: Sequence[SavedRun]

    def contestants(self, num_simulations: int) -> list[Contestant]:
        """How each run plays with so many simulations; 0 is the network alone."""
        specs = [ContestantSpec(str(run.path), str(run.path), num_simulations) for run in self.runs]
        return [load_contestant(spec, self.game, run) for spec, run in zip(specs, self.runs, strict=True)]


def load_trained(prefix: str, paths: Sequence[Path]) -> TrainedRuns:
    """The runs of these folders."""
    runs = [load_run(str(path), "latest") for path in paths]
    return TrainedRuns(prefix, runs[0].env.game, runs)


def engine(game: BoardGame, name: str) -> Contestant:
    """An anchor by name."""
    return load_contestant(ContestantSpec(name, None), game, None)


def over_seeds(name: str, found: Sequence[Interval], unit: str, note: str) -> Measurement:
    """The mean over seeds; the spread is half its 95 % interval, and the note has each seed's own."""
    interval = mean_interval(np.array([one.point for one in found]))
    half = (interval.high - interval.low) / 2
    spread = float(half / interval.point) if len(found) > 1 and interval.point > 0 else None
    each = "; ".join(f"{one.point:.4f} {interval_text(one.low, one.high, '.4f')}" for one in found)
    return Measurement(name, float(interval.point), unit, spread, note=f"{note}; seeds {each}")


def match_row(
    trained: TrainedRuns, num_simulations: int, opponent: str, most_openings: int, plies: int | None = None
) -> Measurement:
    """The score of the runs against an anchor over pairs of games from openings of so many plies; by game unless given.

    The longer the openings, the more of them are won for one side whatever the other does, and the less can be scored.
    """
    game, second = trained.game, engine(trained.game, opponent)
    book = tasks.book(game, plies, most_openings)
    firsts = trained.contestants(num_simulations)
    player = MatchRunner(game, firsts[0].player, second.player, book)  # runs of one training play alike
    found = [matches.summarize(player.play(first.params, None, jax.random.key(0))) for first in firsts]
    counts = "; ".join(f"{one.wins}-{one.draws}-{one.losses}" for one in found)
    note = f"{found[0].num_games} games a seed from {book.name} ({book.hash}), wins-draws-losses {counts}"
    who = f"{num_simulations}_sims" if num_simulations else "network"
    name = f"{trained.prefix}/{who}/{opponent}" + ("" if plies is None else f"/{plies}_plies")
    return over_seeds(name, [one.score for one in found], "score", note)


def first_player_row(trained: TrainedRuns, num_simulations: int, opponent: str) -> Measurement:
    """The share of games won as first player from the empty board.

    The run plays without noise. Engines choose at random, but for the heuristic, which does so among equal moves alone:
    most of its games are the same, so their share has no interval.
    """
    game, second = trained.game, engine(trained.game, opponent)
    empty = openings.as_book(game, np.zeros((FIRST_PLAYER_GAMES, 0), np.int32))
    firsts = trained.contestants(num_simulations)
    player = MatchRunner(game, firsts[0].player, second.player, empty)
    scores = [player.play(first.params, None, jax.random.key(1)).score[:, 0] for first in firsts]  # [M], in seat 0
    won = [score_interval((np.asarray(score) == 1.0).astype(float)) for score in scores]
    if opponent == "heuristic":
        won = [Interval(one.point, float("nan"), float("nan")) for one in won]
    note = f"{FIRST_PLAYER_GAMES} games from the empty board as first player, {num_simulations} simulations"
    return over_seeds(f"{trained.prefix}/first_player/{opponent}", won, "wins", note)


def solved_positions(stones: Sequence[int], num_each: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """[(moves [num, k], moves that keep the value [num, 7])] of connect four by number of stones.

    They are made from their seed, 0, and solved once: the answers are kept beside the runs.
    """
    found = []
    for number in stones:
        moves = connect_four_solver.positions(num_each, number)
        path = RUNS / f"connect_four-{number}-stones-{num_each}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if kept.get("moves") != moves.tolist():
            kept = {"moves": moves.tolist(), "optimal": connect_four_solver.optimal_moves(moves).tolist()}
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_json(path, kept)
        found.append((moves, np.array(kept["optimal"], bool)))
    return found


def is_a_choice(moves: np.ndarray, optimal: np.ndarray) -> np.ndarray:
    """[num]: some legal move of connect four after the moves [num, k] is not among the `optimal` [num, 7]."""
    stones = (moves[:, :, None] == np.arange(connect_four_solver.COLUMNS)).sum(axis=1)  # [num, 7]
    is_legal = stones < connect_four_solver.ROWS
    chosen: np.ndarray = (is_legal & ~optimal).any(axis=1)
    return chosen


def kept_value_row(
    trained: TrainedRuns, num_simulations: int, solved: Sequence[tuple[np.ndarray, np.ndarray]], label: str
) -> Measurement:
    """The share of moves that keep the value of solved positions."""
    firsts = trained.contestants(num_simulations)
    act = jax.jit(lambda params, states: firsts[0].player(params, states, jax.random.key(0)))
    place = jax.jit(lambda moves: openings.positions(trained.game, moves))
    kept: list[Any] = []
    for first in firsts:
        actions = [np.asarray(act(first.params, place(moves))) for moves, _ in solved]
        right = [optimal[np.arange(len(action)), action] for action, (_, optimal) in zip(actions, solved, strict=True)]
        kept.append(np.concatenate(right))
    asks = np.concatenate([is_a_choice(moves, optimal) for moves, optimal in solved])
    hard = ", ".join(f"{one[asks].mean():.4f}" for one in kept)
    note = f"{len(asks)} positions; where some legal move does not keep it ({int(asks.sum())}): {hard}"
    who = f"{num_simulations}_sims" if num_simulations else "network"
    intervals = [score_interval(one.astype(float)) for one in kept]
    return over_seeds(f"{trained.prefix}/kept_value/{label}/{who}", intervals, "moves", note)


def rating_rows(
    trained: TrainedRuns, anchors: Sequence[str], num_simulations: int, most_openings: int
) -> Iterator[Measurement]:
    """Ratings of every checkpoint in a league of all runs and the anchors, and its scores against these."""
    paths = [str(run.path) for run in trained.runs]
    game, members = league.members_of(paths, anchors, num_simulations)
    book = tasks.book(game, most=most_openings)
    found = league.play_league(game, members, book, seed=0, report=print_to_stderr)
    ratings = {row.name: row for row in found.table.rows}
    for member in found.members:
        rating = ratings[member.contestant.name]
        scores = [record for record in found.records if record.first == rating.name and record.second in anchors]
        against = ", ".join(f"{one.second} {one.score / one.games:.3f}" for one in scores)
        note = f"{interval_text(rating.low, rating.high, '.0f')}, {anchors[0]} fixed; {len(book.moves)} openings"
        note += f"; {num_simulations} simulations, {member.steps:,} steps; scores: {against}" if member.run else ""
        where = f"{member.run}@{member.update}" if member.run else rating.name
        yield Measurement(f"{trained.prefix}/rating/{where}", rating.rating, "Elo", note=note)
