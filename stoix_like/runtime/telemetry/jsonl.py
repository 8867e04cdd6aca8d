"""metrics.jsonl, the record of a run: one JSON object per line, readable while the run goes on and after it was killed.

Every report is one write and one flush, so a killed process loses at most the tail of its last line. A run continued
from a checkpoint first cuts what was written after it, so that no update stands in the file twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from stoix_like.errors import RunError
from stoix_like.runtime.storage.atomic import atomic_write
from stoix_like.runtime.telemetry.sink import Row, RunMeta

FILE_NAME = "metrics.jsonl"


class JsonlSink:
    """Writes metrics.jsonl in the run folder. A fresh run refuses a file that is there; a resumed one cuts it."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Creates the file, or cuts it to `meta.resumed_update` and appends.

        Raises:
            RunError: a fresh run finds metrics of another one.
        """
        path = run_dir / FILE_NAME
        if meta.resumed_update is not None and path.exists():
            cut_after(path, meta.resumed_update, keeps_evaluation=meta.resumed_evaluated)
        elif path.exists():
            raise RunError(f"{path} exists already", "continue that run with --resume, or choose another --run-name")
        self._file = path.open("a", encoding="utf-8")

    def write(self, rows: Sequence[Row]) -> None:
        """Appends one line per row and flushes."""
        if self._file is None:
            raise ValueError("the sink is not open")
        self._file.write("".join(f"{format_row(row)}\n" for row in rows))
        self._file.flush()

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def format_row(row: Row) -> str:
    """One row as one line of strict JSON (no NaN, no Infinity: they become null)."""
    fields = {**row._asdict(), "elapsed_seconds": round(row.elapsed_seconds, 3)}
    fields.update(fields.pop("values"))
    return json.dumps({name: _plain(value) for name, value in fields.items()}, allow_nan=False)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Every row of a metrics.jsonl, in order. A last line that a kill or a running writer left torn is left out.

    Raises:
        RunError: no such file, or a damaged line that is not the last.
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
    """Removes the rows after `update`, and lines that are no rows, by an atomic replacement; the rest keeps its bytes.

    The rows of `update` itself stay: they were written before its checkpoint was. But for those of an evaluation of
    which the checkpoint knows nothing, as a kill right after it leaves them.
    """

    def stays(row: dict[str, Any] | None) -> bool:
        if row is None or row.get("update", 0) > update:
            return False
        return keeps_evaluation or row.get("update") != update or row.get("category") != "EVALUATOR"

    lines = _lines(path)
    kept = [line for line in lines if stays(_parse(line))]
    content = b"".join(line + b"\n" for line in kept)
    if content == path.read_bytes():
        return
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _lines(path: Path) -> list[bytes]:
    """The non-empty lines, as bytes: a torn line may end inside a character."""
    return [line for line in path.read_bytes().split(b"\n") if line.strip()]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:  # json's own error and that of UTF-8 are both ValueErrors
        return None
    return row if isinstance(row, dict) else None
