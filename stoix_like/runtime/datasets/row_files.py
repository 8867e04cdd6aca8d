"""Rows of written turns in a folder: `wm_train.npz` to learn from, `wm_val.npz` to validate on.

Each file says of which world and in which form its turns are, so that no run learns what it could not read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stoix_like.algorithms.text.world_rows import WrittenTurns
from stoix_like.errors import CheckpointError
from stoix_like.runtime.datasets.row_form import RowForm, check_form
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays

TRAINING, VALIDATION = "wm_train.npz", "wm_val.npz"
_DESCRIPTION, _TRAJECTORY = "description", "trajectory"


class RowFile(NamedTuple):
    """The rows of a file."""

    turns: WrittenTurns  # [R, T, S + G]
    trajectory: np.ndarray  # [R] int32, which episode a row is of
    form: RowForm

    def take(self, chosen: np.ndarray) -> RowFile:
        """Some of the rows."""
        return RowFile(WrittenTurns(*(x[chosen] for x in self.turns)), self.trajectory[chosen], self.form)


def write_rows(path: Path, rows: RowFile) -> str:
    """Writes the rows; returns the hash of the arrays. Creates the folder."""
    description = np.frombuffer(json.dumps(rows.form._asdict(), sort_keys=True).encode(), np.uint8)
    arrays = rows.turns._asdict() | {_TRAJECTORY: rows.trajectory, _DESCRIPTION: description}
    return write_arrays(path, arrays)


def read_rows(path: Path, expected_hash: str | None = None) -> RowFile:
    """The rows of a file.

    Raises CheckpointError if it is missing, torn, has another hash than expected, or no rows.
    """
    arrays = read_arrays(path, expected_hash)
    names = (*WrittenTurns._fields, _TRAJECTORY, _DESCRIPTION)
    if missing := [name for name in names if name not in arrays]:
        raise _no_rows(path, f"it lacks {missing[0]}")
    tokens, is_valid, trajectory = (arrays[name] for name in names[:3])
    shapes = (tokens.ndim, is_valid.shape, trajectory.shape)
    kinds = tuple(x.dtype.kind for x in (tokens, is_valid, trajectory))
    if shapes != (3, tokens.shape, tokens.shape[:1]) or kinds != ("i", "b", "i"):
        raise _no_rows(path, "its arrays have other shapes or types")
    try:
        given = json.loads(arrays[_DESCRIPTION].tobytes())
        form = RowForm(**given)
    except (ValueError, TypeError) as error:
        raise _no_rows(path, "its description cannot be read") from error
    return RowFile(WrittenTurns(tokens, is_valid), trajectory, form)


def read_folder(folder: Path, form: RowForm) -> tuple[RowFile, RowFile]:
    """(rows to learn from, rows of validation) of a folder.

    Raises CheckpointError as `read_rows`, or if they are of another form than the agent reads.
    """
    found = [read_rows(folder / name) for name in (TRAINING, VALIDATION)]
    for name, rows in zip((TRAINING, VALIDATION), found, strict=True):
        check_form(folder / name, rows.form, form)
    return found[0], found[1]


def has_rows(folder: Path) -> bool:
    """Whether there are files of rows."""
    return any((folder / name).is_file() for name in (TRAINING, VALIDATION))


def _no_rows(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} has no rows of turns: {reason}", "give a folder that the stage generate has made")
