"""The manifest of a stage: what it read, with which settings, and what it made.

It is written last and renamed into place, so a stage with a manifest is done. It carries its own digest, so a changed
one is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.storage.signed_json import SignedJsonError, json_digest, read_signed, signed_text

FILE, FORMAT = "manifest.json", 1


class Manifest(NamedTuple):
    """What a stage has done. All values are plain JSON.

    Attributes:
        stage: its name.
        inputs: {name: hash} of what it read.
        settings: {leaf: value}, the part of the configuration that it read.
        outputs: {path below its folder: hash of the arrays}.
        facts: numbers for later stages and for reports.
        recorded: versions, hosts, times; they are never compared.
    """

    stage: str
    inputs: dict[str, str]
    settings: dict[str, Any]
    outputs: dict[str, str]
    facts: dict[str, Any]
    recorded: dict[str, Any]

    @property
    def digest(self) -> str:
        """A hash of all that is compared, and of what was made."""
        return json_digest(self._replace(recorded={})._asdict())


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of the stage in this folder; None if the stage is not done.

    Raises CheckpointError if it is damaged, was changed, or is of another format.
    """
    path = folder / FILE
    try:
        body = read_signed(path, Manifest._fields)
    except SignedJsonError as error:
        if error.is_missing:
            return None
        raise _damaged(path, error.reason) from error
    if body.get("format") != FORMAT:
        raise _damaged(path, f"it has format {body.get('format')}, and this version reads {FORMAT}")
    return Manifest(**{name: body[name] for name in Manifest._fields})


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, whole or not at all: from now on the stage is done."""
    atomic_write_text(folder / FILE, signed_text({"format": FORMAT, **manifest._asdict()}))


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be used: {reason}",
        "put it back, or, if no later stage is done, remove this one file: its stage then runs again",
    )
