"""How a run starts: in a new folder, or from the last checkpoint of a run that is resumed.

A resumed run is locked before its checkpoints are read, so that no other process removes them meanwhile. It uses the
configuration that was given (the run's config.yaml and the flags), and logs every difference to the checkpoint's.
`hyper` is replaced as a whole, so an interrupted start leaves nothing half-changed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from stoix_like.config.checks import get_leaf
from stoix_like.config.dicts import config_from_dict, config_to_dict
from stoix_like.config.roles import Role, leaf_roles, leaves_with
from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.hardware import devices, process_group
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.loading.config import LoadedConfig
from stoix_like.runtime.runs import folder, initial_params
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.find import find_run
from stoix_like.runtime.runs.stored_state import stored_template
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.types import Learner


class RunStart(NamedTuple):
    """A run before it is built.

    Attributes:
        algorithm: key of `build.ALGORITHMS`.
        config: the configuration that is used.
        path: the run folder.
        resumed: metadata of the checkpoint that is resumed, or None for a new run.
        changes: leaves that differ from that checkpoint, with their new values.
        lock: of an existing folder. A new run gets its lock with its folder, and then perhaps another path:
            see `folder.create_run`.
        load_from: the run, checkpoint or file from which a new run loads its parameters.
    """

    algorithm: str
    config: Any
    path: Path
    resumed: CheckpointMeta | None
    changes: dict[str, Any]
    lock: RunLock | None
    load_from: Path | None = None


def prepare_start(algorithm: str, loaded: LoadedConfig) -> RunStart:
    """How the run starts, from its configuration; nothing is written.

    Raises:
        ConfigError: the run name is taken, or a fixed leaf would change.
        CheckpointError: the run to resume or the parameters to load are missing, or of another algorithm.
        RunError: another process is writing the run, or its folder cannot be made.
    """
    if loaded.options.resume is not None:
        return _prepare_resume(algorithm, loaded, find_run(loaded.options.resume))
    config = loaded.config
    load_from = initial_params.find_initial_params(config)  # raises before anything is built
    name = config.checkpointing.run_name
    if name is None:
        path = folder.new_path(config.checkpointing.save_dir, algorithm, config)
    else:
        path = folder.run_path(config.checkpointing.save_dir, name)
    if any(parent.exists() and not parent.is_dir() for parent in path.parents):
        raise RunError(f"cannot make {path}: Not a directory", "choose another folder with --save-dir")
    return RunStart(algorithm, config, path, None, {}, None, load_from)


def prepare_start_together(group: ProcessGroup, algorithm: str, loaded: LoadedConfig) -> RunStart:
    """`prepare_start` on process 0, broadcast to all processes. Only process 0 reads files and holds the lock.

    Raises ConfigError if the processes have different configurations.
    """
    if group.count == 1:
        return prepare_start(algorithm, loaded)
    given = json.loads(json.dumps([config_to_dict(loaded.config), loaded.options]))
    if group.sync(flag=group.broadcast_object(lambda: given) != given).flag:
        raise ConfigError("the processes of this run differ in their configuration", "give all of them the same flags")
    plans: list[RunStart] = []

    def as_json() -> dict[str, Any]:
        plan = prepare_start(algorithm, loaded)
        plans.append(plan)
        resumed = plan.resumed._asdict() if plan.resumed else None
        load_from = str(plan.load_from) if plan.load_from else None
        return {"path": str(plan.path), "resumed": resumed, "changes": plan.changes, "load_from": load_from}

    received = group.broadcast_object(as_json)
    if group.is_primary:
        return plans[0]
    resumed = CheckpointMeta(**received["resumed"]) if received["resumed"] else None
    load_from = Path(received["load_from"]) if received["load_from"] else None
    return RunStart(algorithm, loaded.config, Path(received["path"]), resumed, received["changes"], None, load_from)


def _prepare_resume(algorithm: str, loaded: LoadedConfig, path: Path) -> RunStart:
    lock = RunLock(path)
    try:
        meta = CheckpointStore(path / "checkpoints").load_meta()
        folder.check_algorithm(path, meta.algorithm, algorithm)
        changes = _changes(config_from_dict(type(loaded.config), meta.config), loaded)
        fixed = sorted(changes.keys() & leaves_with(type(loaded.config), Role.FIXED))
        if fixed:
            raise ConfigError(
                [f"{name} cannot change when a run is resumed" for name in fixed],
                f"leave it out, or start a new run with --load-path {path}",
            )
        num_updates = loaded.config.training_core.num_updates
        if num_updates < meta.update:
            raise ConfigError(
                f"--num-updates: {num_updates} is below the {meta.update} updates the run has done",
                f"use {meta.update} or more",
            )
    except BaseException:
        lock.close()
        raise
    return RunStart(algorithm, loaded.config, path, meta, changes, lock)


def _changes(before: Any, loaded: LoadedConfig) -> dict[str, Any]:
    """Leaves whose value differs from the checkpoint's. The path of the folder may differ: runs can be moved."""
    after = loaded.config
    config_type: type = type(after)
    roles = leaf_roles(config_type)
    leaves = [n for n, role in roles.items() if not role & Role.FOLDER or n in loaded.overridden]
    return {n: get_leaf(after, n) for n in leaves if get_leaf(after, n) != get_leaf(before, n)}


def initial_state(learner: Learner, config: Any, run_devices: list[jax.Device]) -> Callable[[], Any]:
    """A jitted function without arguments that returns the first state, placed on the devices."""
    num_seeds, seed = config.training_core.num_seeds, config.architecture.seed

    def initial(first_seed: Any) -> Any:  # an argument, so that the compile cache serves every seed
        if num_seeds == 1:
            return learner.init(jax.random.key(first_seed))
        return jax.vmap(learner.init)(jax.vmap(jax.random.key)(first_seed + jnp.arange(num_seeds)))

    shapes = jax.eval_shape(initial, np.int32(seed))
    return functools.partial(jax.jit(initial, out_shardings=_shardings(shapes, run_devices, num_seeds)), np.int32(seed))


def _shardings(shapes: Any, run_devices: list[jax.Device], num_seeds: int) -> Any:
    if len(run_devices) == 1:
        return jax.tree.map(lambda _: SingleDeviceSharding(run_devices[0]), shapes)
    return devices.state_shardings(shapes, devices.environment_mesh(run_devices), num_seeds)


def state_template(make_state: Callable[[], Any], run_devices: list[jax.Device], num_seeds: int) -> Any:
    """Shapes, types and placement of the state on these devices; a checkpoint may come from others."""
    shapes = jax.eval_shape(make_state)
    shardings = _shardings(shapes, run_devices, num_seeds)
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)


def first_state(group: ProcessGroup, plan: RunStart, make_state: Callable[[], Any], template: Any) -> Any:
    """The first state of a run: new, new with loaded parameters, or that of the resumed checkpoint.

    Only process 0 reads files. Raises CheckpointError if they are missing, damaged or do not fit, and RunError if the
    state does not fit into memory.
    """
    if plan.resumed is not None:
        return _resumed_state(group, plan, make_state, template)
    with devices.reraise_device_errors(
        "the first state cannot be made", "lower --num-envs, --reset-pool-size, --hidden-dim or --num-seeds"
    ):
        state = jax.block_until_ready(make_state())
    if plan.load_from is None:
        return state
    source, num_seeds, fresh = plan.load_from, plan.config.training_core.num_seeds, state.params
    wanted = on_local_device(template.params)
    load = functools.partial(
        initial_params.load_initial_params, plan.algorithm, plan.config.environment.task_id, source
    )
    params = group.run_on_primary(lambda: load(wanted, process_group.addressable_copy(fresh), num_seeds))
    return state._replace(params=group.place_from_primary(params, template.params))


def replay_note(replay: Any) -> str | None:
    """A note if the replay cannot be sharded over the devices, else None."""
    placed = jax.tree.leaves(replay.experience)[0].sharding
    count = len(placed.device_set)
    if count == 1 or not placed.is_fully_replicated:
        return None
    return f"the replay is replicated on all {count} devices, because they do not divide its shards; 2, 4 and 8 do"


def on_local_device(template: Any) -> Any:
    """The template placed on one device: the first of this process's devices that the run uses."""
    used = jax.tree.leaves(template)[0].sharding.addressable_devices
    place = SingleDeviceSharding(min(used, key=lambda device: device.id))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), template)


def _resumed_state(group: ProcessGroup, plan: RunStart, make_state: Callable[[], Any], template: Any) -> Any:
    assert plan.resumed is not None  # narrows the type
    store, update = plan.path / "checkpoints", plan.resumed.update
    stored = stored_template(template, plan.resumed)
    if group.count == 1:
        state = CheckpointStore(store).load(stored, update)
    else:  # through host memory: the state of a large run need not fit on one device
        state = group.place_from_primary(
            group.run_on_primary(lambda: CheckpointStore(store).load(stored, update, on_host=True)), stored
        )
    if stored is not template:
        state = state._replace(replay=make_state().replay)
    if not plan.changes:
        return state
    from stoix_like.runtime.runs import build  # starts the backend, so it is imported after the device is selected

    given = build.ALGORITHMS[plan.algorithm].make_hyper(plan.config)
    placed = jax.tree.map(lambda x: x.sharding, state.hyper)
    hyper = jax.jit(lambda old: jax.tree.map(jnp.full_like, old, given), out_shardings=placed)(state.hyper)
    return state._replace(hyper=hyper)
