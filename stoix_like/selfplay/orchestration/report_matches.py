"""Matches for the report, which never promote: champions against anchors, and a tournament of kept candidates.

Their games stand below `evaluations/`, apart from those that decisions rest on, and are never learned from.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoix_like.config.alphazero_checks import anchor_names
from stoix_like.evaluation import matches, ratings
from stoix_like.evaluation.elo import expected_score
from stoix_like.evaluation.match_records import MatchRecord, match_record
from stoix_like.evaluation.promotion import MatchSubject
from stoix_like.evaluation.ratings import Rating
from stoix_like.runtime.stages.damage import DamagedOutputError
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.storage.signed_json import json_digest
from stoix_like.selfplay import evaluate, evidence, records, restoring
from stoix_like.selfplay.candidates import NetworkVersion, read_champion, read_version
from stoix_like.selfplay.evaluate import PlannedMatch
from stoix_like.selfplay.folders import PARAMETERS, Layout
from stoix_like.selfplay.orchestration.reports import SHADOW, TOURNAMENT
from stoix_like.selfplay.pipeline import Pipeline

MEAN_RATING = 1000.0  # Elo, of a tournament's candidates
UNKNOWN = 1e9  # what a match of two is worth of whom nothing is known


def shadow_evaluation(pipeline: Pipeline, openings: int) -> dict[str, Any]:
    """What is written to `shadow.json`: the scores of the champion against its anchors, with so many openings more."""
    record, champion = read_champion(pipeline)
    found: dict[str, Any] = {
        "champion": champion.hash,
        "iteration": record.iteration,
        "time": time.time(),
        "anchors": {},
    }
    for name in anchor_names(pipeline.config.promotion.match_anchors):
        subject = evaluate.subject_of(pipeline, champion.hash, name)
        folder = _match_folder(pipeline.layout, subject, openings)
        number = _next_openings(pipeline, folder, openings)
        match = PlannedMatch(subject, folder, pipeline.anchor_player(name), (champion.params, None))
        scores = _scores(pipeline, match, number, openings)
        score, low, high = map(float, matches.group_interval(scores.mean(axis=1), scores.shape[1]))
        found["anchors"][name] = {"score": score, "low": low, "high": high, "games": int(scores.size)}
    atomic_write_json(pipeline.layout.evaluations / SHADOW, found)
    return found


def _match_path(layout: Layout, subject: MatchSubject, per_piece: int) -> Path:
    """The folder of a match in pieces of so many openings."""
    return layout.evaluations / json_digest(subject._asdict() | {"openings": per_piece})[:16]


def _match_folder(layout: Layout, subject: MatchSubject, per_piece: int) -> Path:
    folder = _match_path(layout, subject, per_piece)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _next_openings(pipeline: Pipeline, folder: Path, openings: int) -> int:
    """How many openings a match has when it is played on, at most all of the book."""
    pieces = len(list(folder.glob("piece_*.npz")))
    return min((pieces + 1) * openings, len(pipeline.book.moves))


def _scores(pipeline: Pipeline, match: PlannedMatch, num_openings: int, per_piece: int) -> np.ndarray:
    """[M, P] scores of a match of so many openings."""
    files = evaluate.play_match(pipeline, match, num_openings, per_piece, None)
    try:
        return evidence.read_evidence(pipeline, list(files.items()), match.subject).scores
    except DamagedOutputError as damage:
        restoring.set_aside(pipeline, damage)
        return _scores(pipeline, match, num_openings, per_piece)


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
    most_games = float(len(pipeline.book.moves) // per_match * per_match * pipeline.game.num_players)
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
        if pieces := len(list(_match_path(pipeline.layout, subject, per_match).glob("piece_*.npz"))):
            openings = min(pieces * per_match, len(pipeline.book.moves) // per_match * per_match)
            found[first.name, second.name] = _tournament_match(pipeline, first, second, openings, per_match)
    return found


def _tournament_match(
    pipeline: Pipeline, first: Entrant, second: Entrant, num_openings: int, per_match: int
) -> MatchRecord:
    subject = evaluate.subject_of(pipeline, first.version.hash, second.version.hash)
    folder = _match_folder(pipeline.layout, subject, per_match)
    match = PlannedMatch(subject, folder, pipeline.match_player, (first.version.params, second.version.params))
    return match_record(first.name, second.name, _scores(pipeline, match, num_openings, per_match))


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
