"""Evaluation of a saved run: on a frozen set, or on fresh levels that its training and evaluations did not use."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stoix_like.config.checks.alphazero import opponent_names
from stoix_like.errors import ConfigError
from stoix_like.evaluation import statistics
from stoix_like.runtime.console.arguments import LARGEST_SEED
from stoix_like.runtime.console.reporter import SILENT, Reporter
from stoix_like.runtime.console.text import algorithm_title, aligned, interval_text
from stoix_like.runtime.evaluators.policies import SearchChoice, select_policy
from stoix_like.runtime.evaluators.saved_items import ceiling_of_items, item_evaluator

if TYPE_CHECKING:
    from stoix_like.runtime.evaluators.items import ItemEvaluator
    from stoix_like.runtime.evaluators.scores import Evaluator
    from stoix_like.runtime.runs.saved import SavedRun
    from stoix_like.types import Key


#: What agents that write are scored by that lies in [0, 1], so that intervals do too.
SHARES = ("solve_rate", "random_solve_rate", "well_formed", "cut", *(f"pass_at_{k}" for k in (1, 2, 4, 8)))


class EvaluationSettings(NamedTuple):
    """How a run is evaluated."""

    num_episodes: int = 1024
    num_envs: int | None = None  # episodes played at a time; None: equal rounds of at most 256
    level_set: str | None = None  # name of a frozen set; all its levels are played, whatever num_episodes
    deterministic: bool = True  # most probable actions, or sampled ones
    seed: int = LARGEST_SEED  # root of the fresh levels; the presets do not train with the default
    search: SearchChoice | None = None  # replaces the run's own search, or adds one
    network: bool = False  # the network alone, without the run's own search


def evaluate_run(
    run: str, checkpoint: str = "best", settings: EvaluationSettings | None = None, reporter: Reporter = SILENT
) -> dict[str, Any]:
    """Every metric of every seed with a 95 % interval over episodes, and the IQM over seeds, as plain JSON values.

    `run` and `checkpoint` are as for `saved.load_run`; by default 1,024 fresh levels are played. The reporter receives
    the heading as info, notes on the search, and the progress. Raises as `saved.load_run` and `levels.level_set`.
    """
    import jax

    from stoix_like.algorithms import tasks
    from stoix_like.runtime.evaluators.scores import Evaluator, make_levels
    from stoix_like.runtime.runs import saved as saved_run

    settings = settings or EvaluationSettings()
    saved = saved_run.load_run(run, checkpoint)
    if saved.learner.policy is None:
        return _evaluate_items(saved, settings, reporter)
    chosen = select_policy(saved, settings.search, settings.network, settings.deterministic)
    num_envs = settings.num_envs or math.ceil(settings.num_episodes / math.ceil(settings.num_episodes / 256))
    played = make_levels(saved.env, settings.level_set, settings.num_episodes)
    evaluator = Evaluator(
        saved.env, chosen.policy, played, num_envs, mode="deterministic" if settings.deterministic else "sampled"
    )
    levels = {"levels": settings.level_set or f"fresh, seed {settings.seed}", "level_hash": played.level_hash}
    scored = _description(saved) | {"mode": evaluator.mode, "policy": chosen.name, **levels}
    if saved.env.game is not None:
        scored["opponent"] = ", ".join(opponent_names(saved.config.environment.opponent or tasks.DEFAULT_OPPONENT))
    if chosen.hidden_state is not None:
        scored["hidden_state"] = chosen.hidden_state
    reporter.info(heading(scored))
    for note in chosen.notes:
        reporter.note(note)
    root = jax.random.key(settings.seed)
    seeds = _scores(saved, evaluator, root, reporter)
    if saved.env.ceiling is not None:
        reporter.progress("computing what the best player has on these levels …")
        scored["ceiling"] = evaluator.ceiling(root, 0)
    return scored | {"seeds": seeds, "over_seeds": _over_seeds(seeds)}


def _evaluate_items(saved: SavedRun, settings: EvaluationSettings, reporter: Reporter) -> dict[str, Any]:
    """`evaluate_run` of a run without a policy, whose learner scores items itself."""
    import jax

    from stoix_like.runtime.runs.build import ALGORITHMS

    speaks = ALGORITHMS[saved.meta.algorithm].speaks
    if speaks and not settings.deterministic:
        raise ConfigError(f"--sampled: the answers of {saved.path} are always sampled", "leave it out")
    for flag in _flags_of_policies(settings):
        saved.require_policy(flag)
    evaluator, items = item_evaluator(saved, settings.num_episodes, settings.level_set, settings.num_envs)
    num_items = evaluator.levels.num_episodes
    levels = {"levels": settings.level_set or f"{num_items:,} of evaluation", "level_hash": None}
    unit = "levels" if speaks else "items"
    scored = _description(saved) | {"mode": "sampled", "policy": "its own scores", "unit": unit, **levels}
    reporter.info(heading(scored))
    seeds = _scores(saved, evaluator, jax.random.key(settings.seed), reporter, SHARES if speaks else ())
    if (ceiling := ceiling_of_items(saved, items)) is not None:
        scored["ceiling"] = ceiling
    return scored | {"seeds": seeds, "over_seeds": _over_seeds(seeds)}


def _flags_of_policies(settings: EvaluationSettings) -> list[str]:
    """The flags that were given and that choose among the policies of a run."""
    flags = {"--network": settings.network, "--sampled": not settings.deterministic}
    given = [flag for flag, is_given in flags.items() if is_given]
    if settings.search is None:
        return given
    leaves = [name for name, value in settings.search._asdict().items() if value not in (None, False)]
    return [*[f"--search-{name.replace('_', '-')}" for name in leaves], "--search", *given]


def _scores(
    saved: SavedRun,
    evaluator: Evaluator | ItemEvaluator,
    root: Key,
    reporter: Reporter,
    shares: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """{seed: {metric: numbers}}. All seeds play the same levels with one compiled program. `shares` lie in [0, 1]."""
    reporter.progress("compiling …")
    began = time.monotonic()
    evaluator.compile(saved.seed_params(0), root)
    reporter.progress(f"compiled in {time.monotonic() - began:.1f} s")
    seeds = {}
    for index, name in enumerate(map(str, saved.seeds)):
        scores = evaluator(saved.seed_params(index), root, 0, reporter.progress)
        if warning := scores.cut_warning():
            reporter.warning(warning)
        found = {metric: values[0] for metric, values in scores.results.items()}
        of_success = ("episode_return",) if shares and "solve_rate" in found else ()  # the same numbers
        bounded = (*shares, *of_success)
        seeds[name] = {metric: _summary(values, is_share=metric in bounded) for metric, values in found.items()}
    return seeds


def _description(saved: SavedRun) -> dict[str, Any]:
    """The run and its checkpoint. In `best`, the parameters of each seed have their own update."""
    return {
        "run": str(saved.path),
        "algorithm": saved.meta.algorithm,
        "task_id": saved.meta.task_id,
        "kwargs": dict(saved.config.environment.kwargs),
        "checkpoint": saved.checkpoint,
        "updates": dict(zip(map(str, saved.seeds), saved.updates, strict=True)),
    }


def _summary(values: np.ndarray, *, is_share: bool) -> dict[str, float | int]:
    interval = statistics.share_interval(values) if is_share else statistics.score_interval(values)
    return {
        "episodes": int(values.size),
        "mean": float(interval.point),
        "low": float(interval.low),
        "high": float(interval.high),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def _over_seeds(seeds: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    if len(seeds) < 2:
        return {}
    metrics = next(iter(seeds.values()))
    means = {metric: [row[metric]["mean"] for row in seeds.values()] for metric in metrics}
    intervals = {metric: statistics.bootstrap_interval(values) for metric, values in means.items()}
    return {name: {"iqm": found.point, "low": found.low, "high": found.high} for name, found in intervals.items()}


def _sees(result: dict[str, Any]) -> str:
    return "turn" if result["mode"] == "sampled" and result["policy"] == "its own scores" else "action"


def heading(scored: dict[str, Any]) -> str:
    """One line: the run, its checkpoint and how it was evaluated."""
    levels = scored["levels"] + (f" ({scored['level_hash']})" if scored["level_hash"] else "")
    task = scored["task_id"] + (f" {scored['kwargs']}" if scored["kwargs"] else "")
    sees = f", which sees {scored['hidden_state']}" if "hidden_state" in scored else ""
    sees += f", against {scored['opponent']}" if "opponent" in scored else ""
    return (
        f"{scored['run']}: {algorithm_title(scored['algorithm'])} on {task}, checkpoint {scored['checkpoint']}"
        f", {scored['policy']}{sees}, {scored['mode']}, levels: {levels}"
    )


def table_text(result: dict[str, Any]) -> str:
    """The result as aligned text, without its heading."""
    rows = [["seed", "update", "metric", "mean", "95 % interval", "min", "max", result.get("unit", "episodes")]]
    for seed, metrics in result["seeds"].items():
        for metric, row in metrics.items():
            numbers = [f"{row[name]:.4f}" for name in ("mean", "min", "max")]
            numbers.insert(1, interval_text(row["low"], row["high"], ".4f"))
            rows.append([str(seed), str(result["updates"][seed]), metric, *numbers, str(row["episodes"])])
    for metric, row in result["over_seeds"].items():
        interval = interval_text(row["low"], row["high"], ".4f")
        over = f"(over {len(result['seeds'])} seeds)"
        rows.append(["", "IQM", metric, f"{row['iqm']:.4f}", interval, over, "", ""])
    lines = aligned(rows, right=True)
    if "ceiling" in result:
        lines.append(
            f"the best player, who sees the outcome of every {_sees(result)}, solves {result['ceiling']:.4f} of these"
            " levels"
        )
    return "\n".join(lines)
