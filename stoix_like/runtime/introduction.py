"""What is told of a run before its first update: on the terminal, and as the first rows of metrics.jsonl."""

from __future__ import annotations

from typing import Any

import jax

from stoix_like.config.checks import get_leaf, steps_per_update
from stoix_like.config.dicts import config_from_dict, config_to_dict
from stoix_like.runtime import opening, search_choice
from stoix_like.runtime.best import BestKeeper
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.console.text import Value
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.loading.config import Loaded, preset_note
from stoix_like.runtime.opening import Plan
from stoix_like.runtime.report import start_row
from stoix_like.runtime.runs import initial_params
from stoix_like.runtime.runs.checkpoint import Meta
from stoix_like.runtime.telemetry import Row, RunMeta, Telemetry
from stoix_like.runtime.telemetry.terminal import TerminalView
from stoix_like.search.model import SearchConfig


def run_meta(plan: Plan, found: list[jax.Device], best: BestKeeper) -> RunMeta:
    """What sinks are told of the run."""
    config = plan.config
    known = best.updates[0] >= 0 and config.training_core.num_seeds == 1  # of several seeds the view shows the mean
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
        versions=versions(),
        config=config_to_dict(config),
        resumed_update=plan.resumed.update if plan.resumed else None,
        resumed_evaluated=plan.resumed is None or _evaluated_at(plan.resumed) == plan.resumed.update,
        best=(float(best.scores[0]), int(best.updates[0])) if known else None,
    )


def introduce(
    plan: Plan,
    loaded: Loaded,
    search: SearchConfig | None,
    template: Any,
    view: TerminalView,
    telemetry: Telemetry,
    meta: RunMeta,
) -> None:
    """Tells what will run: how large it is, how it searches, what it goes on from, and what a user may not have meant.

    Args:
        plan, loaded: what will run, and the command line that asked for it.
        search: of an algorithm that searches.
        template: the shapes of its state.
        view, telemetry, meta: where that is told, and of which run.
    """
    from stoix_like.envs.registry import task_note

    task_id = plan.config.environment.task_id
    view.banner(plan.path, meta)
    notes = [task_note(task_id), preset_note(loaded)]
    if search is not None:
        replay_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(template.replay))
        view.lines([search_choice.plan_line(search), search_choice.replay_line(replay_bytes, plan.config)])
        notes += search_choice.search_notes(search, task_id)
        notes.append(opening.replay_note(template.replay))
    for note in filter(None, notes):
        view.note(note)
    telemetry.write([start_row(meta, _elapsed_before(plan))])
    _tell_origin(plan, view, telemetry)


def _tell_origin(plan: Plan, view: TerminalView, telemetry: Telemetry) -> None:
    """What the run goes on from, or whose parameters it starts with."""
    before = _elapsed_before(plan)
    if plan.changes and plan.resumed:
        old = config_from_dict(type(plan.config), plan.resumed.config)
        changed = ", ".join(f"{name} = {value} (was {get_leaf(old, name)})" for name, value in plan.changes.items())
        view.note(f"continued with {changed}")
        telemetry.write([event("changed", plan, before, changed=changed)])
    if plan.resumed and _replay_is_lost(plan):
        view.note("the checkpoint holds no replay: it fills anew, and the run differs from an unbroken one")
    if plan.resumed:
        telemetry.write([event("checkpoint_loaded", plan, before, path=f"checkpoints/{plan.resumed.update}")])
    elif plan.load_from is not None:
        view.note(f"starts with {initial_params.words(plan.algorithm, plan.load_from)}")
        telemetry.write([event("checkpoint_loaded", plan, before, path=str(plan.load_from))])


def _replay_is_lost(plan: Plan) -> bool:
    assert plan.resumed is not None  # narrows the type
    saved = plan.resumed.config.get("checkpointing", {})
    return "spo" in plan.resumed.config and not saved.get("save_replay", True)


def of_a_best_on_other_levels(plan: Plan) -> str:
    """A note for a continued run whose levels are others."""
    done = plan.resumed is not None and _evaluated_at(plan.resumed) == plan.config.training_core.num_updates
    then = "no evaluation follows; evaluate.py --level-set scores it" if done else "the next evaluation replaces it"
    return f"the best so far was scored on other levels: {then}"


def event(name: str, plan: Plan, elapsed_seconds: float, **values: Value) -> Row:
    """A MISC row of something that happened before the first update of this process."""
    update = plan.resumed.update if plan.resumed else 0
    named = {"misc/event": name, **{f"misc/{key}": value for key, value in values.items()}}
    return Row("MISC", update, update * steps_per_update(plan.config), elapsed_seconds, None, named)


def _evaluated_at(resumed: Meta) -> int:
    return int(resumed.host.get("evaluated_at", resumed.update))


def _elapsed_before(plan: Plan) -> float:
    return float(plan.resumed.host.get("elapsed_seconds", 0.0)) if plan.resumed else 0.0
