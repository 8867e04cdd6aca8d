"""How a run starts: in a new folder, or from the last checkpoint of a run that is resumed.

A resumed run is locked before its checkpoints are read, so that no other process removes them meanwhile. It uses the
configuration that was given (the run's config.yaml and the flags), and logs every difference to the checkpoint's.
`hyper` is replaced as a whole, so an interrupted start leaves nothing half-changed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from stoix_like.config.checks.access import get_leaf
from stoix_like.config.dicts import config_from_dict, config_to_dict
from stoix_like.config.sections.roles import Role, leaf_roles, leaves_with
from stoix_like.errors import ConfigError, RunError
from stoix_like.ops import trees
from stoix_like.runtime.hardware import devices, process_group
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.hardware.state_size import require_memory, size_hint
from stoix_like.runtime.loading.config import LoadedConfig
from stoix_like.runtime.runs import folder, initial_params, inputs
from stoix_like.runtime.runs.bank_files import differ_in_bank_alone
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.find import find_run
from stoix_like.runtime.runs.host_values import RunProgress, run_progress
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.types import Learner

#: Without paths the first state; with them, {path: what stands there at first}.
MakeState = Callable[..., Any]


class RunStart(NamedTuple):
    """Where a run starts.

    A new run gets its lock with its folder, and then perhaps another path: see `folder.create_run`.
    """

    algorithm: str  # key of `build.ALGORITHMS`
    path: Path  # of the run folder
    resumed: CheckpointMeta | None  # of the checkpoint that is resumed; None for a new run
    changes: dict[str, Any]  # leaves that differ from that checkpoint, with their new values
    lock: RunLock | None  # of an existing folder
    load_from: Path | None = None  # the run, checkpoint or file from which a new run loads its parameters

    @property
    def progress(self) -> RunProgress:
        """The progress of the checkpoint that is resumed; of a new run, none."""
        return RunProgress() if self.resumed is None else run_progress(self.resumed)

    def is_finished(self, num_updates: int) -> bool:
        """Whether nothing is left to do."""
        evaluated_at = self.progress.evaluated_at
        return self.resumed is not None and not self.changes and self.resumed.update == num_updates == evaluated_at


def prepare_start(algorithm: str, loaded: LoadedConfig) -> RunStart:
    """Where the run starts; nothing is written.

    Raises StoixError if its name is taken, what it resumes or loads is missing, or another process is writing it.
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
    return RunStart(algorithm, path, None, {}, None, load_from)


def prepare_start_together(group: ProcessGroup, algorithm: str, loaded: LoadedConfig) -> RunStart:
    """`prepare_start` on process 0, broadcast to all processes. Only process 0 reads files and holds the lock.

    Raises ConfigError if the processes have different configurations.
    """
    if group.count == 1:
        return prepare_start(algorithm, loaded)
    given = json.loads(json.dumps([config_to_dict(loaded.config), loaded.options]))
    if group.sync(stop=group.broadcast_object(lambda: given) != given).stop:
        raise ConfigError("the processes of this run differ in their configuration", "give all of them the same flags")
    plan = group.run_on_primary(lambda: prepare_start(algorithm, loaded))
    path, resumed, changes, load_from = group.broadcast_object(
        lambda: (str(plan.path), plan.resumed, plan.changes, plan.load_from and str(plan.load_from))
    )
    if group.is_primary:
        return plan
    meta = CheckpointMeta(*resumed) if resumed else None
    return RunStart(algorithm, Path(path), meta, changes, None, Path(load_from) if load_from else None)


def _prepare_resume(algorithm: str, loaded: LoadedConfig, path: Path) -> RunStart:
    lock = RunLock(path)
    try:
        meta = CheckpointStore(path / "checkpoints").load_meta()
        folder.check_algorithm(path, meta.algorithm, algorithm)
        before = config_from_dict(type(loaded.config), meta.config)
        changes = _changes(before, loaded)
        fixed = sorted(changes.keys() & leaves_with(type(loaded.config), Role.FIXED))
        if differ_in_bank_alone(before.environment.kwargs, loaded.config.environment.kwargs):
            fixed.remove("kwargs")  # its hash is checked
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
    return RunStart(algorithm, path, meta, changes, lock)


def _changes(before: Any, loaded: LoadedConfig) -> dict[str, Any]:
    """Leaves whose value differs from the checkpoint's. Paths count only if they are asked for: runs can be moved."""
    after = loaded.config
    config_type: type = type(after)
    roles = leaf_roles(config_type)
    leaves = [n for n, role in roles.items() if not role & (Role.FOLDER | Role.PATH) or n in loaded.overridden]
    return {n: get_leaf(after, n) for n in leaves if get_leaf(after, n) != get_leaf(before, n)}


def initial_state(learner: Learner, config: Any, run_devices: list[jax.Device]) -> tuple[MakeState, Any]:
    """(a function that returns the first state, or what stands at given paths of it; the state's shapes and shardings).

    Of a few paths only these are computed and compiled for.
    """
    num_seeds, seed = config.training_core.num_seeds, np.int32(config.architecture.seed)

    def initial(first_seed: Any) -> Any:  # an argument, so that the compile cache serves every seed
        if num_seeds == 1:
            return learner.init(jax.random.key(first_seed))
        axes = trees.seed_axes(jax.eval_shape(learner.init, jax.random.key(0)), learner.shared)
        keys = jax.vmap(jax.random.key)(first_seed + jnp.arange(num_seeds))
        return jax.vmap(learner.init, out_axes=axes)(keys)

    shapes = jax.eval_shape(initial, seed)
    if len(run_devices) == 1:
        placed = jax.tree.map(lambda _: SingleDeviceSharding(run_devices[0]), shapes)
    else:
        placed = devices.state_shardings(shapes, devices.environment_mesh(run_devices), num_seeds, learner)
    template = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, placed)

    @functools.cache
    def made(paths: tuple[str, ...] | None) -> Callable[[Any], Any]:
        if paths is None:
            return jax.jit(initial, out_shardings=placed)

        def chosen(state: Any) -> dict[str, Any]:
            return {path: trees.at_path(state, path) for path in paths}

        return jax.jit(lambda seed: chosen(initial(seed)), out_shardings=chosen(placed))

    return lambda paths=None: made(paths)(seed), template


def first_state(
    group: ProcessGroup,
    plan: RunStart,
    config: Any,
    learner: Learner,
    make_state: MakeState,
    template: Any,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """The first state of a run: new, new with loaded parameters, or that of the resumed checkpoint.

    What is `given`, host arrays by path, is placed in it; see `runs/inputs.py`. Only process 0 reads checkpoints.
    Raises CheckpointError if they are missing, damaged or do not fit, or were written with something else than what is
    given, and RunError if the state does not fit into memory.
    """
    require_memory(template, config)
    inputs.check_shapes(given, template)
    if plan.resumed is not None:
        inputs.check_hashes(given, plan.resumed, plan.path)
        state = _resumed_state(group, plan, learner, make_state, template)
    else:
        state = _new_state(group, plan, config, make_state, template, inputs.hashes(given).get(inputs.TOKENIZER))
    return inputs.place(state, given, template)


def _new_state(
    group: ProcessGroup, plan: RunStart, config: Any, make_state: MakeState, template: Any, tokenizer: str | None
) -> Any:
    with devices.reraise_device_errors("the first state cannot be made", size_hint(type(config))):
        state = jax.block_until_ready(make_state())
    if plan.load_from is None:
        return state
    fresh, wanted = state.params, on_local_device(template.params)
    load = functools.partial(initial_params.load_initial_params, plan.algorithm, config, plan.load_from, wanted)
    params = group.run_on_primary(lambda: load(process_group.addressable_copy(fresh), tokenizer))
    return state._replace(params=group.place_from_primary(params, template.params))


def on_local_device(template: Any) -> Any:
    """The template placed on one device: the first of this process's devices that the run uses."""
    used = jax.tree.leaves(template)[0].sharding.addressable_devices
    place = SingleDeviceSharding(min(used, key=lambda device: device.id))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), template)


def _resumed_state(group: ProcessGroup, plan: RunStart, learner: Learner, make_state: MakeState, template: Any) -> Any:
    assert plan.resumed is not None  # narrows the type
    store, update = plan.path / "checkpoints", plan.resumed.update
    left_out = plan.resumed.left_out(learner.volatile)
    stored = trees.with_paths(template, dict.fromkeys((*left_out, *plan.resumed.inputs)))
    if group.count == 1:
        state = CheckpointStore(store).load(stored, update)
    else:  # through host memory: the state of a large run need not fit on one device
        state = group.place_from_primary(
            group.run_on_primary(lambda: CheckpointStore(store).load(stored, update, on_host=True)), stored
        )
    return trees.with_paths(state, make_state(left_out)) if left_out else state


def with_hyper(state: Any, before: Any, after: Any) -> Any:
    """The state with the values of `hyper` that differ between two configurations; they keep their placement."""
    changed = {name: value for name, value in after._asdict().items() if value != getattr(before, name)}
    if not changed:
        return state
    old = {name: getattr(state.hyper, name) for name in changed}
    return state._replace(hyper=state.hyper._replace(**jax.tree.map(_filled, old, changed)))


def _filled(x: jax.Array, value: Any) -> jax.Array:
    """An array like `x` of this value everywhere. Compiles nothing: a loop does this at each iteration."""
    values = np.full(x.shape, value, x.dtype)
    return jax.make_array_from_callback(x.shape, x.sharding, lambda index: values[index])
