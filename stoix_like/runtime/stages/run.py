"""Runs a stage, unless its manifest says that it is done."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import ConfigError
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.stages.manifest import FILE, Manifest, read_manifest, write_manifest

_HASH_DIGITS = 64  # of SHA-256
_HINT = "use the former values, or remove the manifest to do the stage again"


class StageCall(NamedTuple):
    """What a stage is asked to do. A manifest that names the same is its result.

    Attributes:
        name: of the stage.
        inputs: {name: hash} of what it reads.
        settings: {leaf: value}, the part of the configuration that it reads.
    """

    name: str
    inputs: dict[str, str]
    settings: dict[str, Any]


class StageResult(NamedTuple):
    """What a stage made. It is on disk, in the folder of the stage, when this is returned."""

    outputs: dict[str, str]  # {path below the folder: hash}
    facts: dict[str, Any]
    recorded: Mapping[str, Any] = {}  # what may differ when the same is done again


def run_stage(
    folder: Path, call: StageCall, work: Callable[[], StageResult], *, adds: bool = False, hint: str = _HINT
) -> Manifest:
    """The manifest of the stage, which is run unless it was done before.

    A stage that was killed begins again; what it keeps of its own unfinished work is its affair. One whose inputs have
    changed since, or one of whose outputs is missing, is done again. One that `adds` to what it has made keeps its
    manifest until the new one replaces it, since what that one names stays. The `hint` says how settings can change.

    Raises:
        ConfigError: it was done with other settings.
        CheckpointError: its manifest is damaged.
    """
    found = read_manifest(folder)
    if found is not None:
        refuse_changed_settings(call.name, found.settings, call.settings, hint)
        if found.inputs == call.inputs and all((folder / name).is_file() for name in found.outputs):
            return found
        if not adds:
            (folder / FILE).unlink()
    folder.mkdir(parents=True, exist_ok=True)
    began, clock = time.time(), time.monotonic()
    result = work()
    recorded = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "began_at": round(began, 3),  # seconds since 1970
        "seconds": round(time.monotonic() - clock, 3),
        "host": platform.node(),
        "versions": versions(),
        **result.recorded,
    }
    manifest = Manifest(call.name, dict(call.inputs), dict(call.settings), result.outputs, result.facts, recorded)
    write_manifest(folder, manifest)
    return manifest


def refuse_changed_settings(what: str, before: Mapping[str, Any], now: Mapping[str, Any], hint: str = _HINT) -> None:
    """Raises ConfigError that names every leaf whose value is another one."""
    changed = [
        f"{what}: {leaf} is {_text(now.get(leaf))}, and it was begun with {_text(before.get(leaf))}"
        for leaf in sorted(before.keys() | now.keys())
        if before.get(leaf) != now.get(leaf)
    ]
    if changed:
        raise ConfigError(changed, hint)


def _text(value: Any) -> str:
    """A value as it stands in YAML; of a hash, the first digits."""
    is_hash = isinstance(value, str) and len(value) == _HASH_DIGITS and value.isalnum()
    return value[:12] if is_hash else json.dumps(value).strip('"')
