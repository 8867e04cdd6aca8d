"""Numbers, intervals, durations, tables, paths and algorithms as text, in one format for all commands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

Value = float | int | str  # of a metric
DASH = "–"  # a missing value
ALGORITHM_TITLES = {
    "ppo": "PPO",
    "spo": "SPO",
    "alphazero": "AlphaZero",
    "agent": "token PPO",
    "pretrain": "pretraining",
    "sft": "fine-tuning",
    "spa": "SPA",
    "selfplay": "self-play",
}
"""Names by key, which for presets of pipelines is that of their folder. Your own program may add to it."""


def number_text(value: Value, digits: int = 3) -> str:
    """A number with `digits` significant digits: 96,312 · 27.4 · 0.031 · 1e-05; a dash if it is not finite."""
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return DASH
    short = f"{value:.{digits}g}"
    return f"{value:,.0f}" if abs(float(short)) >= 1000 or float(value).is_integer() else short


def interval_text(low: float | None, high: float | None, spec: str | None = None, *, digits: int = 3) -> str:
    """`[0.91, 0.94]`, by `number_text` or in the format `spec`; a dash if there is no such interval.

    There is none, with bounds of None or NaN, around one value.
    """
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return DASH
    texts = [number_text(bound, digits) if spec is None else f"{bound:{spec}}" for bound in (low, high)]
    return f"[{', '.join(texts)}]"


def plural(noun: str, number: int) -> str:
    """The noun as it stands after a number: `step`, `steps`."""
    return noun if number == 1 else f"{noun}s"


def aligned(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """The rows of a table as lines. Each column is as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = str.rjust if right else str.ljust
    return ["  ".join(map(align, row, widths)).rstrip() for row in rows]


def without_empty_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """(head, rows) without the columns in which every cell is empty or a dash."""
    kept = [index for index in range(len(head)) if any(row[index] not in ("", DASH) for row in rows)]
    return [head[index] for index in kept], [[row[index] for index in kept] for row in rows]


def duration_text(seconds: float) -> str:
    """Rounded seconds as h:mm:ss; a dash if they are not finite."""
    if not math.isfinite(seconds):
        return DASH
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def shown_path(path: Path) -> str:
    """The path for messages: relative to the working folder if it is inside it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def algorithm_title(key: str) -> str:
    """The name of an algorithm for readers, such as `PPO` of `ppo`: the key in capitals if it has no title."""
    return ALGORITHM_TITLES.get(key, key.upper())
