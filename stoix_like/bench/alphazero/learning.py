"""What AlphaZero's presets learn in a time: three seeds a game, trained if their runs do not exist yet.

Strength is told by matches with frozen openings, each from both seats, by the share of moves that keep the value of
positions that a solver knows, and by ratings of all checkpoints in one league.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from stoix_like.bench.alphazero import matches as measured
from stoix_like.bench.alphazero.matches import TrainedRuns
from stoix_like.bench.alphazero.tic_tac_toe import solving_rows
from stoix_like.bench.alphazero.trainings import TimedTraining, finished_run
from stoix_like.bench.timing.measure import Measurement

GAMES = ("tic_tac_toe", "connect_four", "othello")
RINGRIFT = ("hex8", "square8", "square8:4")
ANCHORS = ("random", "heuristic", "mcts-128", "mcts-512", "mcts-2048")
SIMULATIONS = (1, 8, 32, 128, 512)  # whose strength is compared
LEAGUE_OPENINGS = 64  # of each of a league's many matches
RINGRIFT_OPENINGS = 200  # of a match: 400 games for two players
SHORT_OPENINGS = (2, 3)  # plies; all positions of connect four after these, beside those after 4
POSITIONS = {
    "16_to_20": ((16, 17, 18, 19, 20), 60),
    "12": ((12,), 60),
}  # {stones: (numbers of them, positions of each)}


class LearningOptions(NamedTuple):
    """What is trained and measured.

    Attributes:
        games: of `GAMES`, or of `RINGRIFT` in suites that learn it.
        minutes: of training, per seed; tic-tac-toe has its preset's updates.
        seeds: one run each.
        adapter: the network family, such as `board`; None for the preset's own.
        openings: most of a match; connect four has 568.
    """

    games: tuple[str, ...] = GAMES
    minutes: float = 30.0
    seeds: tuple[int, ...] = (0, 1, 2)
    adapter: str | None = None
    openings: int = 568


def learning_suite(options: LearningOptions) -> Iterator[Measurement]:
    """The rows of each game in turn."""
    rows = {"tic_tac_toe": tic_tac_toe_rows, "connect_four": connect_four_rows, "othello": othello_rows}
    for game in options.games:
        yield from rows[game](options) if game in rows else ringrift_rows(game, options)


def tic_tac_toe_rows(options: LearningOptions) -> Iterator[Measurement]:
    """Seconds until no game is lost, exhaustively."""
    return solving_rows(options.seeds, options.adapter)


def connect_four_rows(options: LearningOptions) -> Iterator[Measurement]:
    """Matches against anchors, from the empty board, by simulations; moves that keep the value; ratings over time."""
    trained = yield from _trained("connect_four", options)
    for simulations, anchor in ((32, "mcts-2048"), (0, "mcts-512")):
        yield measured.match_row(trained, simulations, anchor, options.openings)
        for plies in SHORT_OPENINGS:
            yield measured.match_row(trained, simulations, anchor, options.openings, plies)
    for label, (stones, number) in POSITIONS.items():
        solved = measured.solved_positions(stones, number)
        for simulations in (0, 16, 32):
            yield measured.kept_value_row(trained, simulations, solved, label)
    for anchor in ANCHORS:
        yield measured.first_player_row(trained, 32, anchor)
    league_openings = min(LEAGUE_OPENINGS, options.openings)
    for simulations in SIMULATIONS:
        yield measured.match_row(trained, simulations, "mcts-512", league_openings)
    yield from measured.rating_rows(trained, ("heuristic", "mcts-128", "mcts-512"), 32, league_openings)


def othello_rows(options: LearningOptions) -> Iterator[Measurement]:
    """Matches of network and search against anchors, and the curve of ratings."""
    trained = yield from _trained("othello", options)
    openings = min(LEAGUE_OPENINGS, options.openings)
    for anchor in ("random", "heuristic", "mcts-128"):
        for simulations in (0, 16):
            yield measured.match_row(trained, simulations, anchor, openings)
    yield from measured.rating_rows(trained, ("heuristic", "random"), 16, openings)


def ringrift_rows(game: str, options: LearningOptions) -> Iterator[Measurement]:
    """Matches of network and search against the heuristic, of the search against plain search too, and ratings."""
    trained = yield from _trained(game, options)
    openings = min(RINGRIFT_OPENINGS, options.openings)
    for simulations, anchor in ((32, "heuristic"), (32, "mcts-512"), (0, "heuristic")):
        yield measured.match_row(trained, simulations, anchor, openings)
    yield from measured.rating_rows(trained, ("heuristic", "random"), 32, min(LEAGUE_OPENINGS, openings))


def _trained(game: str, options: LearningOptions) -> Generator[Measurement, None, TrainedRuns]:
    """The rows of the trainings; returns the runs."""
    training = TimedTraining(game, options.minutes, options.adapter)
    prefix = f"learning/alphazero/{game}/{options.adapter or 'preset'}"
    paths = []
    for seed in options.seeds:
        run = finished_run(training, seed)
        paths.append(run.path)
        note = f"{run.updates:,} of {run.planned:,} planned updates, {run.steps:,} positions; {run.path}"
        yield Measurement(f"{prefix}/training/s{seed}", run.seconds / 60.0, "min", note=note)
    return measured.load_trained(prefix, paths)
