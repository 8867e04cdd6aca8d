"""Digests of a checkpoint: meta.json stores its own SHA-256 and that of every other file."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from stoix_like.errors import CheckpointError
from stoix_like.runtime.console.spelling import usage


def meta_text(body: dict[str, Any]) -> str:
    """The text of meta.json: the body and its own SHA-256."""
    return json.dumps({"sha256": json_digest(body), "body": body}, indent=1) + "\n"


def json_digest(body: Any) -> str:
    """The SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def file_digests(folder: Path) -> dict[str, str]:
    """{path below the folder: SHA-256} of every file except meta.json."""
    digests = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "meta.json"):
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
        stored = json.loads((path / "meta.json").read_bytes())
        body: dict[str, Any] = stored["body"]
        intact = stored["sha256"] == json_digest(body)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, "its meta.json is missing or not ours") from error
    if not intact:
        raise _damaged(path, "its meta.json was changed")
    return body


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
