"""Published parameters: one file of arrays by path, with metadata of their run. The only user of safetensors.

Such a file may come from anywhere, so its content is checked before use, and nothing in it is executed.
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

from stoix_like.config.checks.values import LARGEST_WHOLE
from stoix_like.errors import CheckpointError
from stoix_like.ops import trees
from stoix_like.ops.trees import shape_mismatches
from stoix_like.runtime.console.spelling import command_name, usage
from stoix_like.runtime.storage.atomic import atomic_write

SUFFIX, PARAMETERS = ".safetensors", "params.safetensors"
FORMAT, FORMAT_VERSION = "stoix_like.params", 1
#: Our headers have some ten thousand bytes. safetensors accepts 100 MB, which takes it 15 seconds and two gigabytes.
_MAX_HEADER_BYTES = 1_000_000
_MAX_TEXT = 200  # characters of the file that a message may quote
_TYPES = {"F32": "float32"}  # {safetensors' name: ours} of the types that parameters have


class ParametersMetadata(NamedTuple):
    """The metadata of a parameter file."""

    algorithm: str
    task_id: str
    checkpoint: str  # as it was requested when they were exported
    update: int
    seed: int
    config: dict[str, Any]  # of `config_to_dict`
    evaluation: dict[str, Any]  # their scores, as in policy.json
    stoix_like: str  # the version that wrote them


def serialize(params: Any, metadata: ParametersMetadata) -> bytes:
    """The content of a file: arrays by path, such as `actor/params/Dense_0/kernel`, and the metadata."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in trees.named_leaves(params).items()}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata._asdict().items()}
    return safetensors.numpy.save(arrays, {"format": FORMAT, "format_version": str(FORMAT_VERSION), **texts})


def write(path: Path, params: Any, metadata: ParametersMetadata) -> Any:
    """Writes a file, whole or not at all; returns the parameters on the host."""
    on_host = jax.tree.map(np.asarray, jax.device_get(params))
    with atomic_write(path) as temporary:
        temporary.write_bytes(serialize(on_host, metadata))
    return on_host


def read_metadata(path: Path) -> ParametersMetadata:
    """The metadata of a parameter file. Raises CheckpointError if it is missing, damaged, not ours or newer."""
    with _open_file(path) as file:
        texts = file.metadata() or {}
    if texts.get("format") != FORMAT:
        raise _unusable(path, "they lack the metadata of stoix_like")
    if (version := _value(path, "format_version", texts, int)) != FORMAT_VERSION:
        message = f"the parameters {path} have format version {version}, and this version of stoix_like reads"
        writer = _value(path, "stoix_like", texts, str)
        hint = f"install the version of stoix_like that wrote them: {writer}"
        raise CheckpointError(f"{message} {FORMAT_VERSION}", hint)
    kinds = {"update": int, "seed": int, "config": dict, "evaluation": dict}
    metadata = ParametersMetadata(
        **{name: _value(path, name, texts, kinds.get(name, str)) for name in ParametersMetadata._fields}
    )
    if not all(type(value) in (int, float, str) for value in metadata.evaluation.values()):
        raise _unusable(path, "'evaluation' in their metadata cannot be read")
    return metadata


def _value(path: Path, name: str, texts: Mapping[str, str], kind: type) -> Any:
    """One entry of the metadata, of that type. Long or unprintable texts are refused: messages quote them."""
    if name not in texts:
        raise _unusable(path, f"their metadata lack '{name}'")
    text = texts[name]
    if kind is str and text.isprintable() and len(text) <= _MAX_TEXT:
        return text
    with contextlib.suppress(ValueError, RecursionError):
        value: Any = json.loads(text)
        is_count = type(value) is int and 0 <= value <= LARGEST_WHOLE
        if is_count if kind is int else type(value) is kind:
            return value
    raise _unusable(path, f"'{name}' in their metadata cannot be read")


def read_arrays(path: Path, template: Any, *, of_this_run: bool = False) -> Any:
    """The parameters, in the structure of the template, a pytree of jax.ShapeDtypeStruct.

    It is made from the configuration in the metadata, or if `of_this_run`, from that of a run that starts with the
    parameters. Raises CheckpointError if the file is damaged, or if shapes or types differ; the first leaf that differs
    is named. Arrays are read only if all shapes fit, so no more bytes than the template has.
    """
    leaves, structure = trees.named_leaves(template), jax.tree.structure(template)
    with _open_file(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary
        whose = "this run's" if of_this_run else "their"
        shapes = {name: tuple(s.get_shape()) for name, s in slices.items()}
        problems = shape_mismatches(shapes, template, f"{whose} network")
        problems += [
            f"{name} is stored as {slices[name].get_dtype()}, {whose} network has {leaf.dtype.name}"
            for name, leaf in leaves.items()
            if name in slices and _TYPES.get(slices[name].get_dtype()) != leaf.dtype.name
        ]
        if problems:
            mismatch = "do not fit their configuration"
            hint = "they were changed, or another version of stoix_like wrote them; export them again from their run"
            if of_this_run:
                mismatch = "do not fit this run's configuration"
                hint = "take task, --hidden-dim, --num-layers and --observation-adapter from their configuration"
            raise CheckpointError(f"the parameters {path} {mismatch}: {_one_line(problems[0])}", hint)
        arrays = [jnp.asarray(file.get_tensor(name)) for name in leaves]
    return jax.tree.unflatten(structure, arrays)


def stored_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a parameter file by path, whatever network they are of. Raises CheckpointError if it is damaged."""
    with _open_file(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary


@contextlib.contextmanager
def _open_file(path: Path) -> Iterator[Any]:
    """The open safetensors file. The size of its header is checked first; errors are raised as CheckpointError."""
    if not path.is_file():
        hint = f"give the {PARAMETERS} that {command_name('export')} wrote, or its folder"
        raise CheckpointError(f"no parameters at {path}", hint)
    try:
        with path.open("rb") as start:
            if int.from_bytes(start.read(8), "little") > _MAX_HEADER_BYTES:
                raise _not_safetensors(path, "header too large")
        with safetensors.safe_open(path, framework="numpy") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise _not_safetensors(path, str(error).removeprefix("Error while deserializing header: ")) from error
    except OSError as error:
        raise _unusable(path, f"they cannot be read: {error.strerror or error}") from error


def _not_safetensors(path: Path, reason: str) -> CheckpointError:
    return _unusable(path, f"not a safetensors file, or a damaged one ({_one_line(reason)})")


def _one_line(text: str) -> str:
    """Text that may come from the file, as one printable line of limited length."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MAX_TEXT])


def _unusable(path: Path, reason: str) -> CheckpointError:
    hint = f"export them from a run: {usage('export')} RUN"
    return CheckpointError(f"the parameters {path} cannot be used: {reason}", hint)
