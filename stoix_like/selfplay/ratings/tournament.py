"""A tournament of kept candidates, for the report. It never promotes."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from stoix_like.evaluation.contests import ratings
from stoix_like.evaluation.contests.elo import expected_score
from stoix_like.evaluation.contests.match_records import MatchRecord, match_record
from stoix_like.evaluation.contests.ratings import Rating
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import PARAMETERS
from stoix_like.selfplay.pipeline.candidates import NetworkVersion, read_version
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.ratings.report_matches import match_folder, match_path, scores_of
from stoix_like.selfplay.stages import evaluate
from stoix_like.selfplay.stages.evaluate import PlannedMatch

TOURNAMENT = "tournament.json"  # in the folder `evaluations` of a game
MEAN_RATING = 1000.0  # Elo, of a tournament's candidates
UNKNOWN = 1e9  # what a match of two is worth of whom nothing is known


class Entrant(NamedTuple):
    """A candidate of a tournament."""

    iteration: int
    version: NetworkVersion

    @property
    def name(self) -> str:
        """Such as `iteration 7`."""
        return f"iteration {self.iteration}"


def entrants(pipeline: Pipeline, most: int) -> list[Entrant]:
    """The newest champions and candidates whose parameters are kept, at most so many, in the order of iterations."""
    layout = pipeline.layout
    champions = [record.iteration for record in records.lineage(layout)]
    others = [number for number in reversed(layout.iterations()) if number not in champions]
    found = list[Entrant]()
    for number in [*champions[:1], *itertools.chain(*itertools.zip_longest(champions[1:], others))]:
        if number is None or len(found) == most:
            continue
        path, trained = layout.stage(number, "train") / PARAMETERS, read_manifest(layout.stage(number, "train"))
        known = trained.facts["candidate"] if trained is not None else None
        if number == 0:
            known = records.promoted_record(layout, 0).hash
        if known is not None and path.is_file():
            found.append(Entrant(number, read_version(pipeline, path, known)))
    return sorted(found, key=lambda entrant: entrant.iteration)


def play_tournament(pipeline: Pipeline, most: int, num_openings: int, per_match: int) -> dict[str, Any] | None:
    """What is written to `tournament.json`; None with fewer than two candidates.

    Games of earlier tournaments count. Beyond them, matches of `per_match` openings are played between those whose
    ratings are least certain, until `num_openings` are used up.
    """
    players = entrants(pipeline, most)
    if len({one.version.hash for one in players}) < 2:
        return None
    played = _earlier_matches(pipeline, players, per_match)
    most_games = float(len(pipeline.matches.book.moves) // per_match * per_match * pipeline.game.num_players)
    for _ in range(max(num_openings // per_match, len(players) - 1)):
        pair = next_pair([one.name for one in players], list(played.values()), most_games)
        if pair is None:
            break
        first, second = (next(one for one in players if one.name == name) for name in pair)
        openings = int(played[pair].games) // pipeline.game.num_players if pair in played else 0
        played[pair] = _tournament_match(pipeline, first, second, openings + per_match, per_match)
    table = ratings.rate(list(played.values()), mean=MEAN_RATING)
    found = {"time": time.time(), "openings": num_openings, "ratings": [row._asdict() for row in table.rows]}
    atomic_write_json(pipeline.layout.evaluations / TOURNAMENT, found)
    return found


def _earlier_matches(
    pipeline: Pipeline, players: Sequence[Entrant], per_match: int
) -> dict[tuple[str, str], MatchRecord]:
    """{(earlier, later candidate): their match} of those that have played before."""
    found = {}
    for first, second in itertools.combinations(players, 2):
        subject = evaluate.subject_of(pipeline, first.version.hash, second.version.hash)
        if pieces := len(list(match_path(pipeline.layout, subject, per_match).glob("piece_*.npz"))):
            openings = min(pieces * per_match, len(pipeline.matches.book.moves) // per_match * per_match)
            found[first.name, second.name] = _tournament_match(pipeline, first, second, openings, per_match)
    return found


def _tournament_match(
    pipeline: Pipeline, first: Entrant, second: Entrant, num_openings: int, per_match: int
) -> MatchRecord:
    subject = evaluate.subject_of(pipeline, first.version.hash, second.version.hash)
    folder = match_folder(pipeline.layout, subject, per_match)
    match = PlannedMatch(subject, folder, pipeline.matches.runner, (first.version.params, second.version.params))
    return match_record(first.name, second.name, scores_of(pipeline, match, num_openings, per_match))


def next_pair(names: Sequence[str], played: Sequence[MatchRecord], most_games: float) -> tuple[str, str] | None:
    """The two whose match would tell most; None if all pairs have played enough.

    Args:
        names: of the candidates.
        played: the matches so far, by pair.
        most_games: that a pair can play.
    """
    rows = ratings.rate(list(played), mean=MEAN_RATING).rows if played else ()
    rated = {row.name: row for row in rows if math.isfinite(row.high - row.low)}
    games = {(record.first, record.second): record.games for record in played}
    waiting = [pair for pair in itertools.combinations(names, 2) if games.get(pair, 0.0) < most_games]
    worth = {pair: _worth(rated.get(pair[0]), rated.get(pair[1]), games.get(pair, 0.0)) for pair in waiting}
    return max(worth, key=lambda pair: worth[pair], default=None)


def _worth(first: Rating | None, second: Rating | None, games: float) -> float:
    """Of a match: the widths of both intervals, times the chance of either result, less with each game played.

    Whoever has no rating yet plays first, against someone who has one, so that all are connected.
    """
    if first is None or second is None:
        return UNKNOWN if first is None and second is None else 2.0 * UNKNOWN
    odds = expected_score(-abs(first.rating - second.rating))
    return (first.high - first.low + second.high - second.low) * 4.0 * odds * (1.0 - odds) / (1.0 + games)
