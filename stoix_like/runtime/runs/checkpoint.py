"""Checkpoints of a learner's state.

A checkpoint is a folder `checkpoints/<update>`. `state/` has the arrays (`arrays.py`). `meta.json` holds the rest
(schema, algorithm, task, configuration, host values) and the SHA-256 of every file. The digests are compared before
orbax reads, because orbax loads flipped bits without an error. A checkpoint is written into a temporary folder that is
renamed at the end, so a folder with a number is complete. `checkpoints/best/<update>` holds only the best-scoring
parameters. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from stoix_like.errors import CheckpointError, RunError, StorageError
from stoix_like.ops.trees import is_key, shape_mismatches, stored_shape, stored_shapes
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.hardware.memory import trim_memory
from stoix_like.runtime.runs import arrays
from stoix_like.runtime.runs.arrays import UNFINISHED
from stoix_like.runtime.runs.find import checkpoint_updates
from stoix_like.runtime.storage import digests, os_errors, signed_json
from stoix_like.runtime.storage.atomic import atomic_write_text

SCHEMA = 1
_LOG = logging.getLogger(__name__)


class CheckpointMeta(NamedTuple):
    """Metadata of a checkpoint, read before its arrays."""

    algorithm: str
    task_id: str
    update: int
    config: dict[str, Any]
    host: dict[str, Any]  # values of the host, such as the best scores; plain JSON values
    inputs: Mapping[str, str] = MappingProxyType({})  # {path of the State: hash} of what is never saved
    bank: str | None = None  # hash of the bank that levels are taken from

    def left_out(self, volatile: tuple[str, ...]) -> tuple[str, ...]:
        """The paths of a State that the checkpoint does not hold and `init` makes again, of those that it may."""
        return () if self.config.get("checkpointing", {}).get("save_replay", True) else volatile


class CheckpointStore:
    """The checkpoints of one folder. Saving is synchronous: a checkpoint is complete when `save` returns.

    Args:
        folder: of the checkpoints.
        keep_last_n: older ones are removed after a save; None keeps all.
        create: makes the folder, and removes what a kill has left unfinished.
        use_ocdbt: write arrays into a few files; False: each into a zarr folder (`arrays`). Both are read.

    Raises:
        CheckpointError: the folder is missing, and not to be created.
    """

    def __init__(
        self, folder: Path, keep_last_n: int | None = None, *, create: bool = False, use_ocdbt: bool = True
    ) -> None:
        self.folder, self._use_ocdbt = folder.absolute(), use_ocdbt
        self._keep_last_n = keep_last_n
        if create:
            self.folder.mkdir(parents=True, exist_ok=True)
            for leftover in self.folder.glob(f"*{UNFINISHED}*"):
                shutil.rmtree(leftover, ignore_errors=True)
        elif not self.folder.is_dir():
            raise _no_checkpoint(self.folder)

    def updates(self) -> list[int]:
        """The updates of the complete checkpoints, in order. Raises RunError if the folder has been removed."""
        try:
            return checkpoint_updates(self.folder)
        except OSError as error:
            raise StorageError(f"cannot read {self.folder}: {os_errors.words_of(error)}", "put it back") from error

    def save(self, state: Any, meta: CheckpointMeta, *, replace: bool = False) -> Path:
        """The folder of the new checkpoint. It is synced to disk before an older one is removed.

        Args:
            state: a pytree of arrays.
            meta: of an update later than all in the folder; with `replace`, it may equal the last.
            replace: replace the checkpoint of this update if there is one.

        Raises:
            RunError: the folder cannot be written, or the disk is full.
        """
        path, began = self.folder / str(meta.update), time.monotonic()
        try:
            updates = checkpoint_updates(self.folder)
            if updates and updates[-1] >= meta.update + replace:
                raise RunError(
                    f"checkpoint {meta.update} was not written: {self.folder} holds {updates}",
                    "remove checkpoints of a later update, or start a run under another --run-name",
                )
            unfinished = self._unfinished(str(meta.update))
            what = f"checkpoint {path} was not written"
            with reraise_device_errors(what, "free some memory; earlier checkpoints are intact"):
                arrays.write_arrays(unfinished, state, use_ocdbt=self._use_ocdbt)
            body = {"schema": SCHEMA, **meta._asdict(), "inputs": dict(meta.inputs), "shapes": stored_shapes(state)}
            body["files"] = digests.file_digests(unfinished)
            (unfinished / "meta.json").write_text(signed_json.signed_text(body), encoding="utf-8")
            digests.fsync_folder(unfinished)
            if replace:
                self.remove(meta.update)
            unfinished.rename(path)
            digests.fsync_folder(self.folder, deep=False)
            for old in checkpoint_updates(self.folder)[: -self._keep_last_n] if self._keep_last_n else ():
                self.remove(old)
            trim_memory()
        except (OSError, ValueError) as error:  # tensorstore's errors are ValueErrors
            raise self._write_error(error) from error
        _LOG.debug("checkpoint %s written in %.3f s", path, time.monotonic() - began)
        return path

    def _write_error(self, error: Exception) -> StorageError:
        """The error of a checkpoint that was not written, with its cause and the last intact checkpoint."""
        try:
            updates = checkpoint_updates(self.folder)
        except OSError as gone:  # if the folder is gone, orbax and tensorstore report others
            updates, error = [], gone
        hint, reason = os_errors.hint_of(error), os_errors.words_of(error)
        if updates:
            hint += f"; checkpoint {updates[-1]} is intact; --resume {self.folder.parent} continues"
        return StorageError(f"cannot write the checkpoint in {self.folder}: {reason}", hint)

    def rewrite_host(self, update: int, host: dict[str, Any]) -> None:
        """Replaces the host values of one checkpoint; its arrays stay.

        Raises RunError if meta.json cannot be written, and CheckpointError if the checkpoint is missing or damaged.
        """
        path = self.folder / str(self._existing(update))
        body = digests.read_meta(path) | {"host": host}
        try:
            atomic_write_text(path / "meta.json", signed_json.signed_text(body))
        except OSError as error:
            what = f"cannot write {path}: {os_errors.words_of(error)}"
            raise StorageError(what, os_errors.hint_of(error)) from error

    def remove(self, update: int) -> None:
        """Removes one checkpoint. It is renamed first, so that a kill leaves no incomplete checkpoint.

        Errors are ignored: a file that is still read over a network may stay until the next start.
        """
        removed = self._unfinished(f"{update}.removed")
        with contextlib.suppress(OSError):
            (self.folder / str(update)).rename(removed)
            shutil.rmtree(removed)

    def _unfinished(self, name: str) -> Path:
        path = self.folder / f"{name}{UNFINISHED}"
        shutil.rmtree(path, ignore_errors=True)
        return path

    def load_meta(self, update: int | None = None) -> CheckpointMeta:
        """The metadata of one checkpoint (default: the last).

        Raises CheckpointError if it is missing, damaged, or of another schema.
        """
        path = self.folder / str(self._existing(update))
        with _reporting_removal(path):
            body = digests.read_meta(path)
        if body["schema"] != SCHEMA:
            raise CheckpointError(
                f"checkpoint {path} has another schema than this version reads",
                f"this version reads schema {SCHEMA}; use the version of stoix_like in versions.json",
            )
        of_then = {"inputs": {}, "bank": None} | body  # there were none at first
        return CheckpointMeta(**{name: of_then[name] for name in CheckpointMeta._fields})

    def load_part(self, name: str, template: Any, update: int | None = None) -> Any:
        """One top-level field of the stored state, such as `params`, in the template's structure. Raises as `load`."""
        return self.load({name: template}, update, part=name)[name]

    def load(self, template: Any, update: int | None = None, *, part: str | None = None, on_host: bool = False) -> Any:
        """The arrays of one checkpoint (default: the last), in the template's structure, types and shardings.

        The template, of jax.ShapeDtypeStruct, may have only the top-level field `part`. With `on_host`, see
        `arrays.read_arrays`. Raises CheckpointError if the checkpoint is missing, damaged, or of other shapes, and
        RunError if it does not fit into memory.
        """
        hint = "it was trained with other sizes; drop the overrides, or use the version in versions.json"
        path = self.folder / str(self._existing(update))
        with _reporting_removal(path):
            digests.verify_files(path)
            stored = _shapes(path)
            if part is not None:
                hint = "it was trained with another network; use the run's config.yaml, or the version in versions.json"
                stored = {name: shape for name, shape in stored.items() if name.split("/")[0] == part}
            _check_key_type(path, stored, template)
            if problems := shape_mismatches(stored, template):
                raise CheckpointError(f"checkpoint {path} does not fit: {problems[0]}", hint)
            return arrays.read_arrays(path, template, is_part=part is not None, on_host=on_host)

    def _existing(self, update: int | None) -> int:
        updates = self.updates()
        if not updates:
            raise _no_checkpoint(self.folder)
        if update is None:
            return updates[-1]
        if update not in updates:
            raise CheckpointError(
                f"no checkpoint of update {update} in {self.folder}", f"there are: {', '.join(map(str, updates))}"
            )
        return update


def _check_key_type(path: Path, stored: dict[str, tuple[int, ...]], template: Any) -> None:
    """Raises CheckpointError if the run's root key is of another type than those of this process."""
    key = getattr(template, "key", None)
    if key is None or not is_key(key) or stored.get("key") in (None, stored_shape(key).shape):
        return
    made = jax.config.jax_default_prng_impl  # type: ignore[attr-defined]  # made at run time
    raise CheckpointError(
        f"checkpoint {path} has random keys of another type than {made}, which this process makes",
        "set JAX_DEFAULT_PRNG_IMPL as it was when the run began: threefry2x32 unless it was set",
    )


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """{path of a leaf: its shape} of a checkpoint. Orbax is asked where meta.json, as in older ones, lists none."""
    listed = digests.read_meta(path).get("shapes")
    return arrays.stored_shapes(path) if listed is None else {name: tuple(shape) for name, shape in listed.items()}


@contextlib.contextmanager
def _reporting_removal(path: Path) -> Iterator[None]:
    """Raises CheckpointError if the block fails because a running training has removed the checkpoint."""
    try:
        yield
    except (OSError, CheckpointError) as error:
        if path.is_dir():
            raise
        raise CheckpointError(
            f"checkpoint {path} has just been removed by its run", "try again: the run has written a newer one"
        ) from error


def _no_checkpoint(folder: Path) -> CheckpointError:
    hint = "give a run that has saved one: ls runs/*/checkpoints; one that ended before cannot be resumed"
    return CheckpointError(f"no checkpoint in {folder}", hint)
