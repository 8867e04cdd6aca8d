"""metrics.jsonl, the metrics of a run: one JSON object per line, readable during the run and after a kill.

Every report is one write and one flush, so a killed process loses at most the end of its last line. On resume, rows
later than the checkpoint are removed and logged again, so that no update is in the file twice.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from stoix_like.errors import RunError
from stoix_like.runtime.storage.atomic import atomic_write
from stoix_like.runtime.telemetry.sink import Report, RunMeta

FILE_NAME = "metrics.jsonl"

_END_BYTES = 1 << 16  # of a file, in which the last rows are looked for


class JsonlSink:
    """Writes metrics.jsonl in the run folder."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Creates the file; for a resumed run, cuts it to `meta.resumed_update`.

        Raises RunError if the file of a new run exists.
        """
        path = run_dir / FILE_NAME
        if meta.resumed_update is not None and path.exists():
            cut_after(path, meta.resumed_update, keeps_evaluation=meta.resumed_evaluated)
        elif path.exists():
            raise RunError(f"{path} exists already", "continue that run with --resume, or choose another --run-name")
        self._file = path.open("a", encoding="utf-8")

    def write(self, reports: Sequence[Report]) -> None:
        """Appends one line per seed and category, and flushes."""
        if self._file is None:
            raise ValueError("the sink is not open")
        self._file.write("".join(f"{_line(row)}\n" for report in reports for row in report.rows()))
        self._file.flush()

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _line(row: Mapping[str, Any]) -> str:
    """One row as one line of strict JSON. NaN and infinities become null."""
    return json.dumps({name: _plain(value) for name, value in row.items()}, allow_nan=False)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Every row of a metrics.jsonl, in order. An incomplete last line, of a killed or running writer, is left out.

    Raises RunError if there is no such file, or if a line before the last is damaged.
    """
    if not path.is_file():
        raise RunError(f"no metrics at {path}", "give a run folder, for example runs/<name>")
    lines = _lines(path)
    rows = [_parse(line) for line in lines]
    damaged = [number for number, row in enumerate(rows[:-1], start=1) if row is None]
    if damaged:
        raise RunError(f"{path}:{damaged[0]}: not a row of metrics", "remove the damaged line; the others are intact")
    return [row for row in rows if row is not None]


def cut_after(path: Path, update: int, *, keeps_evaluation: bool = True) -> None:
    """Removes the rows after `update`, and lines that are no rows, by an atomic replacement; other lines are unchanged.

    The rows of `update` stay, because they were written before its checkpoint. Without `keeps_evaluation` its EVALUATOR
    rows are removed: the run was killed between an evaluation and the checkpoint that records it. A file whose end has
    nothing to remove is not read whole, since its rows are in the order of their updates.
    """

    def is_kept(row: dict[str, Any] | None) -> bool:
        if row is None or row.get("update", 0) > update:
            return False
        return keeps_evaluation or row.get("update") != update or row.get("category") != "EVALUATOR"

    if _ends_within(path, update, is_kept):
        return
    lines = _lines(path)
    kept = [line for line in lines if is_kept(_parse(line))]
    content = b"".join(line + b"\n" for line in kept)
    if content == path.read_bytes():
        return
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _ends_within(path: Path, update: int, is_kept: Callable[[dict[str, Any] | None], bool]) -> bool:
    """Whether all rows from the last one before `update` on, which is near the end of the file, are kept."""
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(length - _END_BYTES, 0))
        *lines, rest = file.read().split(b"\n")
    if rest:
        return False
    for row in map(_parse, reversed(lines)):
        if not is_kept(row) or row is None:
            return False
        if row.get("category") != "MISC" and row.get("update", update) < update:  # a start says nothing of its order
            return True
    return False


def _lines(path: Path) -> list[bytes]:
    """The non-empty lines, as bytes: an incomplete line may end inside a character."""
    return [line for line in path.read_bytes().split(b"\n") if line.strip()]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:  # also the superclass of JSONDecodeError and UnicodeDecodeError
        return None
    return row if isinstance(row, dict) else None
