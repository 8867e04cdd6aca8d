"""The look of all figures: colours, axes, legends, formats. The place where matplotlib figures are made and saved.

Figures are made without pyplot, so that nothing global changes in a notebook.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stoix_like.errors import ConfigError
from stoix_like.runtime.storage.atomic import atomic_write_output

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito: safe for colour-blind
DASHED = (0, (4, 2))
_FORMATS = (".png", ".pdf", ".svg")


def make_panels(count: int, **subplots: Any) -> tuple[Any, Sequence[Any]]:
    """(a figure, its axes side by side [count])."""
    from matplotlib.figure import Figure  # here: half a second that only drawing needs

    figure = Figure(figsize=(6.4 * count, 4.2), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False, **subplots)[0]


def style_axes(panel: Any, title: str, x_label: str, y_label: str) -> None:
    """Gives axes the look of all figures."""
    panel.set_title(title, fontsize=11, loc="left")
    panel.set_xlabel(x_label)
    panel.set_ylabel(y_label)
    panel.grid(True, color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def add_legend(panel: Any, handles: Sequence[Any] | None = None) -> None:
    """The legend of a panel; of more than one entry below the axes, where it covers no curve."""
    handles = panel.get_legend_handles_labels()[0] if handles is None else handles
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 2} if len(handles) > 1 else {}
    panel.legend(handles=handles, frameon=False, fontsize=9, **below)


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """{name: colour}, by the order in which the names first appear."""
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(dict.fromkeys(names))}


def check_format(out: Path) -> None:
    """Raises ConfigError if figures are not written in the format of that name."""
    if out.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{out}: unknown figure format '{out.suffix}'", f"use one of {', '.join(_FORMATS)}")


def save_figure(figure: Any, path: Path) -> Path:
    """The figure at the path: .png, .pdf or .svg, whole or not at all.

    Raises:
        ConfigError: an unknown format.
        RunError: it cannot be written.
    """
    check_format(path)
    with atomic_write_output(path) as temporary:
        figure.savefig(temporary, dpi=150)
    return path


def png_bytes(figure: Any) -> bytes:
    """A figure as the content of a PNG file for a page: small panels with sharp lines, whose text can be read on a
    phone."""
    buffer = io.BytesIO()
    figure.set_size_inches(4.6 * len(figure.axes), 3.0)
    figure.savefig(buffer, format="png", dpi=180)
    return buffer.getvalue()
