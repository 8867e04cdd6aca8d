"""Numbers, durations and paths as text: the same everywhere they are shown."""

from __future__ import annotations

import math
from pathlib import Path

Value = float | int | str  # of a metric


def number_text(value: Value) -> str:
    """A number for reading: 96,312 · 27.4 · 0.031 · 1e-05; a dash if there is none."""
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration_text(seconds: float) -> str:
    """Whole seconds as h:mm:ss; a dash if unknown."""
    if not math.isfinite(seconds):
        return "–"
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def shown_path(path: Path) -> str:
    """The path as messages show it: from the working folder if it is in there."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
