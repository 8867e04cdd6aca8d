"""One training run, new or resumed: from a loaded configuration to its last line on the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jax.stages import Compiled

from stoix_like.config.dicts import config_to_dict
from stoix_like.errors import StoixError
from stoix_like.runtime.console.messages import reported_if_slow
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.hardware import devices, process_group
from stoix_like.runtime.hardware.process_group import Decision, ProcessGroup
from stoix_like.runtime.loading.config import LoadedConfig
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.runs import folder
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.telemetry import MarlEvalSink, Sink, event, marl_eval, open_telemetry
from stoix_like.runtime.telemetry.terminal import TerminalView
from stoix_like.runtime.training import chunk, header, start
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.callbacks import Callback, SaveCheckpoint
from stoix_like.runtime.training.driver import DONE, MEMORY_HINT, Driver, make_driver
from stoix_like.runtime.training.evaluate import Meet
from stoix_like.runtime.training.parts import RunParts, build_parts
from stoix_like.runtime.training.profile import Profile
from stoix_like.runtime.training.stopping import StopRequest, showing_next_command, stopping_on_signals
from stoix_like.runtime.training.writer import RunFiles, RunWriter

if TYPE_CHECKING:
    from stoix_like.runtime.runs.build import Prepared

_LOG = logging.getLogger(__name__)


class TrainResult(NamedTuple):
    """How a run ended. Its last state is saved.

    The status is "done" after the last update and its evaluation; else "interrupted" by a signal, or the reason of the
    `StopTraining` that a callback raised, such as "pruned".
    """

    status: str
    path: Path  # of the run folder
    last_update: int  # updates done


class _StartedRun(NamedTuple):
    """A run before its first update, ready to be driven."""

    parts: RunParts
    view: TerminalView
    writer: RunWriter
    driver: Driver
    profile: Profile | None


def train(
    algorithm: str,
    loaded: LoadedConfig,
    callbacks: Sequence[Callback] = (),
    *,
    sinks: Sequence[Sink] = (),
    stop: StopRequest | None = None,
    quiet: bool = False,
    prepared: Prepared | None = None,
) -> TrainResult:
    """One training run, from its configuration to its last line.

    Nothing is written until configuration, device and environment are checked. Raises StoixError if the run cannot
    start or go on.

    Args:
        algorithm: key of `build.ALGORITHMS`.
        loaded: the configuration.
        callbacks: act between chunks of updates, after evaluations and before checkpoints.
        sinks: receive the run's reports, beside those that the configuration selects.
        stop: the stop request of the program this run is part of, such as a sweep, which says itself what comes next.
        quiet: show nothing on the terminal, where that program shows how far it is.
        prepared: what its runs share, so that only the first of them builds and compiles it.
    """
    with contextlib.ExitStack() as closing:
        is_cached = loaded.options.is_cached
        group = process_group.initialize(loaded.launched, loaded.config.logging, compile_cache=is_cached)
        plan = start.prepare_start_together(group, algorithm, loaded)
        if plan.lock:
            closing.callback(plan.lock.close)
        last = loaded.config.training_core.num_updates
        view = _view(group, closing, loaded.config.logging.progress, quiet)
        if plan.is_finished(last):
            view.note(f"{plan.path} has finished its {last:,} updates; --num-updates N continues to more")
            return TrainResult(DONE, plan.path, last)
        with reported_if_slow(f"building {loaded.config.environment.task_id}", view.note):
            parts = build_parts(group, plan, loaded, callbacks, sinks, prepared)._replace(is_part=stop is not None)
        request = closing.enter_context(stopping_on_signals(stop))
        started = (_start if plan.resumed else _start_new)(parts, view, request, closing)
        return _conclude(started, _run(started))


def _view(group: ProcessGroup, closing: contextlib.ExitStack, progress: bool, quiet: bool) -> TerminalView:
    """A view on standard output on process 0; on the null device on the others, and where nothing is to be shown."""
    if group.is_primary and not quiet:
        return TerminalView(progress)
    return TerminalView(False, stream=closing.enter_context(open(os.devnull, "w")))


def _reporter(view: TerminalView) -> Reporter:
    """Words of a run go through its view; the progress of an evaluation is logged, because the view shows metrics."""
    return Reporter(view.note, view.note, view.warning, lambda text: _LOG.info("evaluating: %s", text))


def _start_new(parts: RunParts, view: TerminalView, request: StopRequest, closing: contextlib.ExitStack) -> _StartedRun:
    """`_start` in a new folder. The folder is removed if the run cannot start, for example if compilation fails."""
    plan, group = parts.plan, parts.group
    facts = {"devices": devices.describe_devices(parts.run_devices), "algorithm": plan.algorithm}
    is_numbered = parts.config.checkpointing.run_name is None
    text = to_yaml(parts.config)
    new = group.run_on_primary(lambda: folder.create_run(plan.path, text, facts, numbered=is_numbered))
    if new is None:
        return _start(parts, view, request, closing)
    closing.callback(new.lock.close)
    try:
        return _start(parts._replace(plan=plan._replace(path=new.path)), view, request, closing)
    except BaseException as error:  # always raised again
        can_be_resumed = any((new.path / "checkpoints").glob("0"))
        if isinstance(error, Exception) or not can_be_resumed:
            new.discard()
        raise


def _start(parts: RunParts, view: TerminalView, request: StopRequest, closing: contextlib.ExitStack) -> _StartedRun:
    group, plan, config, clock = parts.group, parts.plan, parts.config, parts.clock
    files = group.run_on_primary(lambda: _open_files(parts, view, closing))
    task_id, given = config.environment.task_id, parts.input_hashes
    meta = CheckpointMeta(plan.algorithm, task_id, 0, config_to_dict(config), {}, given, parts.env.bank_hash)
    writer = RunWriter(group, files, meta)
    closing.callback(writer.close)  # registered last, so it runs before lock and telemetry are closed
    save = _save_checkpoint(parts, writer)
    if not plan.resumed:
        save.save(parts.state, clock, at_once=True)  # from here on an interrupted run can be resumed
        group.sync(error=writer.collect())
    view.compiling()
    began = time.monotonic()
    again = ["the same command again"] if plan.changes and not parts.is_part else header.resume_commands(parts)
    with showing_next_command(view.close, writer.last_checkpoint, again):  # what changes is not stored yet
        program = _compile(parts)
    seconds = time.monotonic() - began
    view.compiled(seconds)
    writer.write([event(clock.now(), "compiled", compile_seconds=round(seconds, 3))])
    if plan.changes:
        group.run_on_primary(lambda: atomic_write_text(plan.path / "config.yaml", to_yaml(config)))
    driver, profile = make_driver(parts, program, writer, save, _meeting(group, request, writer), _reporter(view))
    return _StartedRun(parts, view, writer, driver, profile)


def _save_checkpoint(parts: RunParts, writer: RunWriter) -> SaveCheckpoint:
    checkpointing = parts.config.checkpointing
    left_out = (() if checkpointing.save_replay else parts.learner.volatile) + tuple(parts.input_hashes)
    return SaveCheckpoint(checkpointing.save_interval, writer, left_out, parts.clock if parts.plan.resumed else None)


def _meeting(group: ProcessGroup, request: StopRequest, writer: RunWriter) -> Meet:
    def meet(length: int = 0, *, stop: bool = False, error: Exception | None = None) -> Decision:
        return group.sync(length, stop or request.is_set, error or writer.collect())

    return meet


def _open_files(parts: RunParts, view: TerminalView, closing: contextlib.ExitStack) -> RunFiles:
    """The files the run writes to. Logs the header of the run."""
    plan, config = parts.plan, parts.config
    checkpoints = plan.path / "checkpoints"
    levels = parts.evaluators[0].levels.level_set_id if parts.evaluators else None
    use_ocdbt = config.checkpointing.use_ocdbt
    of_best = CheckpointStore(checkpoints / "best", create=True, use_ocdbt=use_ocdbt)
    best = BestCheckpoint(of_best, config.training_core.num_seeds, levels)
    store = CheckpointStore(checkpoints, config.checkpointing.keep_last_n, create=True, use_ocdbt=use_ocdbt)
    params = start.on_local_device(parts.template.params)
    is_comparable = best.restore(params, plan.resumed.update) if plan.resumed else True
    meta = header.run_meta(parts, best)
    is_evaluated = bool(parts.evaluators) or (plan.path / marl_eval.FILE_NAME).is_file()
    sinks: list[Sink] = [view, *([MarlEvalSink()] if is_evaluated else []), *parts.sinks]
    telemetry = open_telemetry(plan.path, meta, sinks, parts.selected_sinks)
    closing.callback(telemetry.close)
    header.log_run_header(parts, view, telemetry, meta)
    if not is_comparable:
        view.note(header.other_levels_note(parts.clock.evaluated_at, parts.clock.last_update))
    return RunFiles(store, best, telemetry)


def _compile(parts: RunParts) -> Compiled:
    num_seeds = parts.config.training_core.num_seeds
    with devices.reraise_device_errors("the update cannot be compiled", MEMORY_HINT):
        program: Compiled = parts.prepared.program or chunk.compile_chunk(parts.learner, num_seeds, parts.state)
        parts.prepared.program = program
    params, key = process_group.addressable_copy((parts.state.params, parts.state.key))
    for evaluator in parts.evaluators:
        evaluator.compile(params, key)
    return program


def _run(started: _StartedRun) -> str:
    """The status of the run. Its failure is logged; a second signal shows what is left."""
    view, writer = started.view, started.writer
    try:
        with showing_next_command(view.close, writer.last_checkpoint, header.resume_commands(started.parts)):
            return started.driver.run(started.parts.state)
    except StoixError as error:
        writer.log_failure(event(started.parts.clock.now(), "failed", message=error.what))
        raise


def _conclude(started: _StartedRun, status: str) -> TrainResult:
    """The result of the run, whose last lines are shown."""
    plan, clock, view = started.parts.plan, started.parts.clock, started.view
    commands = header.next_commands(started.parts) if status == DONE else header.resume_commands(started.parts)
    if (profile := started.profile) is not None and profile.times is not None:
        view.lines(profile.table())
    elif profile is not None:
        reason = profile.problem or "it begins with the second chunk of updates"
        view.warning(f"no profile was taken: {reason}")
    _, timesteps, seconds = clock.now()
    ended = DONE if status == DONE else f"{status} after update {clock.update:,}, saved:"
    view.done(timesteps * started.parts.config.training_core.num_seeds, seconds, commands, ended)
    return TrainResult(status, plan.path, clock.update)
