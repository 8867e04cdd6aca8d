"""Parameters as they are published: one file of arrays by path, whose metadata say what they belong to. The door to
safetensors.

Such a file comes from anywhere, so what it says is checked before it is used, and nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from stoix_like.config.values import LARGEST_WHOLE
from stoix_like.errors import CheckpointError
from stoix_like.ops import trees
from stoix_like.ops.trees import shape_mismatches
from stoix_like.runtime.console.spelling import command_line, command_name

SUFFIX, PARAMETERS = ".safetensors", "params.safetensors"
FORMAT, FORMAT_VERSION = "stoix_like.params", 1
#: Bytes; ours have some ten thousand. safetensors takes 100 MB, for which it needs 15 seconds and two gigabytes.
_MOST_HEADER = 1_000_000
_MOST_TEXT = 200  # characters of what may be said in a message
_TYPES = {"F32": "float32"}  # those that parameters have, as safetensors calls them


def _export_hint() -> str:
    return f"export them from a run: {command_line('export', 'RUN')}"


class ParametersMetadata(NamedTuple):
    """What the file says of its arrays."""

    algorithm: str
    task_id: str
    checkpoint: str  # as it was asked for when they were published
    update: int
    seed: int
    config: dict[str, Any]  # of `config_to_dict`
    evaluation: dict[str, Any]  # what they scored, as policy.json tells it
    stoix_like: str  # the version that wrote them


def serialize(params: Any, notes: ParametersMetadata) -> bytes:
    """The content of a file: arrays by path, such as `actor/params/Dense_0/kernel`, and the notes."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in trees.named_leaves(params).items()}
    told = {name: value if isinstance(value, str) else json.dumps(value) for name, value in notes._asdict().items()}
    return safetensors.numpy.save(arrays, {"format": FORMAT, "format_version": str(FORMAT_VERSION), **told})


def read_metadata(path: Path) -> ParametersMetadata:
    """What is said of the parameters.

    Raises:
        CheckpointError: there is no such file, it is none of ours, damaged, or a newer version wrote it.
    """
    with _opened(path) as file:
        told = file.metadata() or {}
    if told.get("format") != FORMAT:
        raise _unusable(path, "they lack the metadata of stoix_like")
    if (version := _value(path, "format_version", told, int)) != FORMAT_VERSION:
        what = f"the parameters {path} have format version {version}, and this version of stoix_like reads"
        wrote = _value(path, "stoix_like", told, str)
        raise CheckpointError(f"{what} {FORMAT_VERSION}", f"install the version of stoix_like that wrote them: {wrote}")
    kinds = {"update": int, "seed": int, "config": dict, "evaluation": dict}
    notes = ParametersMetadata(
        **{name: _value(path, name, told, kinds.get(name, str)) for name in ParametersMetadata._fields}
    )
    if not all(type(value) in (int, float, str) for value in notes.evaluation.values()):
        raise _unusable(path, "'evaluation' in their metadata cannot be read")
    return notes


def _value(path: Path, name: str, told: Mapping[str, str], kind: type) -> Any:
    """One of the metadata, of that kind; no text that would spoil a message."""
    if name not in told:
        raise _unusable(path, f"their metadata lack '{name}'")
    text = told[name]
    if kind is str and text.isprintable() and len(text) <= _MOST_TEXT:
        return text
    with contextlib.suppress(ValueError, RecursionError):
        value: Any = json.loads(text)
        is_count = type(value) is int and 0 <= value <= LARGEST_WHOLE
        if is_count if kind is int else type(value) is kind:
            return value
    raise _unusable(path, f"'{name}' in their metadata cannot be read")


def read_arrays(path: Path, template: Any, *, of_this_run: bool = False) -> Any:
    """The parameters, in the template's structure.

    Args:
        path: the file.
        template: a pytree of jax.ShapeDtypeStruct, of the configuration in the notes.
        of_this_run: the template is of another configuration, that of a run which is to begin with them.

    Raises:
        CheckpointError: damaged, or of other shapes or types; the first leaf that differs is named. Nothing of more
            bytes than the template's is read.
    """
    leaves, structure = trees.named_leaves(template), jax.tree.structure(template)
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # it is no dictionary
        whose = "this run's" if of_this_run else "their"
        shapes = {name: tuple(s.get_shape()) for name, s in slices.items()}
        problems = shape_mismatches(shapes, template, f"{whose} network")
        problems += [
            f"{name} is stored as {slices[name].get_dtype()}, {whose} network has {leaf.dtype.name}"
            for name, leaf in leaves.items()
            if name in slices and _TYPES.get(slices[name].get_dtype()) != leaf.dtype.name
        ]
        if problems:
            what = "do not fit their configuration"
            hint = "they were changed, or another version of stoix_like wrote them; export them again from their run"
            if of_this_run:
                what = "do not fit this run's configuration"
                hint = "take task, --hidden-dim, --num-layers and --observation-adapter from their configuration"
            raise CheckpointError(f"the parameters {path} {what}: {_line(problems[0])}", hint)
        arrays = [jnp.asarray(file.get_tensor(name)) for name in leaves]
    return jax.tree.unflatten(structure, arrays)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file as safetensors gives it, its header checked."""
    if not path.is_file():
        hint = f"give the {PARAMETERS} that {command_name('export')} wrote, or its folder"
        raise CheckpointError(f"no parameters at {path}", hint)
    try:
        with path.open("rb") as start:
            if int.from_bytes(start.read(8), "little") > _MOST_HEADER:
                raise _no_safetensors(path, "header too large")
        with safetensors.safe_open(path, framework="numpy") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise _no_safetensors(path, str(error).removeprefix("Error while deserializing header: ")) from error
    except OSError as error:
        raise _unusable(path, f"they cannot be read: {error.strerror or error}") from error


def _no_safetensors(path: Path, reason: str) -> CheckpointError:
    return _unusable(path, f"not a safetensors file, or a damaged one ({_line(reason)})")


def _line(text: str) -> str:
    """What a file made us say, as one line that is not too long."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MOST_TEXT])


def _unusable(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"the parameters {path} cannot be used: {reason}", _export_hint())
