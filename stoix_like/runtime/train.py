"""One training run, fresh or continued: from a loaded configuration to its last line on the terminal."""

from __future__ import annotations

import contextlib
import functools
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like import config_checks
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime import devices, loop, run_folder
from stoix_like.runtime.best import BestKeeper
from stoix_like.runtime.checkpoint import CheckpointStore, Meta
from stoix_like.runtime.driver import INTERRUPTED, Driver
from stoix_like.runtime.load import Loaded, config_to_dict, to_yaml
from stoix_like.runtime.report import start_row
from stoix_like.runtime.scoring import Evaluator
from stoix_like.runtime.telemetry import Row, RunMeta, Telemetry, open_telemetry
from stoix_like.runtime.telemetry.sink import Value
from stoix_like.runtime.telemetry.terminal import TerminalView
from stoix_like.types import Learner

#: Leaves that give the state its shapes or its meaning: a continued run keeps them.
FIXED_ON_RESUME = frozenset(
    {"task_id", "num_envs", "max_items", "max_ems", "max_episode_steps", "kwargs", "reset_pool_size", "rollout_length"}
    | {"hidden_dim", "num_layers", "num_heads", "shared_torso", "compute_dtype", "observation_adapter"}
    | {"seed", "num_seeds", "load_path", "run_name", "save_dir"}
)


class Plan(NamedTuple):
    """A run before anything is written."""

    algorithm: str
    config: Any
    path: Path
    resume_from: Meta | None
    overrides: dict[str, Any]  # leaves that flags changed in a continued run


def train(algorithm: str, loaded: Loaded) -> int:
    """Trains as configured and returns the exit code: 0 done, 130 interrupted.

    Raises:
        StoixError: see `errors`; nothing is written before configuration, device and environment are known to be good.
    """
    plan = _plan(algorithm, loaded)
    config = plan.config
    compile_cache = not loaded.options.no_compile_cache
    backend_logs = config.logging.backend_logs_visible
    found = devices.select(config.hardware, compile_cache=compile_cache, backend_logs=backend_logs)
    from stoix_like.runtime import build  # starts the backend: only after the device is chosen

    built = build.build(plan.algorithm, config)
    make_state = _initial_state(built.learner, config, found)
    template = jax.eval_shape(make_state)
    evaluator = Evaluator(built.env, built.learner.policy, config.evaluation, config.training_core.num_seeds)
    state, resumed = _state(plan, make_state, template, found)
    with contextlib.ExitStack() as closing:
        lock = _open_folder(plan, found)
        closing.callback(lock.close)
        best = BestKeeper(plan.path / "checkpoints" / "best", config.training_core.num_seeds)
        closing.callback(best.close)
        store = CheckpointStore(plan.path / "checkpoints", config.checkpointing.keep_last_n, create=True)
        closing.callback(store.close)
        if resumed:
            best.restore(template.params, resumed.update)
        meta = _run_meta(plan, found, best)
        view = TerminalView(config.logging.progress)
        telemetry = open_telemetry(plan.path, meta, [view])
        closing.callback(telemetry.close)
        _introduce(plan, view, telemetry, meta)
        program = _compile(built.learner, config, state, view)
        telemetry.write([_event("compiled", plan, compile_seconds=round(program.compile_seconds, 3))])
        checkpoint_meta = resumed or Meta(plan.algorithm, config.environment.task_id, 0, {}, {})
        checkpoint_meta = checkpoint_meta._replace(config=config_to_dict(config))
        driver = Driver(program, state, config, checkpoint_meta, evaluator, best, store, telemetry)
        code = driver.run()
        _conclude(plan, view, driver, code)
    return code


def _plan(algorithm: str, loaded: Loaded) -> Plan:
    config = loaded.config
    if loaded.options.resume is None:
        task_id, seed = config.environment.task_id, config.architecture.seed
        name = config.checkpointing.run_name or run_folder.new_name(algorithm, task_id, seed)
        return Plan(algorithm, config, run_folder.run_path(config.checkpointing.save_dir, name), None, {})
    path = run_folder.find_run(loaded.options.resume)
    fixed = sorted(loaded.explicit & FIXED_ON_RESUME)
    if fixed:
        raise ConfigError(
            [f"{name} cannot change when a run is continued" for name in fixed],
            f"leave it out, or start a new run with --load-path {path}",
        )
    store = CheckpointStore(path / "checkpoints")
    meta = store.load_meta()
    store.close()
    if meta.algorithm != algorithm:
        raise CheckpointError(
            f"{path} is a run of {meta.algorithm.upper()}, not of {algorithm.upper()}",
            f"continue it with scripts/train_{meta.algorithm}.py",
        )
    if config.training_core.num_updates < meta.update:
        raise ConfigError(
            f"--num-updates: {config.training_core.num_updates} is behind the run, which has done {meta.update}",
            f"use a number above {meta.update}",
        )
    overrides = {name: config_checks.get_leaf(config, name) for name in sorted(loaded.explicit)}
    return Plan(algorithm, config, path, meta, overrides)


def _initial_state(learner: Learner, config: Any, found: list[jax.Device]) -> Any:
    """A jitted function of no arguments that makes the first state, placed on the devices."""
    core, seed = config.training_core, config.architecture.seed
    num_seeds = core.num_seeds

    def initial() -> Any:
        if num_seeds == 1:
            return learner.init(jax.random.key(seed))
        return jax.vmap(learner.init)(jax.vmap(jax.random.key)(seed + jnp.arange(num_seeds)))

    if len(found) == 1:
        return jax.jit(initial)
    mesh = devices.environment_mesh(found)
    shardings = devices.state_shardings(jax.eval_shape(initial), mesh, num_seeds)
    return jax.jit(initial, out_shardings=shardings)


def _state(plan: Plan, make_state: Any, template: Any, found: list[jax.Device]) -> tuple[Any, Meta | None]:
    if plan.resume_from is None:
        state = make_state()
        load_path = plan.config.checkpointing.load_path
        return (_with_loaded_params(state, load_path) if load_path else state), None
    store = CheckpointStore(plan.path / "checkpoints")
    state = store.load(_placed(template, plan, found), plan.resume_from.update)
    store.close()
    changed = {n: v for n, v in plan.overrides.items() if n in state.hyper._fields}
    # num_updates is the horizon of the decay as well as the end of the run
    hyper = {n: jnp.full_like(getattr(state.hyper, n), 0.0 if v is None else float(v)) for n, v in changed.items()}
    return state._replace(hyper=state.hyper._replace(**hyper)), plan.resume_from


def _placed(template: Any, plan: Plan, found: list[jax.Device]) -> Any:
    if len(found) == 1:
        return template
    mesh = devices.environment_mesh(found)
    shardings = devices.state_shardings(template, mesh, plan.config.training_core.num_seeds)
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), template, shardings)


def _with_loaded_params(state: Any, load_path: str) -> Any:
    """The state with the parameters of another run: those of its best checkpoint, else of its last."""
    folder = checkpoint_folder(Path(load_path))
    store = CheckpointStore(folder)
    template = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state.params)
    params = store.load_part("params", template)
    store.close()
    return state._replace(params=params)


def checkpoint_folder(path: Path) -> Path:
    """Where the parameters of a run or checkpoint folder are: its best ones if it has any."""
    for folder in (path / "checkpoints" / "best", path / "checkpoints", path):
        if folder.is_dir() and any(child.name.isdigit() for child in folder.iterdir()):
            return folder
    if path.name.isdigit() and (path / "state").is_dir():
        return path.parent
    raise CheckpointError(f"no checkpoint in {path}", "give a run folder, for example runs/<name>")


def _open_folder(plan: Plan, found: list[jax.Device]) -> run_folder.RunLock:
    facts = {"devices": devices.describe(found), "algorithm": plan.algorithm}
    if plan.resume_from is None:
        return run_folder.create(plan.path, to_yaml(plan.config), facts)
    lock = run_folder.RunLock(plan.path)
    if plan.overrides:
        run_folder.write_atomically(plan.path / "config.yaml", to_yaml(plan.config))
    return lock


def _run_meta(plan: Plan, found: list[jax.Device], best: BestKeeper) -> RunMeta:
    config = plan.config
    index = int(np.argmax(best.scores))
    known = bool(np.isfinite(best.scores[index]))
    return RunMeta(
        algorithm=plan.algorithm.upper(),
        task_id=config.environment.task_id,
        device=devices.describe(found),
        seed=config.architecture.seed,
        num_seeds=config.training_core.num_seeds,
        num_envs=config.environment.num_envs,
        rollout_length=config.training_core.rollout_length,
        num_updates=config.training_core.num_updates,
        eval_interval=config.evaluation.eval_interval,
        versions=run_folder.versions(),
        config=config_to_dict(config),
        resumed_update=plan.resume_from.update if plan.resume_from else None,
        best=(float(best.scores[index]), int(best.updates[index])) if known else None,
    )


def _introduce(plan: Plan, view: TerminalView, telemetry: Telemetry, meta: RunMeta) -> None:
    from stoix_like.envs.registry import task_note

    view.banner(plan.path, meta)
    note = task_note(plan.config.environment.task_id)
    if note:
        view.note(note)
    if plan.overrides:
        view.note("continued with " + ", ".join(f"{name} = {value}" for name, value in plan.overrides.items()))
    telemetry.write([start_row(meta, _elapsed_before(plan))])
    if plan.resume_from:
        telemetry.write([_event("checkpoint_loaded", plan, path=f"checkpoints/{plan.resume_from.update}")])
    elif plan.config.checkpointing.load_path:
        telemetry.write([_event("checkpoint_loaded", plan, path=plan.config.checkpointing.load_path)])


def _compile(learner: Learner, config: Any, state: Any, view: TerminalView) -> loop.Program:
    view.compiling()
    program = loop.compile_chunk(learner, config.training_core.num_seeds, state)
    view.compiled(program.compile_seconds)
    return program


def _event(event: str, plan: Plan, **values: Value) -> Row:
    """A MISC row of something that happened before the first update of this process."""
    update = plan.resume_from.update if plan.resume_from else 0
    timesteps = update * config_checks.steps_per_update(plan.config)
    named = {"misc/event": event, **{f"misc/{name}": value for name, value in values.items()}}
    return Row("MISC", update, timesteps, _elapsed_before(plan), None, named)


def _elapsed_before(plan: Plan) -> float:
    return float(plan.resume_from.host.get("elapsed_seconds", 0.0)) if plan.resume_from else 0.0


def _conclude(plan: Plan, view: TerminalView, driver: Driver, code: int) -> None:
    script = Path(sys.argv[0]).name or f"train_{plan.algorithm}.py"
    run = functools.partial("python scripts/{} {}".format)
    path = shlex.quote(str(plan.path))
    if code == INTERRUPTED:
        commands = [run(script, f"--resume {path}")]
    else:
        commands = [run(name, path) for name in ("evaluate.py", "plot.py", "animate.py")]
    view.done(driver.timesteps * plan.config.training_core.num_seeds, driver.elapsed_seconds, commands)
