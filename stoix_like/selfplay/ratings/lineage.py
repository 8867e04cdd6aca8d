"""The ratings of all candidates of a pipeline, from the games that decided on them: champion → manifests → games.

Nothing is played: every match, those against anchors too, is read from disk, by the hashes of its manifest. Matches
against champions end when a sequential test decides, so their scores lie a little too far from one half, and so do the
distances between ratings that rest on few games.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stoix_like.errors import CheckpointError
from stoix_like.evaluation.contests import ratings
from stoix_like.evaluation.contests.match_records import MatchRecord, match_record
from stoix_like.evaluation.contests.ratings import Rating, RatingTable
from stoix_like.runtime.console.text import DASH, interval_text
from stoix_like.runtime.figures.panels import Line, Panel
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import Layout

CHAMPIONS = ("champion", "former champion")  # statuses
FIXED_RATING = 1000.0  # Elo, of the first anchor, or of the random parameters


class Candidate(NamedTuple):
    """What was decided on the candidate of an iteration."""

    iteration: int
    name: str  # `iteration 7`
    hash: str
    score: float | None  # against the champion of its time
    games: int
    status: str  # "champion", "former champion", "rolled back", "undecided", or as `records.status_of`


class Ancestry(NamedTuple):
    """Candidates in the order of the iterations, and the ratings of all of them."""

    candidates: list[Candidate]
    table: RatingTable


def read_ancestry(layout: Layout) -> Ancestry:
    """The ancestry of the champion.

    Raises:
        CheckpointError: a record, manifest or match is missing, damaged or was changed, or no match was played.
    """
    champions = [record.hash for record in records.lineage(layout)]
    first = records.promoted_record(layout, 0).hash
    names = {first: "iteration 0"}
    candidates = [Candidate(0, names[first], first, None, 0, _status(first, champions, None))]
    played, anchors = list[MatchRecord](), dict[str, None]()
    for number in (number for number in layout.iterations() if number > 0):
        trained, evaluated, decided = (
            read_manifest(layout.stage(number, name)) for name in ("train", "evaluate", "promote")
        )
        if trained is None:
            continue
        found = str(trained.facts["candidate"])
        names.setdefault(found, f"iteration {number}")
        match = None if evaluated is None else _match(layout, number, evaluated, names)
        if evaluated is not None:
            played += ([match] if match else []) + _anchor_records(layout, number, evaluated, names)
            anchors |= dict.fromkeys(evaluated.facts["anchors"])
        score = None if match is None else match.score / match.games
        if decided is not None and decided.inputs["train"] != trained.digest:
            decided = None  # it was on another candidate
        games, status = 0 if match is None else int(match.games), _status(found, champions, decided)
        candidates.append(Candidate(number, names[found], found, score, games, status))
    if not played:
        raise CheckpointError(f"{layout.root} has no games of evaluations", "finish an iteration with its evaluation")
    fixed = next(iter(anchors), "iteration 0")
    return Ancestry(candidates, ratings.rate(played, {fixed: FIXED_RATING}, mean=FIXED_RATING))


def _status(candidate: str, champions: Sequence[str], decided: Manifest | None) -> str:
    """What became of a candidate. `champions` are the hashes of the present champion and those before it."""
    if candidate in champions:
        return "champion" if candidate == champions[0] else "former champion"
    if decided is None:
        return "undecided"
    return "rolled back" if decided.facts["promoted"] else records.status_of(decided)


def _match(layout: Layout, number: int, evaluated: Manifest, names: dict[str, str]) -> MatchRecord | None:
    """The match of an evaluation; None if it was of a champion against itself."""
    facts = evaluated.facts
    return _record(layout, number, evaluated, facts["match"], facts["subject"], names) if facts["match"] else None


def _anchor_records(layout: Layout, number: int, evaluated: Manifest, names: dict[str, str]) -> list[MatchRecord]:
    found: dict[str, Any] = evaluated.facts["anchors"]
    return [_record(layout, number, evaluated, one["match"], one["subject"], names) for one in found.values()]


def _record(
    layout: Layout,
    number: int,
    evaluated: Manifest,
    files: Sequence[str],
    subject: Mapping[str, str],
    names: dict[str, str],
) -> MatchRecord:
    folder = layout.stage(number, "evaluate")
    pieces = [read_arrays(folder / name, evaluated.outputs[name]) for name in sorted(files)]
    first, second = (names.get(subject[who], subject[who]) for who in ("candidate", "champion"))
    return match_record(first, second, np.concatenate([piece["score"] for piece in pieces]))


def table_rows(ancestry: Ancestry) -> list[list[str]]:
    """The head, a row for each candidate with its rating, its match and what became of it, and those of the anchors."""
    rated = {row.name: row for row in ancestry.table.rows}
    rows = [["", "candidate", "rating", "95 % interval", "against the champion", "games", "status"]]
    for one in ancestry.candidates:
        score = DASH if one.score is None else f"{one.score:.3f}"
        rows.append([one.name, one.hash[:12], *_numbers(rated.get(one.name)), score, f"{one.games:,}", one.status])
    return [*rows, *([name, "", *_numbers(rated[name]), "", "", "anchor"] for name in anchors_of(ancestry))]


def _numbers(row: Rating | None) -> tuple[str, str]:
    """(rating, interval) as text."""
    return (DASH, DASH) if row is None else (f"{row.rating:.0f}", interval_text(row.low, row.high, ".0f"))


def anchors_of(ancestry: Ancestry) -> list[str]:
    """The engines that are rated beside the candidates."""
    known = {one.name for one in ancestry.candidates}
    return [row.name for row in ancestry.table.rows if row.name not in known]


def panel_of(title: str, ancestry: Ancestry) -> Panel:
    """Ratings over iterations, of champions and of all candidates, with the anchors as horizontal lines."""
    rated = {row.name: row for row in ancestry.table.rows}
    known = [one for one in ancestry.candidates if one.name in rated]
    lines = []
    for name, statuses in (("champions", CHAMPIONS), ("all candidates", None)):
        own = [one for one in known if statuses is None or one.status in statuses]
        rows = [rated[one.name] for one in own]
        y, low, high = ([getattr(row, field) for row in rows] for field in ("rating", "low", "high"))
        lines.append(Line(name, [one.iteration for one in own], y, low, high))
    return Panel(title, lines[::-1], {name: rated[name].rating for name in anchors_of(ancestry)})


def as_json(ancestry: Ancestry) -> list[dict[str, Any]]:
    """The candidates as plain JSON values, with their ratings; null where there is none."""
    rated = {row.name: row for row in ancestry.table.rows}
    found = []
    for one in ancestry.candidates:
        row = rated.get(one.name)
        rating = dict.fromkeys(("rating", "low", "high")) if row is None else row._asdict()
        found.append(one._asdict() | {name: rating[name] for name in ("rating", "low", "high")})
    return found
