"""The header of a run: what the terminal shows and metrics.jsonl holds before the first update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from stoix_like.config.checks import get_leaf, steps_per_update
from stoix_like.config.dicts import config_from_dict
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.console.spelling import command_name
from stoix_like.runtime.console.text import Value, algorithm_title
from stoix_like.runtime.evaluators import policies
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.loading.config import LoadedConfig, preset_note
from stoix_like.runtime.runs import initial_params
from stoix_like.runtime.runs.host_values import run_progress
from stoix_like.runtime.telemetry import Row, RunMeta, TelemetryHub
from stoix_like.runtime.telemetry.rows import start_row
from stoix_like.runtime.telemetry.terminal import TerminalView
from stoix_like.runtime.training import start
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.start import RunStart
from stoix_like.search.model import SearchConfig

if TYPE_CHECKING:
    from stoix_like.config.sections import SPOConfig


def run_meta(plan: RunStart, run_devices: list[jax.Device], best: BestCheckpoint) -> RunMeta:
    """The metadata that sinks receive."""
    config = plan.config
    known = best.updates[0] >= 0 and config.training_core.num_seeds == 1  # with several seeds the view shows the mean
    return RunMeta(
        algorithm=algorithm_title(plan.algorithm),
        device=devices.describe_devices(run_devices),
        versions=versions(),
        config=config,
        resumed_update=plan.resumed.update if plan.resumed else None,
        resumed_evaluated=plan.resumed is None or run_progress(plan.resumed).evaluated_at == plan.resumed.update,
        best=(float(best.scores[0]), int(best.updates[0])) if known else None,
    )


def log_run_header(
    plan: RunStart,
    loaded: LoadedConfig,
    search: SearchConfig | None,
    template: Any,
    view: TerminalView,
    telemetry: TelemetryHub,
    meta: RunMeta,
) -> None:
    """Logs the run's size, search, origin, and notes on settings that are probably a mistake.

    Args:
        plan, loaded: the run, and the options it was started with.
        search: None if the algorithm does not search.
        template: shapes of the state.
        view, telemetry, meta: what is logged to, and the run's metadata.
    """
    from stoix_like.envs.registry import task_note

    task_id = plan.config.environment.task_id
    view.banner(plan.path, meta)
    notes = [task_note(task_id), preset_note(loaded)]
    if search is not None:
        replay_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(template.replay))
        view.lines([plan_line(search), replay_line(replay_bytes, plan.config)])
        notes += policies.search_notes(search, task_id)
        notes.append(start.replay_note(template.replay))
    for note in filter(None, notes):
        view.note(note)
    telemetry.write([start_row(meta, _elapsed_before(plan))])
    _log_origin(plan, view, telemetry)


def _log_origin(plan: RunStart, view: TerminalView, telemetry: TelemetryHub) -> None:
    """Logs which checkpoint the run is resumed from, with which changes, or which parameters it starts with."""
    before = _elapsed_before(plan)
    if plan.changes and plan.resumed:
        old = config_from_dict(type(plan.config), plan.resumed.config)
        changed = ", ".join(f"{name} = {value} (was {get_leaf(old, name)})" for name, value in plan.changes.items())
        view.note(f"resumed with {changed}")
        telemetry.write([event_row("changed", plan, before, changed=changed)])
    if plan.resumed and _replay_is_lost(plan):
        view.note("the checkpoint holds no replay: it is filled again, and the run differs from an uninterrupted one")
    if plan.resumed:
        telemetry.write([event_row("checkpoint_loaded", plan, before, path=f"checkpoints/{plan.resumed.update}")])
    elif plan.load_from is not None:
        view.note(f"starts with {initial_params.describe_initial_params(plan.algorithm, plan.load_from)}")
        telemetry.write([event_row("checkpoint_loaded", plan, before, path=str(plan.load_from))])


def _replay_is_lost(plan: RunStart) -> bool:
    assert plan.resumed is not None  # narrows the type
    saved = plan.resumed.config.get("checkpointing", {})
    return "spo" in plan.resumed.config and not saved.get("save_replay", True)


def other_levels_note(plan: RunStart) -> str:
    """A note for a resumed run that is now evaluated on other levels."""
    last = plan.config.training_core.num_updates
    is_done = plan.resumed is not None and run_progress(plan.resumed).evaluated_at == last
    what_next = (
        f"no evaluation follows; {command_name('evaluate')} --level-set scores it"
        if is_done
        else "the next evaluation replaces it"
    )
    return f"the best so far was scored on other levels: {what_next}"


def event_row(name: str, plan: RunStart, elapsed_seconds: float, **values: Value) -> Row:
    """A MISC row of an event before the first update of this process."""
    update = plan.resumed.update if plan.resumed else 0
    event = {"misc/event": name, **{f"misc/{key}": value for key, value in values.items()}}
    return Row("MISC", update, update * steps_per_update(plan.config), elapsed_seconds, None, event)


def _elapsed_before(plan: RunStart) -> float:
    return run_progress(plan.resumed).elapsed_seconds if plan.resumed else 0.0


def plan_line(config: SearchConfig) -> str:
    """The cost of a decision: `search 16 particles × 4 steps = 64 model steps per decision`."""
    from stoix_like.search.model import depth_of

    particles, depth = config.num_particles, depth_of(config)
    most = "at most " if config.search_depth == "full" else ""
    cost = f"{most}{particles * depth:,} model steps per decision"
    return f"search {particles:,} {_plural('particle', particles)} × {most}{depth:,} {_plural('step', depth)} = {cost}"


def replay_line(num_bytes: int, config: SPOConfig) -> str:
    """Size and reuse of the replay: `replay 65,536 steps (141 MB), each learned from 9.5 times on average`."""
    core, section = config.training_core, config.spo
    learned = core.epochs * core.num_minibatches * section.batch_size * section.sample_sequence_length
    times = learned / steps_per_update(config)
    size = f"{num_bytes / 1e6:,.0f} MB" if num_bytes >= 10**6 else f"{num_bytes / 1e3:,.1f} kB"
    return f"replay {section.replay_buffer_size:,} steps ({size}), each learned from {times:.3g} times on average"


def _plural(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"
