"""The look of all figures: colours, axes, formats. Figures are made without pyplot, so that nothing global changes in a
notebook.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from stoix_like.errors import ConfigError

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito: safe for colour-blind

_FORMATS = (".png", ".pdf", ".svg")


def check_format(out: Path) -> None:
    """Nothing, if a figure can be written in the format of that name.

    Raises:
        ConfigError: it cannot.
    """
    if out.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{out}: unknown figure format '{out.suffix}'", f"use one of {', '.join(_FORMATS)}")


def png_bytes(figure: Any) -> bytes:
    """A figure of matplotlib as the content of a PNG file for a page: small panels with sharp lines, so that their
    text can be read where a panel is as wide as a phone."""
    buffer = io.BytesIO()
    figure.set_size_inches(4.6 * len(figure.axes), 3.0)
    figure.savefig(buffer, format="png", dpi=180)
    return buffer.getvalue()


def style_axes(panel: Any, title: str, x_label: str, y_label: str) -> None:
    """Gives axes of matplotlib the look of all our figures."""
    panel.set_title(title, fontsize=11, loc="left")
    panel.set_xlabel(x_label)
    panel.set_ylabel(y_label)
    panel.grid(True, color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
