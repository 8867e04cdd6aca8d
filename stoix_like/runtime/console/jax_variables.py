"""Variables of JAX in the environment with which the commands could not work.

They are removed before JAX is imported, which reads them then, and a note says so. Imports no JAX. Notebooks and
programs of users keep theirs.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import NamedTuple


class _Ignored(NamedTuple):
    """Values of some variables that are ignored, and why."""

    variables: tuple[str, ...]
    values: tuple[str, ...]  # in lower case
    why: str


_TRUE = ("1", "t", "true", "y", "yes", "on")
_GUARDS = tuple(f"JAX_TRANSFER_GUARD{way}" for way in ("", "_HOST_TO_DEVICE", "_DEVICE_TO_DEVICE", "_DEVICE_TO_HOST"))
_IGNORED = (
    _Ignored(("JAX_ENABLE_X64",), _TRUE, "everything is computed in float32"),
    _Ignored(("JAX_DISABLE_JIT",), _TRUE, "the commands compile their programs"),
    _Ignored(_GUARDS, ("disallow", "disallow_explicit"), "the commands move arrays between host and device"),
    _Ignored(("JAX_NUMPY_DTYPE_PROMOTION",), ("strict",), "environments add numbers of different types"),
)
#: Variables that name the devices: an error names them if there are none.
PLATFORM_VARIABLES = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")


class _Process:
    notes: tuple[str, ...] = ()


def ignore_unusable(environ: MutableMapping[str, str]) -> tuple[str, ...]:
    """A note for each variable with which the commands could not work; it is removed."""
    return tuple(
        f"{variable}={environ.pop(variable)} is ignored: {each.why}"
        for each in _IGNORED
        for variable in each.variables
        if environ.get(variable, "").lower() in each.values
    )


def prepare_environment() -> None:
    """`ignore_unusable` for this process, a command. JAX must not have been imported."""
    _Process.notes = ignore_unusable(os.environ)


def take_notes() -> tuple[str, ...]:
    """The notes on this process's variables, once."""
    notes, _Process.notes = _Process.notes, ()
    return notes


def chosen_platforms() -> str | None:
    """`JAX_PLATFORMS=cuda`, if the environment chooses the devices."""
    return next((f"{name}={os.environ[name]}" for name in PLATFORM_VARIABLES if os.environ.get(name)), None)
