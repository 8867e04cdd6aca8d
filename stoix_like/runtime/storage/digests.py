"""Digests of a checkpoint: meta.json stores its own SHA-256 and that of every other file."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

from stoix_like.errors import CheckpointError
from stoix_like.runtime.console.spelling import usage
from stoix_like.runtime.storage.signed_json import SignedJsonError, read_signed

META = "meta.json"


def file_digests(folder: Path) -> dict[str, str]:
    """{path below the folder: SHA-256} of every file except meta.json."""
    digests = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != META):
        with path.open("rb") as file:
            digests[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def fsync_folder(folder: Path, *, deep: bool = True) -> None:
    """Flushes the folder to disk, with `deep` also all its files, so that they survive a power failure."""
    for path in [*(folder.rglob("*") if deep else ()), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:  # some network file systems cannot flush a folder
            if not (path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP)):
                raise
        finally:
            os.close(descriptor)


def read_meta(path: Path) -> dict[str, Any]:
    """The body of a checkpoint's meta.json. Raises CheckpointError if it is missing, is not ours, or was changed."""
    try:
        return read_signed(path / META)
    except SignedJsonError as error:
        reason = "was changed" if error.is_changed else "is missing or not ours"
        raise _damaged(path, f"its {META} {reason}") from error


def verify_files(path: Path) -> None:
    """Raises CheckpointError if a file of the checkpoint is missing or its digest differs."""
    expected, found = read_meta(path)["files"], file_digests(path)
    wrong = [name for name in expected if found.get(name) != expected[name]]
    if wrong:
        state = "is missing" if wrong[0] not in found else "is not as it was written"
        raise _damaged(path, f"its file {wrong[0]} {state}")


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {path} cannot be read: {reason}",
        "it is damaged or foreign: move its folder away to --resume from the one before; to evaluate another:"
        f" {usage('evaluate')} RUN --checkpoint N",
    )
