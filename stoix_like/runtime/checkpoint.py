"""Whole states on disk: the one door to orbax.

A checkpoint is a folder `checkpoints/<update>` with the state's arrays and a JSON file (schema, algorithm, task,
configuration, host state). orbax writes into a temporary folder and renames it, so a folder with a number is complete.
`checkpoints/best/<update>` holds only the parameters that scored best. Nothing is ever unpickled.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from stoix_like.errors import CheckpointError, RunError

SCHEMA = 1


class Meta(NamedTuple):
    """What is read before the arrays, to rebuild what they belong to."""

    algorithm: str
    task_id: str
    update: int
    config: dict[str, Any]
    host: dict[str, Any]  # best scores and the like; plain JSON values


class CheckpointStore:
    """The checkpoints of one folder. Saving is synchronous: when it returns, the checkpoint survives a kill."""

    def __init__(self, folder: Path, keep_last_n: int | None = None, *, create: bool = False) -> None:
        self.folder = folder.absolute()
        logging.getLogger("absl").setLevel(logging.ERROR)
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep_last_n, save_interval_steps=1, create=create, enable_async_checkpointing=False
        )
        if create:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_unfinished()
        elif not self.folder.is_dir():
            raise _nothing_in(self.folder)
        self._manager = ocp.CheckpointManager(self.folder, options=options)

    def _remove_unfinished(self) -> None:
        for leftover in self.folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def updates(self) -> list[int]:
        """Updates at which there is a complete checkpoint, in order."""
        return sorted(self._manager.all_steps(read=True))

    def save(self, arrays: Any, meta: Meta) -> Path:
        """The folder of the new checkpoint, which must be of a later update than all there are.

        Raises:
            RunError: the folder cannot be written, or the disk is full.
        """
        try:
            saved = self._manager.save(
                meta.update,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(arrays), meta=ocp.args.JsonSave({"schema": SCHEMA, **meta._asdict()})
                ),
            )
            self._manager.wait_until_finished()
        except OSError as error:
            raise RunError(
                f"cannot write the checkpoint in {self.folder}: {error.strerror or error}",
                "free some space or choose another --save-dir; earlier checkpoints are intact",
            ) from error
        if not saved:
            raise RunError(
                f"checkpoint {meta.update} was not written: {self.folder} holds {self.updates()}",
                "remove checkpoints of a later update, or start a run under another --run-name",
            )
        return self.folder / str(meta.update)

    def remove(self, update: int) -> None:
        """Removes one checkpoint."""
        self._manager.delete(update)

    def load_meta(self, update: int | None = None) -> Meta:
        """What is written beside the arrays of one checkpoint (default: the last).

        Raises:
            CheckpointError: no such checkpoint, a damaged one, or one of another schema.
        """
        update = self._existing(update)
        try:
            found = self._manager.restore(update, args=ocp.args.Composite(meta=ocp.args.JsonRestore())).meta
        except Exception as error:  # orbax reports damage as many types; every one means the same here
            raise _damaged(self.folder / str(update), error) from error
        if not isinstance(found, dict) or set(found) != {"schema", *Meta._fields}:
            raise _damaged(self.folder / str(update), ValueError("it was not written by stoix_like"))
        if found.pop("schema") != SCHEMA:
            raise CheckpointError(
                f"checkpoint {self.folder / str(update)} has another schema than this version reads",
                f"this version reads schema {SCHEMA}; use the version of stoix_like in versions.json",
            )
        return Meta(**found)

    def load(self, template: Any, update: int | None = None) -> Any:
        """The arrays of one checkpoint, in the template's structure, types and shardings.

        Args:
            template: a pytree of jax.ShapeDtypeStruct.

        Raises:
            CheckpointError: missing, damaged, or of other shapes; the first leaf that differs is named.
        """
        update = self._existing(update)
        path = self.folder / str(update)
        differences = _differences(self._stored_shapes(path), template)
        if differences:
            raise CheckpointError(
                f"checkpoint {path} does not fit: {differences[0]}",
                "it was trained with other sizes; drop the overrides, or use the run's own config.yaml",
            )
        try:
            return self._manager.restore(
                update, args=ocp.args.Composite(state=ocp.args.StandardRestore(template))
            ).state
        except Exception as error:
            raise _damaged(path, error) from error

    def load_part(self, name: str, template: Any, update: int | None = None) -> Any:
        """One top-level field of the stored state, such as `params`, in the template's structure.

        Raises:
            CheckpointError: as `load`.
        """
        update = self._existing(update)
        path = self.folder / str(update)
        stored = {p[len(name) + 1 :]: s for p, s in self._stored_shapes(path).items() if p.split("/")[0] == name}
        differences = _differences(stored, template)
        if differences:
            raise CheckpointError(
                f"checkpoint {path} does not fit: {name}/{differences[0]}",
                "it was trained with another network; use the run's own config.yaml",
            )
        try:
            with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
                shardings = jax.tree.map(ocp.checkpoint_utils.construct_restore_args, {name: template})
                found = reader.restore(
                    path / "state",
                    args=ocp.args.PyTreeRestore({name: template}, restore_args=shardings, partial_restore=True),
                )[name]
                return jax.tree.map(jnp.asarray, found)
        except Exception as error:
            raise _damaged(path, error) from error

    def _stored_shapes(self, path: Path) -> dict[str, tuple[int, ...]]:
        try:
            with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
                tree = reader.metadata(path / "state").item_metadata.tree
        except Exception as error:
            raise _damaged(path, error) from error
        return {_path_text(p): tuple(leaf.shape) for p, leaf in jax.tree_util.tree_leaves_with_path(tree)}

    def _existing(self, update: int | None) -> int:
        there = self.updates()
        if not there:
            raise _nothing_in(self.folder)
        if update is None:
            return there[-1]
        if update not in there:
            raise CheckpointError(
                f"no checkpoint of update {update} in {self.folder}", f"there are: {', '.join(map(str, there))}"
            )
        return update

    def close(self) -> None:
        """Waits for nothing, since saving is synchronous; releases orbax's threads."""
        self._manager.close()


def _path_text(path: Any) -> str:
    names = (getattr(k, "key", getattr(k, "name", getattr(k, "idx", k))) for k in path)
    return "/".join(str(n) for n in names)


def _stored_shape(leaf: jax.ShapeDtypeStruct) -> tuple[int, ...]:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):  # typed keys are stored as their words
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return tuple(leaf.shape)


def _differences(stored: dict[str, tuple[int, ...]], template: Any) -> list[str]:
    wanted = {_path_text(p): _stored_shape(leaf) for p, leaf in jax.tree_util.tree_leaves_with_path(template)}
    lines = [
        f"{name} is stored as {stored[name]}, this run has {shape}"
        for name, shape in wanted.items()
        if name in stored and stored[name] != shape
    ]
    lines += [f"{name} is not stored" for name in wanted if name not in stored]
    lines += [f"{name} is stored, this run has none" for name in stored if name not in wanted]
    return lines


def _nothing_in(folder: Path) -> CheckpointError:
    return CheckpointError(
        f"no checkpoint in {folder}", "give the folder of a run that has saved one: ls runs/*/checkpoints"
    )


def _damaged(path: Path, error: Exception) -> CheckpointError:
    plain = isinstance(error, (OSError, ValueError)) and str(error).strip()
    reason = str(error).strip().splitlines()[0][:160] if plain else "files are missing or not orbax's"
    return CheckpointError(
        f"checkpoint {path} cannot be read: {reason}",
        "it is damaged or foreign; choose another with --checkpoint N, or remove it and resume from the one before",
    )
