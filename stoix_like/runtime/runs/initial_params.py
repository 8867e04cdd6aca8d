"""Parameters from which a new run starts: `--load-path` names a run, a checkpoint or a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from stoix_like.config.dicts import config_from_dict
from stoix_like.errors import CheckpointError
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.find import find_checkpoint, find_source, is_parameters
from stoix_like.runtime.runs.inputs import check_tokenizer
from stoix_like.runtime.weights import parameters, policy_folder
from stoix_like.types import NetworkParams, Params

if TYPE_CHECKING:
    from stoix_like.runtime.runs.build import Algorithm


def find_initial_params(config: Any) -> Path | None:
    """The run, checkpoint or file that `load_path` names; None if it is not set.

    A run is named by its path or name, a checkpoint by its path, published parameters by their path or folder. Raises
    CheckpointError if it is missing, damaged, or has no checkpoint.
    """
    text = config.checkpointing.load_path
    if text is None:
        return None
    path = find_source(text, config.checkpointing.save_dir)
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


def origin_notes(algorithm: str, config: Any, path: Path | None) -> list[str]:
    """What the algorithm has to say of the parameters that a new run starts with: fresh ones if `path` is None."""
    from stoix_like.runtime.runs.build import ALGORITHMS  # starts the backend

    if path is None:
        return ALGORITHMS[algorithm].origin_notes(config, None)
    if is_parameters(path):
        return []
    folder, update = find_checkpoint(path)
    return ALGORITHMS[algorithm].origin_notes(config, CheckpointStore(folder).load_meta(update))


def load_initial_params(
    algorithm: str, config: Any, path: Path, template: Params, fresh: Params, tokenizer: str | None = None
) -> Params:
    """Parameters from the result of `find_initial_params`; the best ones of a run, if it has any.

    From a run of another algorithm only the network is loaded, so that SPO can start from PPO's network, and PPO from
    SPO's; everything else is as in `fresh`. From published parameters, or a run of one seed, every seed gets the same.

    Raises CheckpointError if there are no parameters, or if they do not fit, are of several seeds and not as many, or
    speak of other tokens than those of the `tokenizer` with this hash.
    """
    from stoix_like.runtime.runs.build import ALGORITHMS  # starts the backend, so it is imported late

    ours, num_seeds, task_id = ALGORITHMS[algorithm], config.training_core.num_seeds, config.environment.task_id
    if is_parameters(path):
        notes = parameters.read_metadata(path)
        with _of_another_task(path, notes.task_id, task_id):
            network = _published_network(path, ours.network_params(template), num_seeds)
        _check_hidden_sizes(ours, ALGORITHMS.get(notes.algorithm), config, notes.config, path)
        return ours.with_network(fresh, network)
    folder, update = find_checkpoint(path)
    store = CheckpointStore(folder)
    meta = store.load_meta(update)
    check_tokenizer(tokenizer, meta, path)
    is_copied = _check_seeds(path, meta, num_seeds)
    wanted = _of_one_seed(template) if is_copied else template
    theirs = ours if meta.algorithm == algorithm else ALGORITHMS.get(meta.algorithm)
    with _of_another_task(path, meta.task_id, task_id):
        if theirs is None or theirs is ours:
            params = store.load_part("params", wanted, meta.update)
        else:
            network = theirs.template(ours.network_params(wanted), 1 if is_copied else num_seeds)
            params = theirs.network_params(store.load_part("params", network, meta.update))
    _check_hidden_sizes(ours, theirs, config, meta.config, path)
    params = _for_all_seeds(params, num_seeds) if is_copied else params
    return params if theirs is None or theirs is ours else ours.with_network(fresh, params)


def _check_seeds(path: Path, meta: CheckpointMeta, num_seeds: int) -> bool:
    """Whether parameters of one seed are to be copied to several. Raises CheckpointError if the numbers do not fit."""
    stored = int(meta.config.get("training_core", {}).get("num_seeds", 1))
    if stored in (1, num_seeds):
        return stored < num_seeds
    what = f"the parameters of {path} are of {stored} seeds, and this run trains {num_seeds}"
    raise CheckpointError(what, f"give --num-seeds {stored}, or a run of one seed")


def _check_hidden_sizes(
    ours: Algorithm, theirs: Algorithm | None, config: Any, stored: dict[str, Any], path: Path
) -> None:
    """Raises CheckpointError if parameters of the same shapes are another function in this configuration."""
    now = ours.hidden_sizes(config)
    if not now or theirs is None:  # a stored configuration is read only where it matters: it may be an older one
        return
    then = theirs.hidden_sizes(config_from_dict(theirs.config_type, stored))
    for leaf, value in now.items():
        if leaf in then and then[leaf] != value:
            what = f"the parameters of {path} were learned with {leaf} {then[leaf]:g}, and this run has {value:g}"
            raise CheckpointError(what, f"give --{leaf.replace('_', '-')} {then[leaf]:g}")


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
    theirs = known_algorithm(path, notes.algorithm, notes.stoix_like)
    of_one = _of_one_seed(template) if num_seeds > 1 else template
    arrays = parameters.read_arrays(path, theirs.published(theirs.template(of_one, 1)), of_this_run=True)
    network = theirs.network_params(theirs.from_published(arrays))
    return network if num_seeds == 1 else _for_all_seeds(network, num_seeds)


def _of_one_seed(template: Any) -> Any:
    """The template [...] of leaves [S, ...], in their places."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype, sharding=x.sharding), template)


def _for_all_seeds(params: Any, num_seeds: int) -> Any:
    """Parameters [S, ...], each seed's the same."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_seeds, *x.shape)), params)
