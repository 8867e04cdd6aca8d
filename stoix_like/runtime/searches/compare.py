"""Compares searches of saved runs at equal numbers of model steps, on the same frozen levels.

Each seed of a run is compared by itself. `methods.py` has the methods, and `tables.py` formats the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoix_like.errors import ConfigError
from stoix_like.runtime.console.reporter import SILENT, Reporter
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.evaluators import policies
from stoix_like.runtime.evaluators.policies import SearchChoice
from stoix_like.runtime.figures.panels import plot_panels
from stoix_like.runtime.results.experiments import split_by
from stoix_like.runtime.results.series import experiment_leaves
from stoix_like.runtime.searches.settings import DEFAULT_LEVELS, METHODS, ComparisonSettings

if TYPE_CHECKING:
    from stoix_like.runtime.searches.methods import RunOnLevels

SeedResult = dict[str, Any]  # the rows of one seed of a run, and what they belong to, as plain JSON values


def compare(
    runs: Sequence[Path],
    checkpoint: str = "best",
    level_set: str | None = None,
    settings: ComparisonSettings | None = None,
    reporter: Reporter = SILENT,
) -> dict[str, Any]:
    """The scores of every method at every budget as plain JSON values: per seed, and averaged over equal runs.

    Args:
        runs: folders, or files of published parameters, without duplicates.
        checkpoint: as for `saved.load_run`, whose errors are raised.
        level_set: name of a frozen set; None: 256 levels of each run's task.
        settings: the methods, the budgets, and how they are played.
        reporter: receives the lines of the tables as info, each as soon as it is known, notes, and the progress.

    Raises ConfigError if the levels are of another task, or if a learned temperature is requested of a run without one.
    """
    settings = settings or ComparisonSettings()
    loaded = [_load(path, checkpoint, level_set, settings) for path in runs]
    metas = [run.saved.meta for run in loaded]
    experiments = [(meta.algorithm, meta.task_id, experiment_leaves(meta.config)) for meta in metas]
    played = list(zip(experiments, [_play(run, settings, reporter) for run in loaded], strict=True))
    groups = split_by(played, lambda entry: entry[0])
    members = [[seed for _, seeds in group for seed in seeds] for group in groups]
    over_runs = [mean for seeds in members for mean in _over_runs(seeds, reporter)]
    return {"runs": [seed for _, seeds in played for seed in seeds], "over_runs": over_runs}


def _load(path: Path, checkpoint: str, level_set: str | None, settings: ComparisonSettings) -> RunOnLevels:
    from stoix_like.evaluation.levels import family_of
    from stoix_like.runtime.evaluators.scores import make_levels
    from stoix_like.runtime.runs import saved as saved_run
    from stoix_like.runtime.searches.methods import RunOnLevels

    saved = saved_run.load_run(str(path), checkpoint)
    saved.require_policy("compare-search")
    if saved.meta.algorithm == "alphazero":
        what = f"{path} is a run of AlphaZero, which searches by simulations, not with particles"
        raise ConfigError(
            what,
            "see its strength over simulations: "
            + command_line("arena", str(path), "mcts-128", "--simulations", "1,8,32"),
        )
    if "smc" in settings.methods and settings.temperature is None and saved.meta.algorithm != "spo":
        raise ConfigError(
            f"--temperature: {path} is a run of {algorithm_title(saved.meta.algorithm)}, which learns none",
            "give a number, such as 0.005",
        )
    name = level_set or f"{family_of(saved.env.task_id)}-{DEFAULT_LEVELS}"
    return RunOnLevels(saved, make_levels(saved.env, name, DEFAULT_LEVELS))


def _play(run: RunOnLevels, settings: ComparisonSettings, reporter: Reporter) -> list[SeedResult]:
    """The results of each seed of the run."""
    import jax

    from stoix_like.runtime.searches import methods, tables
    from stoix_like.types import role_key

    play_methods = methods.play_methods(run, settings, reporter.progress)
    key = role_key(jax.random.key(settings.seed), "evaluation")
    results = []
    for index in range(run.saved.num_seeds):
        result = _empty_result(run, settings, index)
        for line in [*_title(result), tables.HEAD]:
            reporter.info(line)
        params, played = run.saved.seed_params(index), []
        for scores in (scores for play in play_methods for scores in play(params, key)):
            played.append(scores)
            result["rows"].append(tables.method_row(scores, played[0], methods.best_of_beside(scores, played)))
            reporter.info(tables.row_text(result["rows"][-1]))
        result["notes"] += tables.notes(result["rows"], settings.num_envs) + tables.gains_over_best_of(result["rows"])
        result["notes"] += tables.unsolved_notes(played)
        for note in result["notes"]:
            reporter.note(note)
        reporter.info("")
        results.append(result)
    return results


def _empty_result(run: RunOnLevels, settings: ComparisonSettings, index: int) -> SeedResult:
    """The result of the seed at `index` before any method has been played."""
    from stoix_like.algorithms import searching
    from stoix_like.runtime.searches import methods

    saved = run.saved
    excluded = methods.excluded_methods(saved.env, settings.methods)
    searches = methods.describe_searches(saved.env, settings)
    if methods.plays_own_search(saved, settings.methods):
        searches["own"] = f"{policies.search_text(saved, SearchChoice(), deterministic=True)}; whatever the budgets"
    elif "own" in settings.methods and settings.methods != tuple(METHODS):  # requested by name
        excluded["own"] = f"a run of {algorithm_title(saved.meta.algorithm)} has no search of its own"
    looks_ahead = bool(searches) or "best_of" in set(settings.methods) - excluded.keys()
    hidden = searching.hidden_note(saved.env) if looks_ahead else None
    notes = [f"{method} is left out: {reason}" for method, reason in excluded.items()]
    return {
        "run": str(saved.path),
        "seed": saved.seeds[index],
        "algorithm": saved.meta.algorithm,
        "task_id": saved.meta.task_id,
        "kwargs": dict(saved.config.environment.kwargs),
        "checkpoint": saved.checkpoint,
        "update": saved.updates[index],
        **run.levels.level_set_id,
        "searches": searches,
        "notes": notes if hidden is None else [*notes, hidden],
        "rows": [],
    }


def _title(result: SeedResult) -> list[str]:
    task = result["task_id"] + (f" {result['kwargs']}" if result["kwargs"] else "")
    first = (
        f"{result['run']}, seed {result['seed']}: {algorithm_title(result['algorithm'])} on {task}, checkpoint"
        f" {result['checkpoint']} of update {result['update']}, levels: {result['levels']} ({result['level_hash']})"
    )
    return [first, *(f"{name}: {description}" for name, description in result["searches"].items())]


def _over_runs(members: list[SeedResult], reporter: Reporter) -> list[SeedResult]:
    """[the mean over equal runs]; empty for a single run, or if a seed occurs twice, which is not a sample."""
    from stoix_like.runtime.searches import tables

    if len(members) < 2 or len({member["seed"] for member in members}) < len(members):
        return []
    first, named = members[0], [f"{member['run']} seed {member['seed']}" for member in members]
    rows = [tables.mean_row(equal) for equal in zip(*(member["rows"] for member in members), strict=True)]
    title = f"mean over {len(members)} runs of {algorithm_title(first['algorithm'])} on {first['task_id']}"
    for line in [f"{title}, intervals over runs", tables.HEAD, *map(tables.row_text, rows)]:
        reporter.info(line)
    for note in tables.gains_over_best_of(rows):
        reporter.note(note)
    reporter.info("")
    shared = {name: first[name] for name in ("algorithm", "task_id", "kwargs", "checkpoint", "levels", "level_hash")}
    return [{"members": named, **shared, "rows": rows}]


def plot_comparison(result: dict[str, Any], out: Path) -> Path:
    """The path of the figure of a result of `compare`: a panel for each mean over runs, and for each other run."""
    from stoix_like.runtime.searches import tables

    pooled = {member for mean in result["over_runs"] for member in mean["members"]}
    panels = []
    for mean in result["over_runs"]:
        title = f"{algorithm_title(mean['algorithm'])} on {mean['levels']}, {len(mean['members'])} runs"
        panels.append(tables.make_panel(title, mean["rows"]))
    for seed in result["runs"]:
        if f"{seed['run']} seed {seed['seed']}" not in pooled:
            title = f"{Path(seed['run']).name} seed {seed['seed']} on {seed['levels']}"
            panels.append(tables.make_panel(title, seed["rows"]))
    return plot_panels(panels, out, "measured model steps per decision", "mean return, 95 % interval")
