"""The style of all figures: colours, axes, legends and formats. All matplotlib figures are created and saved here.

Figures are created without pyplot, so that no global state of a notebook changes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stoix_like.errors import ConfigError
from stoix_like.runtime.storage.atomic import atomic_write_output

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito, colour-blind safe
DASHED = (0, (4, 2))
_FORMATS = (".png", ".pdf", ".svg")


def make_panels(count: int, **subplots: Any) -> tuple[Any, Sequence[Any]]:
    """(figure, [count] axes side by side)."""
    from matplotlib.figure import Figure  # imported here: it takes half a second, which only drawing needs

    figure = Figure(figsize=(6.4 * count, 4.2), layout="constrained")
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
    """Adds a legend to a panel. With more than one entry it is placed below the axes, where it hides no curve."""
    handles = panel.get_legend_handles_labels()[0] if handles is None else handles
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 2} if len(handles) > 1 else {}
    panel.legend(handles=handles, frameon=False, fontsize=9, **below)


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
    figure.set_size_inches(4.6 * len(figure.axes), 3.0)
    figure.savefig(buffer, format="png", dpi=180)
    return buffer.getvalue()
