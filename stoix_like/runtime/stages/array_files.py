"""Named arrays as `.npz` files: written whole or not at all, read without pickle."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.storage.atomic import atomic_write

#: What a torn or foreign file makes `zipfile` and NumPy raise.
READ_ERRORS = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, AttributeError, KeyError, TypeError),
    *(NotImplementedError, RuntimeError),  # a method of compression that is not known; a password
)
_PICKLED = (b"\x80", b"\x93")  # the first byte of a pickle since protocol 2, and of an .npy file


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Writes the arrays; returns their hash. Creates the folder.

    The file is as that of `np.savez_compressed`, at the lowest level of compression: planes of boards shrink nearly as
    much in a third of the time. Floats are not compressed: a search's policies took half of the time, and shrank by a
    tenth.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic_write(path) as temporary,
        zipfile.ZipFile(temporary, "w", compresslevel=1) as file,
    ):
        for name, array in arrays.items():
            file.compression = (
                zipfile.ZIP_STORED if array.dtype.kind == "f" else zipfile.ZIP_DEFLATED
            )  # of what follows
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return array_hash(arrays)


def read_arrays(path: Path, expected_hash: str | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file.

    Raises CheckpointError if it is missing, torn, no .npz, holds pickled objects, or has another hash than expected.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except READ_ERRORS as error:
        raise _unreadable(path, _reason(path, error)) from error
    if odd := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise _unreadable(path, f"{odd[0]} is no array")
    if expected_hash is not None and (found := array_hash(arrays)) != expected_hash:
        raise _unreadable(path, f"its arrays have the hash {found[:12]}, and its manifest names {expected_hash[:12]}")
    return arrays


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, ValueError) and "pickle" in str(error) and _may_hold_objects(path):
        return "it holds pickled objects, which are never loaded"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it is torn, or no .npz file"


def _may_hold_objects(path: Path) -> bool:
    """Whether it is a kind of file that can: NumPy takes whatever it does not know for a pickle."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return zipfile.is_zipfile(path) or file.read(1) in _PICKLED
    return False


def _unreadable(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} cannot be read: {reason}", "put the file back as it was written")
