"""The folder of an exported policy: a program, its parameters, a description and a model card.

`policy.json` describes the program and the parameters and stores their SHA-256. It is renamed into place last. A reader
that comes while an export is replaced, or after a kill between the renames, finds a digest that does not match and gets
an error, never a wrong policy. People may edit the model card: nothing reads it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError, StorageError
from stoix_like.runtime.console.spelling import usage
from stoix_like.runtime.storage.atomic import write_files
from stoix_like.runtime.storage.os_errors import hint_of, words_of
from stoix_like.runtime.weights.parameters import PARAMETERS

PROGRAM, CARD, DESCRIPTION = "policy.stablehlo", "model_card.md", "policy.json"
FORMAT, FORMAT_VERSION = "stoix_like.policy", 1


class PolicyFiles(NamedTuple):
    """The content of an export, in memory."""

    program: bytes  # of policy_program.serialize
    parameters: bytes  # of parameters.serialize
    description: dict[str, Any]  # plain JSON values
    card: str  # of model_card.render


def write(folder: Path, files: PolicyFiles) -> dict[str, int]:
    """{name: size in bytes} of the files written into the folder. Raises StorageError if that fails; old files stay."""
    contents = {PROGRAM: files.program, PARAMETERS: files.parameters}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    description = files.description | {"sha256": digests}
    contents[CARD] = files.card.encode()
    contents[DESCRIPTION] = (json.dumps(description, indent=2, allow_nan=False) + "\n").encode()
    try:
        write_files(folder, contents)
    except OSError as error:
        message = f"cannot write the export in {folder}: {words_of(error)}"
        raise StorageError(message, f"{hint_of(error)}: --out") from error
    return {name: len(content) for name, content in contents.items()}


def read(folder: Path) -> tuple[bytes, dict[str, Any]]:
    """(program, description) of an export. Raises CheckpointError if it is missing, damaged, not ours, or newer."""
    description = _read_description(folder)
    try:
        program = (folder / PROGRAM).read_bytes()
    except OSError as error:
        raise unusable_export(folder, f"its {PROGRAM} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(program).hexdigest() != description["sha256"].get(PROGRAM):
        raise unusable_export(folder, f"its {PROGRAM} is not the one that {DESCRIPTION} describes")
    return program, description


def check_parameters(path: Path) -> None:
    """Raises CheckpointError if the policy.json next to a parameter file describes other parameters."""
    if path.name != PARAMETERS or not (path.parent / DESCRIPTION).is_file():
        return
    description = _read_description(path.parent)
    if hashlib.sha256(path.read_bytes()).hexdigest() != description["sha256"].get(PARAMETERS):
        raise unusable_export(path.parent, f"its {PARAMETERS} is not the one that {DESCRIPTION} describes")


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        description = json.loads((folder / DESCRIPTION).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(
            f"no exported policy in {folder}",
            f"make one: {usage('export')} RUN; it writes RUN/export",
        ) from error
    except (OSError, ValueError) as error:
        raise unusable_export(folder, f"its {DESCRIPTION} cannot be read") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise unusable_export(folder, f"its {DESCRIPTION} is not of stoix_like")
    version = description.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"the export {folder} has format version {version}, and this version of stoix_like reads {FORMAT_VERSION}",
            "install the version of stoix_like named in its policy.json, or export again with this one",
        )
    kinds = {"sha256": dict, "versions": dict, "observation": list}
    if lacking := [name for name, kind in kinds.items() if not isinstance(description.get(name), kind)]:
        raise unusable_export(folder, f"its {DESCRIPTION} lacks {', '.join(lacking)}")
    return description


def unusable_export(folder: Path, reason: str) -> CheckpointError:
    """The error of an export that is damaged, not ours, or being replaced."""
    return CheckpointError(
        f"the export {folder} cannot be used: {reason}",
        f"try again if it is being written; else export again: {usage('export')} RUN",
    )
