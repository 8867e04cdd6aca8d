"""The arrays of a checkpoint, in the folder `state/` that orbax writes; the only module that imports orbax.

Orbax's default format, OCDBT, puts all arrays into a few files, but tensorstore leaks at each array of it. The other
one, a zarr folder for each array, leaks nothing (docs/decisions/0019-zarr-checkpoints.md). Both are read by one route:
as a pytree, of which the template may name a part, through the memory of the host.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from stoix_like.errors import CheckpointError, RunError
from stoix_like.ops import trees
from stoix_like.runtime.hardware.devices import reraise_device_errors

UNFINISHED = ".orbax-checkpoint-tmp"  # in the name of a folder that orbax has not finished
#: A failed save ends when its folder has been away for so long, or after `_WAIT_S`. Observed: 0.03 s.
_QUIET_S, _WAIT_S = 0.5, 10.0
#: A path that orbax and tensorstore take as it is. Brackets would be a pattern for them, `://` a scheme.
_PLAIN = re.compile(r"(\w|[-+.,=@%~/ ]|:(?!/))*")


def write_arrays(path: Path, arrays: Any, *, use_ocdbt: bool = True) -> None:
    """Writes a pytree of arrays into the checkpoint at `path`. Errors are those of orbax and of the device.

    After an error nothing is left at `path`. Raises RunError if what was written could not be read.
    """
    stored = jax.tree.map(trees.to_stored, arrays)
    with (
        _plain_path(path) as plain,
        _checkpointer(ocp.PyTreeCheckpointHandler, use_ocdbt=use_ocdbt) as writer,
        _without_merge_warning(),
    ):
        try:
            writer.save(plain / "state", args=ocp.args.PyTreeSave(stored))
        except Exception:
            _remove_unfinished(path)
            raise
    if absent := _absent_file(path / "state", len(jax.tree.leaves(stored)), use_ocdbt):
        what = f"the checkpoint in {path.parent} was not written: orbax has left out {absent}"
        raise RunError(what, "choose another --save-dir")


def _remove_unfinished(path: Path) -> None:
    """Removes the folder of a failed save, again and again: threads of tensorstore write on, and make it anew."""
    now = began = removed = time.monotonic()
    while now - removed < _QUIET_S and now - began < _WAIT_S:
        if path.exists():
            shutil.rmtree(path, ignore_errors=True)
            removed = time.monotonic()
        time.sleep(0.01)
        now = time.monotonic()


def _absent_file(state: Path, num_arrays: int, use_ocdbt: bool) -> str | None:
    """A file that is not there, and without which orbax cannot read what it wrote. It leaves some out silently."""
    for name in ("_METADATA", *(["manifest.ocdbt"] if use_ocdbt else [])):
        if not (state / name).is_file():
            return name
    if not use_ocdbt and sum((each / ".zarray").is_file() for each in state.iterdir()) < num_arrays:
        return "an array"
    return None


@contextlib.contextmanager
def _plain_path(path: Path) -> Iterator[Path]:
    """A path to the same place that orbax takes as it is: through a link in the folder for temporary files."""
    if _PLAIN.fullmatch(str(path)) and str(path).isprintable():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="stoix_like-") as folder:
        link = Path(folder) / "checkpoints"
        link.symlink_to(path.parent)
        yield link / path.name


def stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """{path of a leaf: its shape} of the checkpoint at `path`. Raises CheckpointError if orbax cannot read it.

    Slow, and each call keeps about 6 kB of memory a leaf for ever: tensorstore's `Spec.to_json` leaks (docs/log.md).
    """
    with _orbax_errors(path), _plain_path(path) as plain, _checkpointer(ocp.PyTreeCheckpointHandler) as reader:
        tree = reader.metadata(plain / "state").item_metadata.tree
    return {name: tuple(leaf.shape) for name, leaf in trees.named_leaves(tree).items()}


def read_arrays(path: Path, template: Any, *, is_part: bool = False, on_host: bool = False) -> Any:
    """The leaves of the template from the checkpoint at `path`, in its structure, types and shardings.

    The template is a pytree of jax.ShapeDtypeStruct: all that is stored, or {field: its part}. With `on_host`, leaves
    are NumPy arrays, typed keys their key data, and shardings are ignored. Raises CheckpointError if this version of
    orbax cannot read the files, and RunError if they do not fit into memory.
    """
    stored = jax.tree.map(trees.stored_shape, template)
    restore_args = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray, dtype=leaf.dtype), stored)
    with _orbax_errors(path), _plain_path(path) as plain, _checkpointer(ocp.PyTreeCheckpointHandler) as reader:
        # a partial restore takes a chex dataclass for a mapping: it fails on a field `items`, as BinPack has one
        args = ocp.args.PyTreeRestore(stored, restore_args=restore_args, partial_restore=is_part)
        found = reader.restore(plain / "state", args=args)
        if on_host:
            return found
        placed = jax.tree.map(lambda x, leaf: jax.device_put(x, leaf.sharding), found, stored)
        return jax.block_until_ready(jax.tree.map(trees.from_stored, placed, template))


def _checkpointer(handler: Any, **handler_options: Any) -> ocp.Checkpointer:
    """A checkpointer of this process alone. Orbax would wait for all processes, but only process 0 reads and writes."""
    options = ocp.options.MultiprocessingOptions()
    if jax.process_count() > 1:
        own = jax.process_index()
        options = ocp.options.MultiprocessingOptions(own, {own}, barrier_sync_key_prefix=f"process_{own}")
    return ocp.Checkpointer(
        handler(multiprocessing_options=options, **handler_options), multiprocessing_options=options
    )


@contextlib.contextmanager
def _without_merge_warning() -> Iterator[None]:
    """Without OCDBT orbax warns at each save that there are no files of several processes to merge."""
    logger = logging.getLogger("absl")
    logger.addFilter(_is_no_merge_warning)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_merge_warning)


def _is_no_merge_warning(record: logging.LogRecord) -> bool:
    return "Skipping merge of OCDBT checkpoints" not in record.getMessage()


@contextlib.contextmanager
def _orbax_errors(path: Path) -> Iterator[None]:
    """Raises errors of orbax as CheckpointError. The digests have been verified, so the files are not damaged."""
    try:
        what = f"checkpoint {path} does not fit into memory"
        with reraise_device_errors(what, "free some memory, or use a larger device"):
            yield
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        raise CheckpointError(
            f"checkpoint {path} cannot be restored by this orbax: {reason}",
            "its files are as they were written; use the versions in the run's versions.json",
        ) from error
