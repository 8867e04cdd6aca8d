"""Matches and ratings as tables of text and as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stoix_like.evaluation.contests.match_records import MatchRecord
from stoix_like.evaluation.contests.matches import MatchSummary, elo_text
from stoix_like.evaluation.contests.openings import OpeningBook
from stoix_like.evaluation.contests.ratings import RatingTable
from stoix_like.evaluation.contests.seatings import ContestSummary
from stoix_like.runtime.arena.contestants import Contestant
from stoix_like.runtime.arena.league import Member
from stoix_like.runtime.console.text import DASH, aligned, interval_text, number_text, without_empty_columns

MATCH_HEAD = ["", "score", "95 % interval", "Elo", "won", "drawn", "lost", "first to move", "plies"]
_BETWEEN = "between"  # what is neither won nor lost by more than two players: drawn, or a place between


def book_text(book: OpeningBook) -> str:
    """`256 openings of 4 plies (1f0a…)`, with the hash by which they are known."""
    return f"{len(book.moves):,} openings of {book.plies} plies ({book.hash})"


def book_json(book: OpeningBook) -> dict[str, Any]:
    """What was played from, as plain JSON values."""
    return {"game": book.game, "openings": book.name, "opening_plies": book.plies, "opening_hash": book.hash}


def origin_lines(contestants: Sequence[Contestant]) -> list[str]:
    """Where the parameters of runs come from: `runs/four at update 400`."""
    runs = {one.run: one.update for one in contestants if one.run is not None}
    return [f"{run} at update {update:,}" for run, update in runs.items()]


def match_table(rows: Mapping[str, MatchSummary]) -> list[str]:
    """A line for the head and for each match, by its name. Scores are of the first contestant."""
    cells = [_match_cells(name, summary) for name, summary in rows.items()]
    is_of_two = all(len(summary.seat_scores) == 2 for summary in rows.values())
    return aligned([[_BETWEEN if name == "drawn" and not is_of_two else name for name in MATCH_HEAD], *cells])


def _match_cells(name: str, summary: MatchSummary) -> list[str]:
    score = summary.score
    return [
        name,
        f"{score.point:.3f}",
        interval_text(score.low, score.high),
        elo_text(summary),
        *(f"{count:,}" for count in (summary.wins, summary.draws, summary.losses)),
        f"{summary.first_score:.3f}",
        f"{summary.mean_plies:.1f}",
    ]


def match_json(summary: MatchSummary) -> dict[str, Any]:
    """The numbers of a match, for a file of JSON."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in summary._asdict().items()}


def contest_table(summary: ContestSummary) -> list[str]:
    """A line for the head and for each player of a contest, the highest rating first."""
    ratings = {row.name: row for row in summary.ratings.rows}
    seats = range(1, len(summary.standings[0].seat_scores) + 1)
    rows = [["", "rating", "95 % interval", "score", "95 % interval", "won", "last", *(f"seat {n}" for n in seats)]]
    for one in summary.standings:
        rating = ratings[one.name]
        rows.append(
            [
                one.name,
                f"{rating.rating:+.0f}",
                interval_text(rating.low, rating.high, "+.0f"),
                f"{one.score.point:.3f}",
                interval_text(one.score.low, one.score.high),
                f"{one.wins:,}",
                f"{one.losses:,}",
                *(f"{score:.3f}" for score in one.seat_scores),
            ]
        )
    return aligned(rows)


def contest_json(summary: ContestSummary) -> dict[str, Any]:
    """The numbers of a contest, for a file of JSON."""
    ratings = {row.name: row for row in summary.ratings.rows}
    players = {
        one.name: one._asdict()
        | {"score": list(one.score), "seat_scores": list(one.seat_scores)}
        | {"rating": ratings[one.name].rating, "low": ratings[one.name].low, "high": ratings[one.name].high}
        for one in summary.standings
    }
    return {"players": players, "mean_plies": summary.mean_plies, "num_unfinished": summary.num_unfinished}


def rating_table(table: RatingTable) -> list[str]:
    """A line for the head and for each player, the highest rating first."""
    rows = []
    for row in table.rows:
        is_anchor = row.name in table.anchors
        interval = "fixed" if is_anchor else interval_text(row.low, row.high, ".0f")
        rating = DASH if math.isnan(row.rating) else f"{row.rating:.0f}"
        rows.append([row.name, rating, interval, number_text(row.games), f"{row.score:.3f}"])
    head, rows = without_empty_columns(["", "rating", "95 % interval", "games", "score"], rows)
    return aligned([head, *rows])


def league_json(
    members: Sequence[Member], table: RatingTable, records: Sequence[MatchRecord]
) -> dict[str, list[dict[str, Any]]]:
    """The ratings, with what each player is, and the matches, as plain JSON values."""
    known = {member.contestant.name: member.contestant.origin | {"steps": member.steps} for member in members}
    rows = [row._asdict() for row in table.rows]
    ratings = [row | (known[row["name"]] if "run" in known[row["name"]] else {}) for row in rows]
    matches = [{name: value for name, value in r._asdict().items() if name != "by_opening"} for r in records]
    return {"ratings": ratings, "matches": matches}


def disconnected_note(names: Sequence[str]) -> str | None:
    """A note if players have no rating, because no chain of games leads to them; else None."""
    return f"no rating: no chain of games leads to {', '.join(names)}" if names else None
