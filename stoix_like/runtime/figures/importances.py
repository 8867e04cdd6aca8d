"""The figure of a sweep: the importance of each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stoix_like.runtime.figures.style import COLOURS, save_figure


def plot_importances(importances: Mapping[str, float], out: Path, title: str) -> Path:
    """The path of the figure: one bar per parameter, the most important on top. Importances are shares of 1."""
    from matplotlib.figure import Figure

    names = sorted(importances, key=lambda name: importances[name])
    figure = Figure(figsize=(6.4, 1.2 + 0.36 * len(names)), layout="constrained")
    panel = figure.subplots()
    bars = panel.barh(names, [importances[name] for name in names], color=COLOURS[0], height=0.62)
    panel.bar_label(bars, fmt="{:.2f}", padding=4, fontsize=9)
    panel.set_xlim(0.0, 1.08)
    panel.set_title(title, fontsize=11, loc="left")
    panel.set_xlabel("importance (share)")
    panel.spines[["top", "right"]].set_visible(False)
    return save_figure(figure, out)
