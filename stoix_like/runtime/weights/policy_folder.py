"""The folder of an exported policy: files that belong together, and how that is kept.

`policy.json` says what the program and the parameters are and holds their SHA-256. It is renamed into place last, so it
never describes a file that is not there yet. Who reads while an export is replaced, or after a kill in the midst of the
renames, finds a file that is not the described one: that is an error, never a wrong policy. The model card is for
people, who may write on in it: nothing depends on it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.storage.atomic import write_files
from stoix_like.runtime.weights.parameters import PARAMETERS

PROGRAM, CARD, DESCRIPTION = "policy.stablehlo", "model_card.md", "policy.json"
FORMAT, FORMAT_VERSION = "stoix_like.policy", 1


class PolicyFiles(NamedTuple):
    """What is exported, in memory."""

    program: bytes  # of policy_program.lower
    parameters: bytes  # of parameter_files.parameters_bytes
    description: dict[str, Any]  # plain JSON values
    card: str  # of model_card.card


def write(folder: Path, files: PolicyFiles) -> dict[str, int]:
    """{name: bytes} of the files that are now in the folder. If anything fails, what was there before stays.

    Raises:
        RunError: the folder cannot be written, or the disk is full.
    """
    contents = {PROGRAM: files.program, PARAMETERS: files.parameters}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    description = files.description | {"sha256": digests}
    contents[CARD] = files.card.encode()
    contents[DESCRIPTION] = (json.dumps(description, indent=2, allow_nan=False) + "\n").encode()
    try:
        write_files(folder, contents)
    except OSError as error:
        what = f"cannot write the export in {folder}: {error.strerror or error}"
        raise RunError(what, "choose a writable folder with free space: --out") from error
    return {name: len(content) for name, content in contents.items()}


def read(folder: Path) -> tuple[bytes, dict[str, Any]]:
    """(the program, the description) of an export.

    Raises:
        CheckpointError: there is none, it is damaged or not ours, or a newer version of stoix_like wrote it.
    """
    description = _read_description(folder)
    try:
        program = (folder / PROGRAM).read_bytes()
    except OSError as error:
        raise unusable_export(folder, f"its {PROGRAM} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(program).hexdigest() != description["sha256"].get(PROGRAM):
        raise unusable_export(folder, f"its {PROGRAM} is not the one that {DESCRIPTION} describes")
    return program, description


def check_parameters(path: Path) -> None:
    """Nothing, if a file of parameters is the one that the policy.json beside it describes, or if there is none.

    Raises:
        CheckpointError: they differ, or policy.json cannot be used.
    """
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
            f"make one: {command_line('export', 'RUN')}; it writes RUN/export",
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
    """The error of an export that is damaged, foreign or half replaced."""
    return CheckpointError(
        f"the export {folder} cannot be used: {reason}",
        f"try again if it is being written; else export again: {command_line('export', 'RUN')}",
    )
