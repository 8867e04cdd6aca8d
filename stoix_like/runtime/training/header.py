"""The header of a run, which the terminal shows and metrics.jsonl holds, and the commands that follow its last line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from stoix_like.config.checks.access import get_leaf
from stoix_like.config.checks.alphazero import anchor_names, opponent_names
from stoix_like.config.dicts import config_from_dict
from stoix_like.config.sections.alphazero import AlphaZeroSectionConfig
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.ops import trees
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.console.spelling import command_line, command_name, training_command
from stoix_like.runtime.console.text import algorithm_title, plural
from stoix_like.runtime.evaluators import policies
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.loading.config import preset_note
from stoix_like.runtime.runs import initial_params
from stoix_like.runtime.telemetry import RunMeta, TelemetryHub, event
from stoix_like.runtime.telemetry.metrics import start_report
from stoix_like.runtime.telemetry.terminal import TerminalView
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.parts import RunParts
from stoix_like.search.model import SearchConfig
from stoix_like.types import Learner

if TYPE_CHECKING:
    from stoix_like.runtime.runs.build import Algorithm


def run_meta(parts: RunParts, best: BestCheckpoint) -> RunMeta:
    """The metadata that sinks receive."""
    plan, config = parts.plan, parts.config
    known = best.updates[0] >= 0 and config.training_core.num_seeds == 1  # with several seeds the view shows the mean
    return RunMeta(
        algorithm=plan.algorithm,
        title=algorithm_title(plan.algorithm),
        device=devices.describe_devices(parts.run_devices),
        versions=versions(),
        config=config,
        steps_per_update=parts.algorithm.steps_per_update(config),
        resumed_update=plan.resumed.update if plan.resumed else None,
        resumed_evaluated=plan.resumed is None or plan.progress.evaluated_at == plan.resumed.update,
        best=(float(best.scores[0]), int(best.updates[0])) if known else None,
    )


def log_run_header(parts: RunParts, view: TerminalView, telemetry: TelemetryHub, meta: RunMeta) -> None:
    """Logs the run's size, search, origin, and notes on settings that are probably a mistake."""
    from stoix_like.algorithms import searching
    from stoix_like.envs.registry import task_note

    plan, search, task_id = parts.plan, parts.search, parts.config.environment.task_id
    view.banner(plan.path, meta)
    notes = [task_note(task_id), preset_note(parts.loaded), *parts.loaded.notes]
    searches = [] if search is None else [plan_line(search)]
    if search is not None:
        notes += policies.search_notes(search, task_id)
    elif isinstance(parts.config, AlphaZeroConfig):
        searches = [simulations_line(parts.config.alphazero)]
    if searches:
        stored = [trees.at_path(parts.template, path) for path in parts.learner.volatile]
        num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(stored))
        view.lines([*searches, replay_line(num_bytes, parts.config, parts.algorithm)])
    if parts.env.game is not None and parts.evaluators:
        view.lines([opponent_line(parts.config)])
    notes += replication_notes(parts.learner, parts.template)
    for note in filter(None, notes):
        view.note(note)
    telemetry.write([start_report(meta, plan.progress.elapsed_seconds)])
    _log_origin(parts, view, telemetry)
    if search is not None and (hidden := searching.hidden_note(parts.env)) is not None:
        view.note(hidden)


def _log_origin(parts: RunParts, view: TerminalView, telemetry: TelemetryHub) -> None:
    """Logs which checkpoint the run is resumed from, with which changes, or which parameters it starts with."""
    plan, clock = parts.plan, parts.clock.now()
    clock = clock._replace(elapsed_seconds=plan.progress.elapsed_seconds)
    if plan.changes and plan.resumed:
        old = config_from_dict(type(parts.config), plan.resumed.config)
        changed = ", ".join(f"{name} = {value} (was {get_leaf(old, name)})" for name, value in plan.changes.items())
        view.note(f"resumed with {changed}")
        telemetry.write([event(clock, "changed", changed=changed)])
    if plan.resumed and (left_out := plan.resumed.left_out(parts.learner.volatile)):
        lost = " and ".join(left_out)
        view.note(f"the checkpoint holds no {lost}: it is filled again, and the run differs from an uninterrupted one")
    if plan.resumed:
        telemetry.write([event(clock, "checkpoint_loaded", path=f"checkpoints/{plan.resumed.update}")])
    elif plan.load_from is not None:
        view.note(f"starts with {initial_params.describe_initial_params(plan.algorithm, plan.load_from)}")
        telemetry.write([event(clock, "checkpoint_loaded", path=str(plan.load_from))])
    if plan.resumed is None:
        for note in initial_params.origin_notes(plan.algorithm, parts.config, plan.load_from):
            view.note(note)


def other_levels_note(evaluated_at: int, num_updates: int) -> str:
    """A note for a resumed run that is now evaluated on other levels."""
    what_next = "the next evaluation replaces it"
    if evaluated_at == num_updates:
        what_next = f"no evaluation follows; {command_name('evaluate')} --level-set scores it"
    return f"the best so far was scored on other levels: {what_next}"


def plan_line(config: SearchConfig) -> str:
    """The cost of a decision: `search 16 particles × 4 steps = 64 model steps per decision`."""
    from stoix_like.search.model import depth_of

    particles, depth = config.num_particles, depth_of(config)
    most = "at most " if config.search_depth == "full" else ""
    cost = f"{most}{particles * depth:,} model steps per decision"
    return f"search {particles:,} {plural('particle', particles)} × {most}{depth:,} {plural('step', depth)} = {cost}"


def simulations_line(section: AlphaZeroSectionConfig) -> str:
    """The cost of a move of self-play: `search 16 simulations per move`."""
    line = f"search {section.num_simulations:,} {plural('simulation', section.num_simulations)} per move"
    if section.quick_simulations is None:
        return line
    return f"{line} in {section.full_search_share:.0%} of the plies, {section.quick_simulations:,} in the others"


def opponent_line(config: Any) -> str:
    """Whom games are evaluated against: `evaluated against heuristic: a win is a return of 1, a loss of -1`."""
    from stoix_like.algorithms.tasks import DEFAULT_OPPONENT

    names = [", ".join(opponent_names(config.environment.opponent or DEFAULT_OPPONENT))]
    if isinstance(config, AlphaZeroConfig):
        names += [name for name in anchor_names(config.alphazero.anchors) if name not in names]
    return f"evaluated against {' and '.join(names)}: a win is a return of 1, a draw of 0, a loss of -1"


def replay_line(num_bytes: int, config: Any, algorithm: Algorithm) -> str:
    """Size and reuse of the replay: `replay 65,536 steps (141 MB), each learned from 9.5 times on average`."""
    section, unit = (config.alphazero, "positions") if isinstance(config, AlphaZeroConfig) else (config.spo, "steps")
    times = algorithm.samples_per_update(config) / algorithm.steps_per_update(config)
    size = f"{num_bytes / 1e6:,.0f} MB" if num_bytes >= 10**6 else f"{num_bytes / 1e3:,.1f} kB"
    return f"replay {section.replay_buffer_size:,} {unit} ({size}), each learned from {times:.3g} times on average"


def replication_notes(learner: Learner, template: Any) -> list[str]:
    """A note for each volatile field, such as a replay, that cannot be divided over the devices."""
    notes, volatile = [], {path.partition(".")[0] for path in learner.volatile}
    for path in learner.sharded:
        name = path.partition(".")[0]
        placed = jax.tree.leaves(trees.at_path(template, path))[0].sharding
        count = len(placed.device_set)
        if name in volatile and count > 1 and placed.is_fully_replicated:
            why = "because they do not divide its shards; 2, 4 and 8 do"
            notes.append(f"the {name} is replicated on all {count} devices, {why}")
    return notes


def next_commands(parts: RunParts) -> list[str]:
    """What can be done with a finished run."""
    if parts.is_part:
        return []
    env, path = parts.env, str(parts.plan.path)
    drawing = ("animate",) if env.is_drawable and parts.learner.policy is not None else ()
    saved = () if parts.evaluators else ("--checkpoint", "latest")  # without evaluations there is no best one
    has_curves = bool(parts.evaluators) or not parts.algorithm.speaks  # supervised runs have none but these
    commands = [command_line("evaluate", path, *saved)]
    if parts.algorithm.speaks:
        commands.append(command_line("play-text", "--model", path, *saved))
    commands += [command_line("plot", path)] if has_curves else []
    commands += [command_line(name, path, *saved) for name in drawing]
    if env.game is not None:
        commands += [command_line("ratings", path), command_line("play-board", path, *saved)]
    return commands


def resume_commands(parts: RunParts) -> list[str]:
    """The command that resumes a run, unless it is part of a program."""
    plan = parts.plan
    return [] if parts.is_part else [command_line(*training_command(plan.algorithm), "--resume", str(plan.path))]
