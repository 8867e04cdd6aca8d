"""Draws the figures of docs/benchmarks/ from the rows there: curves that a table of rows would hide.

`python docs/tools/benchmark_figures.py` draws those whose rows have changed; a test fails if one is out of date. The
metadata of a figure have the hash of what it shows, so another version of matplotlib changes no file.
"""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmark_tables import FOLDER, read_rows
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from stoix_like.bench.timing.measure import Measurement
from stoix_like.runtime.figures.panels import Line, Panel, plot_panels

_KEY = "rows"  # of the metadata


class Figure(NamedTuple):
    """What a figure shows: panels made of the rows of a file, and the labels of its axes."""

    file: str
    panels: Callable[[Sequence[Measurement]], list[Panel]]
    x_label: str
    y_label: str
    log_x: bool = False


def rating_panels(rows: Sequence[Measurement]) -> list[Panel]:
    """Ratings over positions of training, a line for each seed, and the engines."""
    game = next(row.name.split("/")[2] for row in rows if row.name.startswith("learning/alphazero/"))
    rated = [(row.name.rpartition("/rating/")[2], row) for row in rows if "/rating/" in row.name]
    runs = dict.fromkeys(name.partition("@")[0] for name, _ in rated if "@" in name)
    lines = []
    for run in runs:
        own = [row for name, row in rated if name.startswith(f"{run}@")]
        steps = [_found(r"([\d,]+) steps", row) for row in own]
        bounds = [(_found(r"\[([\d-]+), ", row), _found(r", ([\d-]+)\]", row)) for row in own]
        lines.append(Line(f"seed {run[-1]}", steps, [row.value for row in own], *zip(*bounds, strict=True)))
    engines = {name: row.value for name, row in rated if "@" not in name}
    return [Panel(f"{game}: ratings with 95 % intervals", lines, engines)]


def stage_panels(rows: Sequence[Measurement]) -> list[Panel]:
    """Ratings of all candidates over iterations, a line for each seed."""
    lines = []
    for row in rows:
        if row.name.endswith("/rating"):
            points = re.findall(r"(\d+)\*? (\d+)(?:,|$)", row.note.partition("became champion: ")[2])
            nothing = [math.nan] * len(points)
            numbers = [float(i) for i, _ in points], [float(rating) for _, rating in points]
            lines.append(Line(f"seed {row.name.split('/')[2][1:]}", *numbers, nothing, nothing))
    return [Panel("connect_four: ratings of the candidates", lines, {})]


def search_panels(rows: Sequence[Measurement]) -> list[Panel]:
    """Mean returns over the model steps that were taken, a panel for each network."""
    panels = []
    for run in dict.fromkeys(row.name.split("/")[1] for row in rows if row.name.startswith("search/")):
        own = [row for row in rows if row.name.startswith(f"search/{run}/")]
        searches = [row for row in own if "model steps" in row.note]
        lines = []
        for method in dict.fromkeys(row.name.split("/")[3] for row in searches):
            found = [row for row in searches if row.name.split("/")[3] == method]
            steps = [_found(r"([\d.]+) model steps", row) for row in found]
            half = [row.value * (row.spread or 0.0) for row in found]
            low, high = ([row.value + sign * h for row, h in zip(found, half, strict=True)] for sign in (-1, 1))
            lines.append(Line(method, steps, [row.value for row in found], low, high))
        policies = {f"{row.name.split('/')[3]} policy": row.value for row in own if row not in searches}
        panels.append(Panel(f"network of {run}", lines, policies))
    return panels


PUBLISHED = {"Jumanji's A2C, 30 hours on a TPU": 0.934}  # arXiv 2306.09884


def curve_panels(rows: Sequence[Measurement]) -> list[Panel]:
    """Scores over minutes of wall-clock: of each preset the median of the seeds, between the lowest and the highest."""
    lines = []
    points: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for row in rows:
        if row.name.startswith("curve/"):
            preset, _, steps = row.name.removeprefix("curve/").rsplit("/", 2)
            minutes = _found(r"after ([\d.]+) s", row) / 60.0
            points.setdefault(preset, {}).setdefault(int(steps), []).append((minutes, row.value))
    for preset, of_steps in points.items():
        found = [list(zip(*seeds, strict=True)) for seeds in of_steps.values()]
        scores = [values for _, values in found]
        median = [statistics.median(values) for values in scores]
        x = [statistics.median(minutes) for minutes, _ in found]
        lines.append(Line(preset, x, median, [min(values) for values in scores], [max(values) for values in scores]))
    return [Panel("BinPack-v2 on one core, the policy alone", lines, PUBLISHED)]


FIGURES = {
    "learning_curves.png": Figure(
        "learning_curves.json", curve_panels, "minutes, compilation included", "volume packed", log_x=True
    ),
    "connect_four_ratings.png": Figure("alphazero_connect_four.json", rating_panels, "positions", "Elo"),
    "othello_ratings.png": Figure("alphazero_othello.json", rating_panels, "positions", "Elo"),
    "stages_ratings.png": Figure("selfplay_learning.json", stage_panels, "iteration", "Elo"),
    "search.png": Figure(
        "search.json",
        search_panels,
        "measured model steps per decision",
        "mean return, 95 % interval",
        log_x=True,
    ),
}


def _found(pattern: str, row: Measurement) -> float:
    match = re.search(pattern, row.note)
    if match is None:
        raise ValueError(f"{row.name}: no {pattern} in '{row.note}'")
    return float(match[1].replace(",", ""))


def digest(figure: Figure, folder: Path = FOLDER) -> str:
    """A hash of all that a figure shows."""
    return digest_of(figure.panels(read_rows(folder / figure.file)), figure.x_label, figure.y_label, figure.log_x)


def digest_of(*shown: object) -> str:
    """A hash of panels and the labels of their axes."""
    return hashlib.sha256(repr(shown).encode()).hexdigest()


def drawn_digest(path: Path) -> str | None:
    """The hash of what a drawn figure shows; None if there is no such file."""
    if not path.exists():
        return None
    with Image.open(path) as image:
        return str(image.info.get(_KEY))


def draw(path: Path, digest: str, panels: Sequence[Panel], x_label: str, y_label: str, **style: Any) -> None:
    """Draws a figure with the hash of what it shows. The style is that of `plot_panels`."""
    plot_panels(panels, path, x_label, y_label, **style)
    metadata = PngInfo()
    metadata.add_text(_KEY, digest)
    with Image.open(path) as image:
        image.load()
        image.convert("P", palette=Image.Palette.ADAPTIVE).save(path, optimize=True, pnginfo=metadata)


if __name__ == "__main__":
    for name, figure in FIGURES.items():
        if drawn_digest(FOLDER / name) != digest(figure):
            panels = figure.panels(read_rows(FOLDER / figure.file))
            draw(FOLDER / name, digest(figure), panels, figure.x_label, figure.y_label, log_x=figure.log_x)
