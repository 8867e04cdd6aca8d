"""How a run begins: as a new folder, or from the last checkpoint of one that is continued.

A continued run is locked before its checkpoints are read, so that nobody removes what is being read. Its configuration
is the one in the checkpoint; every difference to the configuration given (the run's config.yaml and the flags) is taken
over and told. `hyper` is set from it as a whole, so an interrupted start leaves nothing half-changed.
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

from stoix_like.config.checks import get_leaf, leaf_sections
from stoix_like.config.dicts import config_from_dict, config_to_dict
from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.hardware import devices, process_group
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.loading.config import LoadedConfig
from stoix_like.runtime.runs import folder, initial_params
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.find import find_run
from stoix_like.runtime.runs.trees import stored_template
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.types import Learner

#: Leaves that give the state its shapes or its meaning: a continued run keeps them.
FIXED_ON_RESUME = frozenset(
    {"task_id", "num_envs", "max_items", "max_ems", "max_episode_steps", "kwargs", "reset_pool_size", "rollout_length"}
    | {"hidden_dim", "num_layers", "num_heads", "shared_torso", "compute_dtype", "observation_adapter"}
    | {"seed", "num_seeds", "load_path", "run_name", "save_dir"}
    | {"replay_buffer_size", "batch_size", "num_particles", "search_depth", "root", "root_noise_correction"}
    | {"resampling", "resampling_period", "init_temperature", "init_alpha"}
)


class RunStart(NamedTuple):
    """A run before it is built.

    Attributes:
        algorithm: key of `build.ALGORITHMS`.
        config: as it will run.
        path: the run folder.
        resumed: what the checkpoint that is continued says, or None for a new run.
        changes: leaves that differ from that checkpoint, with their new values.
        lock: the right to write a folder that exists; a new run gets its own with the folder. A new run without a name
            may get another path then, too: see `folder.create_run`.
        load_from: the run, checkpoint or file whose parameters a new run starts with.
    """

    algorithm: str
    config: Any
    path: Path
    resumed: CheckpointMeta | None
    changes: dict[str, Any]
    lock: RunLock | None
    load_from: Path | None = None


def prepare_start(algorithm: str, loaded: LoadedConfig) -> RunStart:
    """What the command line asks for; nothing is written.

    Raises:
        ConfigError: the name is taken, or a fixed leaf would change.
        CheckpointError: no run to continue, one of another algorithm, or nothing to load parameters from.
        RunError: another process is writing the run, or a file stands where its folder would be made.
    """
    if loaded.options.resume is not None:
        return _plan_resume(algorithm, loaded, find_run(loaded.options.resume))
    config = loaded.config
    load_from = initial_params.find_initial_params(config)  # whatever is wrong with it is said before anything is built
    name = config.checkpointing.run_name
    if name is None:
        path = folder.new_path(config.checkpointing.save_dir, algorithm, config)
    else:
        path = folder.run_path(config.checkpointing.save_dir, name)
    if any(parent.exists() and not parent.is_dir() for parent in path.parents):
        raise RunError(f"cannot make {path}: Not a directory", "choose another folder with --save-dir")
    return RunStart(algorithm, config, path, None, {}, None, load_from)


def prepare_start_together(group: ProcessGroup, algorithm: str, loaded: LoadedConfig) -> RunStart:
    """`prepare_start` in the lead, which alone looks at files and holds the lock; the others are told.

    Raises:
        ConfigError: the processes were not given the same configuration.
        StoixError: as `prepare_start`; in the others, that process 0 ended the run.
    """
    if group.count == 1:
        return prepare_start(algorithm, loaded)
    given = json.loads(json.dumps([config_to_dict(loaded.config), loaded.options]))
    if group.sync(flag=group.broadcast_object(lambda: given) != given).flag:
        raise ConfigError("the processes of this run differ in their configuration", "give all of them the same flags")
    plans: list[RunStart] = []

    def plain() -> dict[str, Any]:
        plan = prepare_start(algorithm, loaded)
        plans.append(plan)
        resumed = plan.resumed._asdict() if plan.resumed else None
        load_from = str(plan.load_from) if plan.load_from else None
        return {"path": str(plan.path), "resumed": resumed, "changes": plan.changes, "load_from": load_from}

    told = group.broadcast_object(plain)
    if group.is_primary:
        return plans[0]
    resumed = CheckpointMeta(**told["resumed"]) if told["resumed"] else None
    load_from = Path(told["load_from"]) if told["load_from"] else None
    return RunStart(algorithm, loaded.config, Path(told["path"]), resumed, told["changes"], None, load_from)


def _plan_resume(algorithm: str, loaded: LoadedConfig, path: Path) -> RunStart:
    lock = RunLock(path)
    try:
        meta = _last_meta(path)
        folder.check_algorithm(path, meta.algorithm, algorithm)
        changes = _changes(config_from_dict(type(loaded.config), meta.config), loaded)
        fixed = sorted(changes.keys() & FIXED_ON_RESUME)
        if fixed:
            raise ConfigError(
                [f"{name} cannot change when a run is continued" for name in fixed],
                f"leave it out, or start a new run with --load-path {path}",
            )
        num_updates = loaded.config.training_core.num_updates
        if num_updates < meta.update:
            raise ConfigError(
                f"--num-updates: {num_updates} is behind the run, which has done {meta.update}",
                f"use a number from {meta.update}",
            )
    except BaseException:
        lock.close()
        raise
    return RunStart(algorithm, loaded.config, path, meta, changes, lock)


def _last_meta(path: Path) -> CheckpointMeta:
    return CheckpointStore(path / "checkpoints").load_meta()


def _changes(before: Any, loaded: LoadedConfig) -> dict[str, Any]:
    """Leaves whose value differs from the checkpoint's. Where the folder stands may differ: runs can be moved."""
    after = loaded.config
    config_type: type = type(after)
    leaves = [n for n in leaf_sections(config_type) if n not in ("save_dir", "run_name") or n in loaded.overridden]
    return {n: get_leaf(after, n) for n in leaves if get_leaf(after, n) != get_leaf(before, n)}


def initial_state(learner: Learner, config: Any, found: list[jax.Device]) -> Callable[[], Any]:
    """A jitted function of no arguments that makes the first state, placed on the devices."""
    num_seeds, seed = config.training_core.num_seeds, config.architecture.seed

    def initial(first_seed: Any) -> Any:  # an argument, so that the compile cache serves every seed
        if num_seeds == 1:
            return learner.init(jax.random.key(first_seed))
        return jax.vmap(learner.init)(jax.vmap(jax.random.key)(first_seed + jnp.arange(num_seeds)))

    shapes = jax.eval_shape(initial, np.int32(seed))
    return functools.partial(jax.jit(initial, out_shardings=_shardings(shapes, found, num_seeds)), np.int32(seed))


def _shardings(shapes: Any, found: list[jax.Device], num_seeds: int) -> Any:
    if len(found) == 1:
        return jax.tree.map(lambda _: SingleDeviceSharding(found[0]), shapes)
    return devices.state_shardings(shapes, devices.environment_mesh(found), num_seeds)


def state_template(make_state: Callable[[], Any], found: list[jax.Device], num_seeds: int) -> Any:
    """Shapes, types and placement of the state, whatever devices a checkpoint of it was written on."""
    shapes = jax.eval_shape(make_state)
    shardings = _shardings(shapes, found, num_seeds)
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)


def first_state(group: ProcessGroup, plan: RunStart, make_state: Callable[[], Any], template: Any) -> Any:
    """The state a run begins with: fresh, with loaded parameters, or that of the checkpoint that is continued.

    Files are read by the lead alone.

    Raises:
        CheckpointError: parameters or checkpoint are missing, damaged, or do not fit.
        RunError: it does not fit into memory.
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
    asked = on_local_device(template.params)
    begin = functools.partial(
        initial_params.load_initial_params, plan.algorithm, plan.config.environment.task_id, source
    )
    params = group.run_on_primary(lambda: begin(asked, process_group.addressable_copy(fresh), num_seeds))
    return state._replace(params=group.place_from_primary(params, template.params))


def replay_note(replay: Any) -> str | None:
    """What to say where a replay cannot be spread over the devices; or None."""
    placed = jax.tree.leaves(replay.experience)[0].sharding
    count = len(placed.device_set)
    if count == 1 or not placed.is_fully_replicated:
        return None
    return f"the replay lies whole on each of the {count} devices, which do not divide its shards; 2, 4 and 8 do"


def on_local_device(template: Any) -> Any:
    """The template for what this process reads for itself: on the first of its own devices that are used."""
    used = jax.tree.leaves(template)[0].sharding.addressable_devices
    place = SingleDeviceSharding(min(used, key=lambda device: device.id))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), template)


def _resumed_state(group: ProcessGroup, plan: RunStart, make_state: Callable[[], Any], template: Any) -> Any:
    assert plan.resumed is not None  # narrows the type
    store, update = plan.path / "checkpoints", plan.resumed.update
    stored = stored_template(template, plan.resumed)
    if group.count == 1:
        state = CheckpointStore(store).load(stored, update)
    else:  # by way of the host: the state of a large run need not fit on one device
        state = group.place_from_primary(
            group.run_on_primary(lambda: CheckpointStore(store).load(stored, update, on_host=True)), stored
        )
    if stored is not template:
        state = state._replace(replay=make_state().replay)
    if not plan.changes:
        return state
    from stoix_like.runtime.runs import build  # starts the backend: only after the device is chosen

    given = build.ALGORITHMS[plan.algorithm].make_hyper(plan.config)
    placed = jax.tree.map(lambda x: x.sharding, state.hyper)
    hyper = jax.jit(lambda old: jax.tree.map(jnp.full_like, old, given), out_shardings=placed)(state.hyper)
    return state._replace(hyper=hyper)
