"""The style of all figures: colours, axes, legends and formats. Every figure is saved here.

Figures are created without pyplot, so that no global state of a notebook changes.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stoix_like.errors import ConfigError
from stoix_like.runtime.storage.atomic import atomic_write_output

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito, colour-blind safe
DASHED = (0, (4, 2))
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))  # by line
_WIDTH, _HEIGHT = 6.4, 4.2  # inches of a panel
_LEGEND_ROW = 0.18  # inches
_LONG_LABEL = 25  # characters; longer labels get a row of their own
_FONT_SIZE, _SMALLEST_FONT_SIZE = 9.0, 5.0  # points, of a legend
_CHARACTER_WIDTH = 0.62  # of the font size
_HANDLE = 8  # characters that take as much room as the line of a legend's entry and the spaces around it
_FORMATS = (".png", ".pdf", ".svg")


def make_panels(count: int, **subplots: Any) -> tuple[Any, Sequence[Any]]:
    """(figure, [count] axes side by side); (None, []) for none."""
    if count == 0:
        return None, []
    from matplotlib.figure import Figure  # imported here: it takes half a second, which only drawing needs

    figure = Figure(figsize=(_WIDTH * count, _HEIGHT), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False, **subplots)[0]


def style_axes(panel: Any, title: str, x_label: str, y_label: str) -> None:
    """Applies the common style to axes."""
    panel.set_title(title, fontsize=11, loc="left")
    panel.set_xlabel(x_label)
    panel.set_ylabel(y_label)
    panel.grid(True, color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def add_legend(panel: Any, handles: Sequence[Any] | None = None) -> None:
    """Adds a legend to a panel: a single short entry inside the axes, others below, where they hide no curve."""
    handles = panel.get_legend_handles_labels()[0] if handles is None else handles
    labels = [handle.get_label() for handle in handles]
    columns = _num_columns(labels)
    if len(labels) < 2 and columns == 2:
        panel.legend(handles=handles, frameon=False, fontsize=_FONT_SIZE)
        return
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": columns}
    panel.legend(handles=handles, frameon=False, fontsize=_FONT_SIZE, **below)
    _fit_legends(panel.figure, _WIDTH, _HEIGHT)


def _num_columns(labels: Sequence[str]) -> int:
    return 1 if any(len(label) > _LONG_LABEL for label in labels) else 2


def _fit_legends(figure: Any, width: float, height: float) -> None:
    """Sets the size of a figure of panels of `width` x `height` inches, and makes room for the legends below them.

    The font of a legend shrinks until its labels fit. Labels that are too long for the smallest one lose their middle.
    """
    num_rows = 1
    characters = 72 * width / _CHARACTER_WIDTH  # of one point that fit into the width
    for legend in (axes.get_legend() for axes in figure.axes):
        texts = legend.get_texts() if legend is not None else []
        columns = _num_columns([text.get_text() for text in texts])
        num_rows = max(num_rows, math.ceil(len(texts) / columns))
        for text in texts:
            text.set_text(_shortened(text.get_text(), int(characters / _SMALLEST_FONT_SIZE) - _HANDLE))
        longest = max((len(text.get_text()) for text in texts), default=0)
        for text in texts:
            text.set_fontsize(min(_FONT_SIZE, characters / (columns * (longest + _HANDLE))))
    figure.set_size_inches(width * len(figure.axes), height + _LEGEND_ROW * (num_rows - 1))


def _shortened(label: str, most: int) -> str:
    """The label with an ellipsis for its middle if it has more than `most` characters."""
    half = (most - 1) // 2
    return label if len(label) <= most else f"{label[:half]}…{label[-half:]}"


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """{name: colour} in the order in which the names first occur."""
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(dict.fromkeys(names))}


def check_format(out: Path) -> None:
    """Raises ConfigError if the suffix of a figure is not supported."""
    if out.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{out}: unknown figure format '{out.suffix}'", f"use one of {', '.join(_FORMATS)}")


def save_figure(figure: Any, path: Path) -> Path:
    """The path of the saved figure: .png, .pdf or .svg. Raises RunError if it cannot be written."""
    check_format(path)
    with atomic_write_output(path) as temporary:
        figure.savefig(temporary, dpi=150)
    return path


def png_bytes(figure: Any) -> bytes:
    """The content of a PNG file of a figure for a web page: small panels whose text can be read on a phone."""
    buffer = io.BytesIO()
    _fit_legends(figure, 4.6, 3.0)
    figure.savefig(buffer, format="png", dpi=180)
    return buffer.getvalue()
