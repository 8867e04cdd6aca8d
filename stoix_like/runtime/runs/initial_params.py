"""Parameters from which a new run starts: `--load-path` names a run, a checkpoint or a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.errors import CheckpointError
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.runs.find import find_checkpoint, find_saved, is_parameters
from stoix_like.runtime.runs.inputs import check_tokenizer
from stoix_like.runtime.runs.pipeline_files import is_of_pipeline
from stoix_like.runtime.weights import parameters, policy_folder
from stoix_like.types import NetworkParams, Params


def find_initial_params(config: Any) -> Path | None:
    """The run, checkpoint or file that `load_path` names; None if it is not set.

    A run is named by its path or name, a checkpoint by its path, published parameters by their path or folder. Raises
    CheckpointError if it is missing, damaged, or has no checkpoint.
    """
    text = config.checkpointing.load_path
    if text is None:
        return None
    try:
        path = find_saved(text, config.checkpointing.save_dir)
    except CheckpointError:
        if not Path(text).is_dir() or is_of_pipeline(Path(text)):
            raise
        path = Path(text)
    if is_parameters(path):
        parameters.read_metadata(path)
        policy_folder.check_parameters(path)
    else:
        find_checkpoint(path)
    return path


def describe_initial_params(algorithm: str, path: Path) -> str:
    """The origin of a new run's parameters, such as `the parameters of runs/a/checkpoints/best/40`."""
    if is_parameters(path):
        return f"the network ({algorithm_title(parameters.read_metadata(path).algorithm)}) of {path}"
    folder, update = find_checkpoint(path)
    meta = CheckpointStore(folder).load_meta(update)
    what = "parameters" if meta.algorithm == algorithm else f"network ({algorithm_title(meta.algorithm)})"
    return f"the {what} of {folder / str(meta.update)}"


def load_initial_params(
    algorithm: str,
    task_id: str,
    path: Path,
    template: Params,
    fresh: Params,
    num_seeds: int,
    tokenizer: str | None = None,
) -> Params:
    """Parameters from the result of `find_initial_params`; the best ones of a run, if it has any.

    From a run of another algorithm only the network is loaded, so that SPO can start from PPO's network, and PPO from
    SPO's; everything else is as in `fresh`. From published parameters, every seed gets the same network.

    Raises CheckpointError if there are no parameters, or if they do not fit, or speak of other tokens than those of the
    `tokenizer` with this hash.
    """
    from stoix_like.runtime.runs.build import ALGORITHMS  # starts the backend, so it is imported late

    ours = ALGORITHMS[algorithm]
    if is_parameters(path):
        with _of_another_task(path, parameters.read_metadata(path).task_id, task_id):
            return ours.with_network(fresh, _published_network(path, ours.network_params(template), num_seeds))
    folder, update = find_checkpoint(path)
    store = CheckpointStore(folder)
    meta = store.load_meta(update)
    check_tokenizer(tokenizer, meta, path)
    with _of_another_task(path, meta.task_id, task_id):
        if meta.algorithm == algorithm or meta.algorithm not in ALGORITHMS:
            return store.load_part("params", template, update)
        theirs = ALGORITHMS[meta.algorithm]
        params = store.load_part("params", theirs.template(ours.network_params(template), num_seeds), update)
        return ours.with_network(fresh, theirs.network_params(params))


@contextlib.contextmanager
def _of_another_task(path: Path, theirs: str, ours: str) -> Iterator[None]:
    """Adds to a CheckpointError of the block that the parameters are of another task, if they are."""
    try:
        yield
    except CheckpointError as error:
        if theirs == ours:
            raise
        raise CheckpointError(
            f"{path} is of {theirs}, and its network does not fit {ours}",
            f"give a run of {ours}, or of a task with the same observations and actions",
        ) from error


def _published_network(path: Path, template: NetworkParams, num_seeds: int) -> NetworkParams:
    """The network in a file of parameters, [S, ...] if there are several seeds."""
    from stoix_like.runtime.runs.build import known_algorithm  # starts the backend

    notes = parameters.read_metadata(path)
    theirs, of_one = known_algorithm(path, notes.algorithm, notes.stoix_like), template
    if num_seeds > 1:
        of_one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), template)
    arrays = parameters.read_arrays(path, theirs.published(theirs.template(of_one, 1)), of_this_run=True)
    network = theirs.network_params(theirs.from_published(arrays))
    if num_seeds == 1:
        return network
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_seeds, *x.shape)), network)
