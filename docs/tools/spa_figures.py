"""Draws the figures of docs/spa.md from the records of docs/benchmarks/spa: curves at equal cost, and Pass@k.

`python docs/tools/spa_figures.py` draws those whose records have changed; a test fails if one is out of date. A folder
of several arms has two figures beside it, `WORLD_curves.png` and `WORLD_pass_at_k.png`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmark_figures import digest_of, draw, drawn_digest
from spa_tables import FIGURES, FOLDER, read_groups

from stoix_like.runtime.figures.panels import Panel
from stoix_like.spa.report import SHARES, curve_panels, pass_at_k_panels


class Figure(NamedTuple):
    """Panels, the labels of their axes, and whether the x axis is logarithmic."""

    panels: list[Panel]
    x_label: str
    y_label: str
    log_x: bool


def figures(folder: Path = FOLDER) -> dict[Path, Figure]:
    """{path: figure} of all worlds in which arms are compared."""
    found: dict[Path, Figure] = {}
    for world in sorted(path for path in folder.iterdir() if path.is_dir()):
        groups = read_groups(world)
        if len(groups) > 1:
            curves = Figure(curve_panels(groups), "so far", "success on held-out levels", False)
            best = Figure(pass_at_k_panels(groups), "k", "the best of k samples succeeds", True)
            names = (folder / f"{world.name}_{name}.png" for name in FIGURES)
            found |= dict(zip(names, (curves, best), strict=True))
    return found


def outdated(folder: Path = FOLDER) -> dict[Path, Figure]:
    """Those that do not show what the records say."""
    return {path: figure for path, figure in figures(folder).items() if drawn_digest(path) != digest_of(*figure)}


if __name__ == "__main__":
    for path, figure in outdated().items():
        style = {"log_x": figure.log_x, "y_limits": SHARES}
        draw(path, digest_of(*figure), figure.panels, figure.x_label, figure.y_label, **style)
