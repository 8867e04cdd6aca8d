"""Numbers, durations and paths as text: the same everywhere they are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

Value = float | int | str  # of a metric
DASH = "–"  # where there is no value


def number_text(value: Value, digits: int = 3) -> str:
    """A number for reading, with that many significant digits: 96,312 · 27.4 · 0.031 · 1e-05; a dash if not finite."""
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return DASH
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def interval_text(low: float, high: float, digits: int = 3) -> str:
    """`[0.91, 0.94]`; a dash where there is none."""
    return DASH if math.isnan(low) else f"[{number_text(low, digits)}, {number_text(high, digits)}]"


def aligned(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """The rows of a table as lines whose columns are as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = str.rjust if right else str.ljust
    return ["  ".join(map(align, row, widths)).rstrip() for row in rows]


def without_empty_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """(head, rows) without the columns that hold no value in any row: nothing, or a dash."""
    kept = [index for index in range(len(head)) if any(row[index] not in ("", DASH) for row in rows)]
    return [head[index] for index in kept], [[row[index] for index in kept] for row in rows]


def duration_text(seconds: float) -> str:
    """Whole seconds as h:mm:ss; a dash if unknown."""
    if not math.isfinite(seconds):
        return DASH
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def shown_path(path: Path) -> str:
    """The path as messages show it: from the working folder if it is in there."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
