"""One training run, fresh or continued: from a loaded configuration to its last line on the terminal."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.stages import Compiled

from stoix_like.config.checks import replace_leaves
from stoix_like.config.dicts import config_to_dict
from stoix_like.errors import INTERRUPTED, StoixError
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.evaluators.scores import Evaluator
from stoix_like.runtime.hardware import devices, process_group
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.loading.config import LoadedConfig
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.runs import folder
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.telemetry import MarlEvalSink, QueuedSink, open_telemetry
from stoix_like.runtime.telemetry.selected_sinks import sinks_from_config
from stoix_like.runtime.telemetry.sink import Sink
from stoix_like.runtime.telemetry.terminal import TerminalView
from stoix_like.runtime.training import chunk, header, start
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.driver import LESS_MEMORY, Driver, RunOutputs
from stoix_like.runtime.training.profile import Profile
from stoix_like.runtime.training.start import RunStart
from stoix_like.runtime.training.stopping import StopRequest, stopping_on_signals
from stoix_like.runtime.training.writer import RunFiles, RunWriter
from stoix_like.search.model import SearchConfig
from stoix_like.types import Learner

if TYPE_CHECKING:
    from stoix_like.runtime.runs.build import RunComponents


#: Makes a sink that may ask the run to end: it sets the request it is given.
Watch = Callable[[StopRequest], Sink]


class _Ready(NamedTuple):
    """Everything that is known to be good before a run folder is touched."""

    group: ProcessGroup
    plan: RunStart
    found: list[jax.Device]
    learner: Learner
    evaluator: Evaluator
    beside: tuple[Evaluator, ...]  # what else is scored: see `_evaluators`
    template: Any
    state: Any
    loaded: LoadedConfig
    search: SearchConfig | None  # of an algorithm that searches
    queued: list[QueuedSink]  # in the lead: where metrics go besides the run folder and the terminal
    watchers: tuple[Sink, ...] = ()
    hidden_note: str | None = None  # see `searching.hidden_note`; of an algorithm that searches


class _Started(NamedTuple):
    """A run whose first update is next."""

    plan: RunStart
    view: TerminalView
    driver: Driver
    program: chunk.ChunkFunction
    profile: Profile | None  # if it was asked for


def train(algorithm: str, loaded: LoadedConfig, watch: Watch | None = None, outer: StopRequest | None = None) -> int:
    """Trains as configured and returns the exit code: 0 done, 130 interrupted, by a signal or by what `watch` makes.

    Args:
        algorithm: key of `build.ALGORITHMS`.
        loaded: the configuration.
        watch: makes a sink that may end the run.
        outer: a request that signals have set until now, of what this run is a part of.

    Raises:
        StoixError: see `errors`; nothing is written before configuration, device and environment are known to be good.
    """
    with contextlib.ExitStack() as closing:
        launched = loaded.config
        group = process_group.initialize(launched.hardware, launched.logging, compile_cache=loaded.options.is_cached)
        loaded = _of_the_run(loaded)
        plan = start.prepare_start_together(group, algorithm, loaded)
        if plan.lock:
            closing.callback(plan.lock.close)
        if not plan.changes and _is_finished(plan):
            assert plan.resumed is not None  # narrows the type
            done = f"{plan.path} has done its {plan.resumed.update:,} updates"
            _view(group, closing, False).note(f"{done}; --num-updates N goes on to more")
            return 0
        ready = _prepare(group, plan, loaded)
        stop = closing.enter_context(stopping_on_signals(outer))
        if watch is not None:
            ready = ready._replace(watchers=(watch(stop),))
        started = _start(ready, closing) if plan.resumed else _start_new(ready, closing)
        code = _run(started, stop)
        _conclude(started, code)
        return code


def _of_the_run(loaded: LoadedConfig) -> LoadedConfig:
    """Without what says how these processes were started: a run may be continued by others."""
    alone = {"distributed": False, "coordinator_address": None, "num_processes": None, "process_id": None}
    return loaded._replace(config=replace_leaves(loaded.config, alone))


def _view(group: ProcessGroup, closing: contextlib.ExitStack, progress: bool) -> TerminalView:
    """Standard output in the lead, nothing in the others."""
    if group.is_primary:
        return TerminalView(progress)
    return TerminalView(False, stream=closing.enter_context(open(os.devnull, "w")))


def _run(started: _Started, stop: StopRequest) -> int:
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
    return bool(plan.resumed.update == last == plan.resumed.host.get("evaluated_at", last))


def _prepare(group: ProcessGroup, plan: RunStart, loaded: LoadedConfig) -> _Ready:
    config = plan.config
    found = devices.select(config.hardware, config.logging, compile_cache=loaded.options.is_cached)
    devices.check_divisible(config.environment.num_envs, found)
    from stoix_like.algorithms import searching
    from stoix_like.runtime.runs import build  # starts the backend: only after the device is chosen

    built = build.build(plan.algorithm, config)
    num_seeds = config.training_core.num_seeds
    make_state = start.initial_state(built.learner, config, found)
    template = start.state_template(make_state, found, num_seeds)
    evaluator, *beside = _evaluators(built, config)
    state = start.first_state(group, plan, make_state, template)
    search = build.search_config(plan.algorithm, built.env, config)
    queued = group.run_on_primary(lambda: sinks_from_config(config.logging, config.checkpointing.save_dir)) or []
    ready = _Ready(group, plan, found, built.learner, evaluator, tuple(beside), template, state, loaded, search, queued)
    return ready if search is None else ready._replace(hidden_note=searching.hidden_note(built.env))


def _evaluators(built: RunComponents, config: Any) -> Iterator[Evaluator]:
    """What is scored: the policy, the network alone if the policy is more, and sampled actions if asked for."""
    learner, env, num_seeds = built.learner, built.env, config.training_core.num_seeds
    yield Evaluator(env, learner.policy, config.evaluation, num_seeds)
    if learner.network_policy is not learner.policy:
        yield Evaluator(env, learner.network_policy, config.evaluation, num_seeds, mode="network")
    if config.evaluation.evaluate_sampled:
        yield Evaluator(env, learner.policy, config.evaluation, num_seeds, mode="sampled")


def _start_new(ready: _Ready, closing: contextlib.ExitStack) -> _Started:
    """`_start` in a new folder, which is taken away again if the run cannot begin: what cannot be compiled, say."""
    plan, group = ready.plan, ready.group
    facts = {"devices": devices.describe_devices(ready.found), "algorithm": plan.algorithm}
    is_numbered = plan.config.checkpointing.run_name is None
    new = group.run_on_primary(lambda: folder.create_run(plan.path, to_yaml(plan.config), facts, numbered=is_numbered))
    if new is None:
        return _start(ready, closing)
    closing.callback(new.lock.close)
    try:
        return _start(ready._replace(plan=plan._replace(path=new.path)), closing)
    except BaseException as error:  # whatever it is, it goes on
        can_be_continued = any((new.path / "checkpoints").glob("0"))
        if isinstance(error, Exception) or not can_be_continued:
            new.discard()
        raise


def _start(ready: _Ready, closing: contextlib.ExitStack) -> _Started:
    group, plan, config = ready.group, ready.plan, ready.plan.config
    view = _view(group, closing, config.logging.progress)
    recorder = RunWriter(group, group.run_on_primary(lambda: _open_files(ready, view, closing)))
    closing.callback(recorder.close)  # after the lock's and the telemetry's, so before them
    told = plan.resumed or CheckpointMeta(plan.algorithm, config.environment.task_id, 0, {}, {})
    is_kept = ready.loaded.options.profile
    wants_profile = is_kept or config.logging.otlp_endpoint is not None  # traces tell the phases
    profile = Profile(plan.path / "profile", is_kept=is_kept) if wants_profile and group.is_primary else None
    outputs = RunOutputs(ready.evaluator, recorder, view.note, profile, ready.beside)
    meta = told._replace(config=config_to_dict(config))
    driver = Driver(ready.state, config, meta, outputs, is_continued=plan.resumed is not None, group=group)
    if not plan.resumed:
        driver.save(at_once=True)  # from here on an interrupted run can be continued
        group.sync()  # that it was written
    view.compiling()
    began = time.monotonic()
    program = _compile(ready)
    seconds = time.monotonic() - began
    view.compiled(seconds)
    recorder.write([header.event_row("compiled", plan, driver.elapsed_seconds, compile_seconds=round(seconds, 3))])
    if plan.changes:
        group.run_on_primary(lambda: atomic_write_text(plan.path / "config.yaml", to_yaml(config)))
    if profile is not None:
        profile.learn(program.as_text() or "")
    return _Started(plan, view, driver, program, profile if is_kept else None)


def _open_files(ready: _Ready, view: TerminalView, closing: contextlib.ExitStack) -> RunFiles:
    """What the run writes to, and the lines before its first update."""
    plan, config = ready.plan, ready.plan.config
    best = BestCheckpoint(
        plan.path / "checkpoints" / "best", config.training_core.num_seeds, ready.evaluator.level_set_id
    )
    store = CheckpointStore(plan.path / "checkpoints", config.checkpointing.keep_last_n, create=True)
    scored_by = start.on_local_device(ready.template.params)
    compared = best.restore(scored_by, plan.resumed.update) if plan.resumed else True
    meta = header.run_meta(plan, ready.found, best)
    telemetry = open_telemetry(plan.path, meta, [view, MarlEvalSink(), *ready.watchers], ready.queued)
    closing.callback(telemetry.close)
    header.log_run_header(plan, ready.loaded, ready.search, ready.template, view, telemetry, meta)
    if ready.hidden_note is not None:
        view.note(ready.hidden_note)
    if not compared:
        view.note(header.other_levels_note(plan))
    return RunFiles(store, best, telemetry)


def _compile(ready: _Ready) -> Compiled:
    with devices.reraise_device_errors("the update cannot be compiled", LESS_MEMORY):
        program = chunk.compile_chunk(ready.learner, ready.plan.config.training_core.num_seeds, ready.state)
    for evaluator in (ready.evaluator, *ready.beside):
        evaluator.compile(
            process_group.addressable_copy(ready.state.params), process_group.addressable_copy(ready.state.key)
        )
    return program


def _conclude(started: _Started, code: int) -> None:
    plan, driver = started.plan, started.driver
    if code == INTERRUPTED:
        commands = [_resume_command(plan)]
    else:
        commands = [command_line(name, str(plan.path)) for name in ("evaluate", "plot", "animate")]
    stopped_at = driver.update if code == INTERRUPTED else None
    if (profile := started.profile) is not None and profile.times is not None:
        started.view.lines(profile.table())
    elif profile is not None:
        why = profile.problem or "it begins with the second chunk of updates"
        started.view.warning(f"no profile was taken: {why}")
    timesteps = driver.timesteps * plan.config.training_core.num_seeds
    started.view.done(timesteps, driver.elapsed_seconds, commands, stopped_at)


def _resume_command(plan: RunStart) -> str:
    return command_line(f"train-{plan.algorithm}", "--resume", str(plan.path))
