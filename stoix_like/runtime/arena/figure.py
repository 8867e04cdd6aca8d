"""Ratings over training, with the anchors as horizontal lines."""

from __future__ import annotations

from pathlib import Path

from stoix_like.runtime.arena.league import League
from stoix_like.runtime.figures.panels import Line, Panel, plot_panels


def plot_ratings(league: League, out: Path) -> Path:
    """The path of the figure: a line for each run, with 95 % intervals.

    Raises ConfigError if `out` has an unknown format, and RunError if it cannot be written.
    """
    rows = {row.name: row for row in league.table.rows}
    lines = []
    for run in dict.fromkeys(member.run for member in league.members if member.run is not None):
        own = [member for member in league.members if member.run == run]
        found = [rows[member.contestant.name] for member in own]
        steps = [member.steps for member in own]
        lines.append(Line(str(run), steps, *zip(*((row.rating, row.low, row.high) for row in found), strict=True)))
    anchors = {m.contestant.name: rows[m.contestant.name].rating for m in league.members if m.run is None}
    panel = Panel(f"{league.game.name}: ratings with 95 % intervals", lines, anchors)
    return plot_panels([panel], out, "environment steps", "Elo", log_x=False)
