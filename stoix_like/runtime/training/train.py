"""One training run, new or resumed: from a loaded configuration to its last line on the terminal."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.stages import Compiled

from stoix_like.config.dicts import config_to_dict
from stoix_like.errors import INTERRUPTED, StoixError
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.evaluators.scores import Evaluator, make_levels
from stoix_like.runtime.hardware import devices, process_group
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.loading.config import LoadedConfig
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.runs import folder
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.host_values import run_progress
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.telemetry import MarlEvalSink, QueuedSink, open_telemetry
from stoix_like.runtime.telemetry.selected_sinks import sinks_from_config
from stoix_like.runtime.telemetry.sink import Sink
from stoix_like.runtime.telemetry.terminal import TerminalView
from stoix_like.runtime.training import chunk, header, start
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.driver import MEMORY_HINT, Driver, RunOutputs
from stoix_like.runtime.training.profile import Profile
from stoix_like.runtime.training.start import RunStart
from stoix_like.runtime.training.stopping import StopRequest, stopping_on_signals
from stoix_like.runtime.training.writer import RunFiles, RunWriter
from stoix_like.search.model import SearchConfig
from stoix_like.types import Learner

if TYPE_CHECKING:
    from stoix_like.runtime.runs.build import RunComponents


#: Makes a sink for a run. The sink may end the run by setting the request.
MakeSink = Callable[[StopRequest], Sink]


class _RunParts(NamedTuple):
    """What a run consists of. All of it is built and checked before the run folder is created or changed."""

    group: ProcessGroup
    plan: RunStart
    run_devices: list[jax.Device]
    learner: Learner
    evaluator: Evaluator
    extra_evaluators: tuple[Evaluator, ...]  # see `_evaluators`
    template: Any
    state: Any
    loaded: LoadedConfig
    search: SearchConfig | None  # None if the algorithm does not search
    async_sinks: list[QueuedSink]  # on process 0: the sinks besides the run folder and the terminal
    extra_sinks: tuple[Sink, ...] = ()
    hidden_note: str | None = None  # see `searching.hidden_note`; None if the algorithm does not search


class _StartedRun(NamedTuple):
    """A compiled run whose header is logged, before its first update."""

    plan: RunStart
    view: TerminalView
    driver: Driver
    program: chunk.ChunkFunction
    profile: Profile | None  # if `--profile` was given


def train(
    algorithm: str,
    loaded: LoadedConfig,
    make_sink: MakeSink | None = None,
    parent_stop: StopRequest | None = None,
) -> int:
    """The exit code of one training run: 0 if it finished, 130 if a signal or the extra sink stopped it.

    Args:
        algorithm: key of `build.ALGORITHMS`.
        loaded: the configuration.
        make_sink: makes an extra sink, which may end the run.
        parent_stop: the stop request of the program this run is part of, such as a sweep.

    Nothing is written until configuration, device and environment are checked.
    """
    with contextlib.ExitStack() as closing:
        logging = loaded.config.logging
        group = process_group.initialize(loaded.launched, logging, compile_cache=loaded.options.is_cached)
        plan = start.prepare_start_together(group, algorithm, loaded)
        if plan.lock:
            closing.callback(plan.lock.close)
        if not plan.changes and _is_finished(plan):
            assert plan.resumed is not None  # narrows the type
            done = f"{plan.path} has finished its {plan.resumed.update:,} updates"
            _view(group, closing, False).note(f"{done}; --num-updates N continues to more")
            return 0
        parts = _prepare(group, plan, loaded)
        stop = closing.enter_context(stopping_on_signals(parent_stop))
        if make_sink is not None:
            parts = parts._replace(extra_sinks=(make_sink(stop),))
        started = _start(parts, closing) if plan.resumed else _start_new(parts, closing)
        code = _run(started, stop)
        _conclude(started, code)
        return code


def _view(group: ProcessGroup, closing: contextlib.ExitStack, progress: bool) -> TerminalView:
    """A view on standard output on process 0, and on the null device on the others."""
    if group.is_primary:
        return TerminalView(progress)
    return TerminalView(False, stream=closing.enter_context(open(os.devnull, "w")))


def _run(started: _StartedRun, stop: StopRequest) -> int:
    try:
        return started.driver.run(started.program, stop)
    except KeyboardInterrupt:  # the second one
        if (update := started.driver.saved_update) is not None:
            started.view.lines(
                [f"the last checkpoint is of update {update:,}", f"next: {_resume_command(started.plan)}"]
            )
        raise
    except StoixError as error:
        with contextlib.suppress(StoixError):  # a full disk, say
            started.driver.log_failure(error.what)
        raise


def _is_finished(plan: RunStart) -> bool:
    if plan.resumed is None:
        return False
    last = plan.config.training_core.num_updates
    return bool(plan.resumed.update == last == run_progress(plan.resumed).evaluated_at)


def _prepare(group: ProcessGroup, plan: RunStart, loaded: LoadedConfig) -> _RunParts:
    config = plan.config
    run_devices = devices.select(config.hardware, config.logging, compile_cache=loaded.options.is_cached)
    devices.check_divisible(config.environment.num_envs, run_devices)
    from stoix_like.algorithms import searching
    from stoix_like.runtime.runs import build  # starts the backend, so it is imported after the device is selected

    built = build.build(plan.algorithm, config)
    num_seeds = config.training_core.num_seeds
    make_state = start.initial_state(built.learner, config, run_devices)
    template = start.state_template(make_state, run_devices, num_seeds)
    evaluator, *extra_evaluators = _evaluators(built, config)
    state = start.first_state(group, plan, make_state, template)
    search = build.search_config(plan.algorithm, built.env, config)
    async_sinks = group.run_on_primary(lambda: sinks_from_config(config.logging, config.checkpointing.save_dir)) or []
    parts = _RunParts(
        group,
        plan,
        run_devices,
        built.learner,
        evaluator,
        tuple(extra_evaluators),
        template,
        state,
        loaded,
        search,
        async_sinks,
    )
    return parts if search is None else parts._replace(hidden_note=searching.hidden_note(built.env))


def _evaluators(built: RunComponents, config: Any) -> Iterator[Evaluator]:
    """Evaluators of the policy, of the network alone if the policy searches, and of sampled actions if configured."""
    learner, env, evaluation = built.learner, built.env, config.evaluation
    levels = make_levels(env, evaluation.level_set, evaluation.num_eval_episodes)
    played = levels, evaluation.num_eval_envs, config.training_core.num_seeds
    yield Evaluator(env, learner.policy, *played)
    if learner.network_policy is not learner.policy:
        yield Evaluator(env, learner.network_policy, *played, mode="network")
    if evaluation.evaluate_sampled:
        yield Evaluator(env, learner.policy, *played, mode="sampled")


def _start_new(parts: _RunParts, closing: contextlib.ExitStack) -> _StartedRun:
    """`_start` in a new folder. The folder is removed if the run cannot start, for example if compilation fails."""
    plan, group = parts.plan, parts.group
    facts = {"devices": devices.describe_devices(parts.run_devices), "algorithm": plan.algorithm}
    is_numbered = plan.config.checkpointing.run_name is None
    new = group.run_on_primary(lambda: folder.create_run(plan.path, to_yaml(plan.config), facts, numbered=is_numbered))
    if new is None:
        return _start(parts, closing)
    closing.callback(new.lock.close)
    try:
        return _start(parts._replace(plan=plan._replace(path=new.path)), closing)
    except BaseException as error:  # always raised again
        can_be_resumed = any((new.path / "checkpoints").glob("0"))
        if isinstance(error, Exception) or not can_be_resumed:
            new.discard()
        raise


def _start(parts: _RunParts, closing: contextlib.ExitStack) -> _StartedRun:
    group, plan, config = parts.group, parts.plan, parts.plan.config
    view = _view(group, closing, config.logging.progress)
    writer = RunWriter(group, group.run_on_primary(lambda: _open_files(parts, view, closing)))
    closing.callback(writer.close)  # registered last, so it runs before lock and telemetry are closed
    meta = plan.resumed or CheckpointMeta(plan.algorithm, config.environment.task_id, 0, {}, {})
    meta = meta._replace(config=config_to_dict(config))
    is_kept = parts.loaded.options.profile
    wants_profile = is_kept or config.logging.otlp_endpoint is not None  # spans report the phases
    profile = Profile(plan.path / "profile", is_kept=is_kept) if wants_profile and group.is_primary else None
    outputs = RunOutputs(parts.evaluator, writer, view.note, profile, parts.extra_evaluators)
    driver = Driver(parts.state, config, meta, outputs, is_continued=plan.resumed is not None, group=group)
    if not plan.resumed:
        driver.save(at_once=True)  # from here on an interrupted run can be resumed
        group.sync()  # raises if the checkpoint was not written
    view.compiling()
    began = time.monotonic()
    program = _compile(parts)
    seconds = time.monotonic() - began
    view.compiled(seconds)
    writer.write([header.event_row("compiled", plan, driver.elapsed_seconds, compile_seconds=round(seconds, 3))])
    if plan.changes:
        group.run_on_primary(lambda: atomic_write_text(plan.path / "config.yaml", to_yaml(config)))
    if profile is not None:
        profile.set_program(program.as_text() or "")
    return _StartedRun(plan, view, driver, program, profile if is_kept else None)


def _open_files(parts: _RunParts, view: TerminalView, closing: contextlib.ExitStack) -> RunFiles:
    """The files the run writes to. Logs the header of the run."""
    plan, config = parts.plan, parts.plan.config
    best = BestCheckpoint(
        plan.path / "checkpoints" / "best", config.training_core.num_seeds, parts.evaluator.levels.level_set_id
    )
    store = CheckpointStore(plan.path / "checkpoints", config.checkpointing.keep_last_n, create=True)
    params = start.on_local_device(parts.template.params)
    is_comparable = best.restore(params, plan.resumed.update) if plan.resumed else True
    meta = header.run_meta(plan, parts.run_devices, best)
    telemetry = open_telemetry(plan.path, meta, [view, MarlEvalSink(), *parts.extra_sinks], parts.async_sinks)
    closing.callback(telemetry.close)
    header.log_run_header(plan, parts.loaded, parts.search, parts.template, view, telemetry, meta)
    if parts.hidden_note is not None:
        view.note(parts.hidden_note)
    if not is_comparable:
        view.note(header.other_levels_note(plan))
    return RunFiles(store, best, telemetry)


def _compile(parts: _RunParts) -> Compiled:
    with devices.reraise_device_errors("the update cannot be compiled", MEMORY_HINT):
        program = chunk.compile_chunk(parts.learner, parts.plan.config.training_core.num_seeds, parts.state)
    for evaluator in (parts.evaluator, *parts.extra_evaluators):
        evaluator.compile(
            process_group.addressable_copy(parts.state.params), process_group.addressable_copy(parts.state.key)
        )
    return program


def _conclude(started: _StartedRun, code: int) -> None:
    plan, driver = started.plan, started.driver
    if code == INTERRUPTED:
        commands = [_resume_command(plan)]
    else:
        commands = [command_line(name, str(plan.path)) for name in ("evaluate", "plot", "animate")]
    stopped_at = driver.update if code == INTERRUPTED else None
    if (profile := started.profile) is not None and profile.times is not None:
        started.view.lines(profile.table())
    elif profile is not None:
        reason = profile.problem or "it begins with the second chunk of updates"
        started.view.warning(f"no profile was taken: {reason}")
    timesteps = driver.timesteps * plan.config.training_core.num_seeds
    started.view.done(timesteps, driver.elapsed_seconds, commands, stopped_at)


def _resume_command(plan: RunStart) -> str:
    return command_line(f"train-{plan.algorithm}", "--resume", str(plan.path))
