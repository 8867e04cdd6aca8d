"""The command `compare_search.py`: what searches reach with equal numbers of model steps, on the same frozen levels.

A run of several seeds is as many runs. What is compared is in `methods.py`, how it is told in
`compare_tables.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stoix_like.errors import ConfigError
from stoix_like.runtime.evaluators import policies
from stoix_like.runtime.figures.panels import plot_panels
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.results.series import experiment_leaves
from stoix_like.runtime.searches import settings as compare_flags
from stoix_like.runtime.searches.settings import ComparisonSettings

if TYPE_CHECKING:
    from stoix_like.evaluation.levels import LevelSet
    from stoix_like.runtime.runs.saved import SavedRun

Report = Callable[[str], None]
MethodRows = dict[str, Any]  # plain JSON values


class RunOnLevels(NamedTuple):
    """A run and the levels it is played on."""

    saved: SavedRun
    levels: LevelSet
    level_hash: str


def compare(
    runs: Sequence[Path],
    checkpoint: str = "best",
    level_set: str | None = None,
    settings: ComparisonSettings | None = None,
    *,
    tell: Report = lambda _: None,
) -> dict[str, Any]:
    """The scores of every method at every budget, for every seed of every run, and over those that are seeds of one
    setting, as plain JSON values.

    Args:
        runs: folders, or files of published parameters, each once.
        checkpoint: `best`, `latest`, or an update.
        level_set: name of a frozen set; None: 256 levels of each run's task.
        settings: what is compared.
        tell: is given the lines of the tables, each as soon as it is known.

    Raises:
        ConfigError: levels of another task, or a learned temperature asked of a run that has none.
        CheckpointError: see `saved.load_run`.
    """
    settings = settings or ComparisonSettings()
    contests = [_contest(path, checkpoint, level_set, settings) for path in runs]
    groups: list[tuple[Any, list[MethodRows]]] = []
    blocks: list[MethodRows] = []
    for contest in contests:
        own = _play(contest, settings, tell)
        blocks += own
        meta = contest.saved.meta
        identity = meta.algorithm, meta.task_id, experiment_leaves(meta.config)
        home = next((members for other, members in groups if other == identity), None)
        if home is None:
            groups.append((identity, own))
        else:
            home += own
    return {"runs": blocks, "over_runs": [found for _, members in groups for found in _over_runs(members, tell)]}


def _contest(path: Path, checkpoint: str, level_set: str | None, settings: ComparisonSettings) -> RunOnLevels:
    from stoix_like.evaluation import levels
    from stoix_like.runtime.evaluators.scores import level_hash
    from stoix_like.runtime.runs import saved as saved_run

    saved = saved_run.load_run(str(path), checkpoint)
    if "smc" in settings.methods and settings.temperature is None and saved.meta.algorithm != "spo":
        raise ConfigError(
            f"--temperature: {path} is a run of {saved.meta.algorithm.upper()}, which learns none",
            "give a number, such as 0.005",
        )
    name = level_set or f"{levels.family_of(saved.env.task_id)}-{compare_flags.DEFAULT_LEVELS}"
    with devices.reraise_device_errors(f"level set {name} cannot be made", "name a smaller set"):
        chosen = levels.level_set(name, saved.env.task_id)
        return RunOnLevels(saved, chosen, level_hash(saved.env, chosen))


def _play(contest: RunOnLevels, settings: ComparisonSettings, tell: Report) -> list[MethodRows]:
    """A block for each seed of the run."""
    import jax

    from stoix_like.runtime.searches import methods, tables
    from stoix_like.types import role_key

    players = methods.players(contest.saved, contest.levels, settings)
    key = role_key(jax.random.key(settings.seed), "evaluation")
    blocks = []
    for index in range(contest.saved.num_seeds):
        block = _facts(contest, settings, index)
        tell(_title(block))
        tell(tables.HEAD)
        params, greedy = contest.saved.seed_params(index), None
        for played in (played for player in players for played in player(params, key)):
            greedy = greedy or played
            block["rows"].append(tables.row_of(played, greedy))
            tell(tables.line(block["rows"][-1]))
        block["notes"] += _repeated(block) + _lowered(block, settings) + _overspent(block)
        tell("".join(f"note: {note}\n" for note in block["notes"]))
        blocks.append(block)
    return blocks


def _facts(contest: RunOnLevels, settings: ComparisonSettings, index: int) -> MethodRows:
    """What is played, without rows."""
    from stoix_like.algorithms import searching
    from stoix_like.runtime.searches import methods

    saved = contest.saved
    hidden = [note for note in [searching.hidden_note(saved.env)] if note is not None]
    excluded = methods.left_out(saved.env, settings.methods)
    searches = methods.descriptions(saved.env, settings)
    if methods.has_own(saved, settings.methods):
        searches["own"] = f"{policies.describe_own_search(saved, deterministic=True)}; whatever the budgets"
    elif "own" in settings.methods and settings.methods != tuple(compare_flags.METHODS):  # asked for
        excluded["own"] = f"a run of {saved.meta.algorithm.upper()} has no search of its own"
    return {
        "run": str(saved.path),
        "seed": saved.seeds[index],
        "algorithm": saved.meta.algorithm,
        "task_id": saved.meta.task_id,
        "kwargs": dict(saved.config.environment.kwargs),
        "checkpoint": saved.checkpoint,
        "update": saved.updates[index],
        "levels": contest.levels.name,
        "level_hash": contest.level_hash,
        "searches": searches,
        "notes": [f"{method} is left out: {reason}" for method, reason in excluded.items()] + hidden,
        "rows": [],
    }


def _title(block: MethodRows) -> str:
    task = block["task_id"] + (f" {block['kwargs']}" if block["kwargs"] else "")
    first = (
        f"{block['run']}, seed {block['seed']}: {block['algorithm'].upper()} on {task}, checkpoint"
        f" {block['checkpoint']} of update {block['update']}, levels: {block['levels']} ({block['level_hash']})"
    )
    return "\n".join([first, *(f"{name}: {description}" for name, description in block["searches"].items())])


def _repeated(block: MethodRows) -> list[str]:
    """Where several budgets pay for the same search."""
    sizes = {(row["method"], row["particles"]) for row in block["rows"]}
    notes = []
    for method, particles in sorted(sizes):
        budgets = [r["budget"] for r in block["rows"] if (r["method"], r["particles"]) == (method, particles)]
        if len(budgets) > 1:
            listed = ", ".join(f"{budget:,}" for budget in budgets)
            notes.append(f"{method} at {listed} is the same search, of {particles:,} particle(s)")
    return notes


def _lowered(block: MethodRows, settings: ComparisonSettings) -> list[str]:
    """Where fewer levels than asked for were played at a time."""
    if settings.num_envs is None:
        return []
    played = min(settings.num_envs, max(row["num_envs"] for row in block["rows"]))
    return [
        f"{row['method']} at {row['budget']:,}: {row['num_envs']} levels at a time, not to hold more particles"
        for row in block["rows"]
        if row["num_envs"] < played
    ]


def _overspent(block: MethodRows) -> list[str]:
    """Where a single particle, or a whole episode, takes more than the budget."""
    return [
        f"{row['method']} at {row['budget']:,} took {row['model_steps_per_decision']:.1f} model steps per decision"
        for row in block["rows"]
        if row["model_steps_per_decision"] > row["budget"] * (1 + 1e-6) > 0
    ]


def _over_runs(members: list[MethodRows], tell: Report) -> list[MethodRows]:
    """The mean over runs of one setting; nothing where there is one, or where a seed comes twice: that is no sample."""
    from stoix_like.runtime.searches import tables

    if len(members) < 2 or len({block["seed"] for block in members}) < len(members):
        return []
    first, named = members[0], [f"{block['run']} seed {block['seed']}" for block in members]
    rows = tables.rows_over_runs([block["rows"] for block in members])
    tell(f"mean over {len(members)} runs of {first['algorithm'].upper()} on {first['task_id']}, intervals over runs")
    tell("\n".join([tables.HEAD, *map(tables.line, rows), ""]))
    facts = {name: first[name] for name in ("algorithm", "task_id", "kwargs", "checkpoint", "levels", "level_hash")}
    return [{"members": named, **facts, "rows": rows}]


def draw(result: dict[str, Any], out: Path) -> Path:
    """The figure of what `compare` gave: a panel for each mean over runs, and for each run that is in none.

    Raises:
        ConfigError, RunError: see `panels.plot_panels`.
    """
    from stoix_like.runtime.searches import tables

    pooled = {member for block in result["over_runs"] for member in block["members"]}
    panels = []
    for block in result["over_runs"]:
        title = f"{block['algorithm'].upper()} on {block['levels']}, {len(block['members'])} runs"
        panels.append(tables.panel(title, block["rows"]))
    for block in result["runs"]:
        if f"{block['run']} seed {block['seed']}" not in pooled:
            title = f"{Path(block['run']).name} seed {block['seed']} on {block['levels']}"
            panels.append(tables.panel(title, block["rows"]))
    return plot_panels(panels, out, "measured model steps per decision", "mean return, 95 % interval")
