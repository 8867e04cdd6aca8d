"""Scoring a saved run: on a frozen set, or on fresh levels that neither training nor the evaluations during it used."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stoix_like.config.sections import EvaluationConfig
from stoix_like.errors import ConfigError
from stoix_like.evaluation import statistics
from stoix_like.runtime.console.arguments import (
    LARGEST_SEED,
)
from stoix_like.runtime.evaluators.episode_player import report_progress
from stoix_like.runtime.evaluators.policies import SearchChoice, SelectedPolicy, select_policy
from stoix_like.runtime.telemetry import rows

if TYPE_CHECKING:
    from stoix_like.runtime.evaluators.scores import Evaluator
    from stoix_like.runtime.runs.saved import SavedRun
    from stoix_like.types import Key


class ProgressCallbacks(NamedTuple):
    """Where it is told what is scored, and how far that is; a line each."""

    heading: Callable[[str], None] = lambda _: None
    status: Callable[[str], None] = lambda _: None


class EvaluationSettings(NamedTuple):
    """How a run is scored."""

    num_episodes: int = 1024
    num_envs: int | None = None  # played at a time, a divisor of them; None: up to 256
    level_set: str | None = None  # name of a frozen set; then num_episodes is the set's
    deterministic: bool = True  # most probable actions, or sampled ones
    seed: int = LARGEST_SEED  # root of the fresh levels; the default is no training seed of ours
    search: SearchChoice | None = None  # another search than the run's own, or one for a run without
    network: bool = False  # the network alone, of a run that was trained to search


def evaluate_run(
    run: str, checkpoint: str = "best", manner: EvaluationSettings | None = None, show: ProgressCallbacks | None = None
) -> dict[str, Any]:
    """Every metric of every seed with a 95 % interval over episodes, and the IQM over seeds, as plain JSON values.

    Args:
        run: folder, name, or `latest`; or published parameters (`saved.load_run`).
        checkpoint: `best`, `latest`, or an update.
        manner: how; by default on 1,024 fresh levels.
        show: is told what is scored before it is, and how far it is.

    Raises:
        ConfigError, CheckpointError: see `saved.load_run` and `levels.level_set`.
    """
    import jax

    from stoix_like.runtime.runs import saved as saved_run

    manner, show = manner or EvaluationSettings(), show or ProgressCallbacks()
    config = _evaluation_config(manner)
    saved = saved_run.load_run(run, checkpoint)
    chosen = select_policy(saved, manner.search, manner.network, manner.deterministic)
    evaluator = _evaluator(saved, chosen, config, manner)
    levels = {"levels": manner.level_set or f"fresh, seed {manner.seed}", "level_hash": evaluator.level_hash}
    scored = _what_was_scored(saved) | {"mode": evaluator.mode, "policy": chosen.name, **levels}
    show.heading(heading(scored))
    for note in chosen.notes:
        show.status(f"note: {note}")
    seeds = _scores(saved, evaluator, jax.random.key(manner.seed), show.status)
    return scored | {"seeds": seeds, "over_seeds": _over_seeds(seeds)}


def _evaluation_config(manner: EvaluationSettings) -> EvaluationConfig:
    num_episodes = manner.num_episodes
    num_envs = manner.num_envs or _default_num_envs(num_episodes)
    if num_episodes % num_envs:
        raise ConfigError(
            f"--num-episodes: {num_episodes} is not a multiple of --num-envs {num_envs}", "make it a multiple"
        )
    return EvaluationConfig(num_eval_envs=num_envs, num_eval_episodes=num_episodes, level_set=manner.level_set)


def _evaluator(
    saved: SavedRun, chosen: SelectedPolicy, config: EvaluationConfig, manner: EvaluationSettings
) -> Evaluator:
    from stoix_like.runtime.evaluators import scores as scoring

    mode: rows.EvaluationMode = "deterministic" if manner.deterministic else "sampled"
    return scoring.Evaluator(saved.env, chosen.policy, config, 1, mode=mode)


def _scores(saved: SavedRun, evaluator: Evaluator, root: Key, tell: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """{seed: {metric: numbers}}; all seeds play the same levels by one program."""
    tell("compiling …")
    began = time.monotonic()
    evaluator.compile(saved.seed_params(0), root)
    tell(f"compiled in {time.monotonic() - began:.1f} s")
    seeds = {}
    for index, name in enumerate(map(str, saved.seeds)):
        scores = evaluator(saved.seed_params(index), root, 0, watch=report_progress(tell))
        seeds[name] = {metric: _summary(values[0]) for metric, values in scores.results.items()}
    return seeds


def _what_was_scored(saved: SavedRun) -> dict[str, Any]:
    """The run and its checkpoint; of `best`, each seed's parameters are of an update of their own."""
    return {
        "run": str(saved.path),
        "algorithm": saved.meta.algorithm,
        "task_id": saved.meta.task_id,
        "kwargs": dict(saved.config.environment.kwargs),
        "checkpoint": saved.checkpoint,
        "updates": dict(zip(map(str, saved.seeds), saved.updates, strict=True)),
    }


def _default_num_envs(num_episodes: int) -> int:
    return next(n for n in range(min(256, num_episodes), 0, -1) if num_episodes % n == 0)


def _summary(values: np.ndarray) -> dict[str, float | int]:
    interval = statistics.score_interval(values)
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
    found = {}
    for metric in metrics:
        interval = statistics.bootstrap_interval([row[metric]["mean"] for row in seeds.values()])
        found[metric] = {"iqm": interval.point, "low": interval.low, "high": interval.high}
    return found


def heading(scored: dict[str, Any]) -> str:
    """One line: what was scored, and how."""
    levels = scored["levels"] + (f" ({scored['level_hash']})" if scored["level_hash"] else "")
    task = scored["task_id"] + (f" {scored['kwargs']}" if scored["kwargs"] else "")
    return (
        f"{scored['run']}: {scored['algorithm'].upper()} on {task}, checkpoint {scored['checkpoint']}"
        f", {scored['policy']}, {scored['mode']}, levels: {levels}"
    )


def table_text(result: dict[str, Any]) -> str:
    """The result as aligned text, without its heading."""
    lines = [
        f"{'seed':>6}{'update':>8}  {'metric':<18}{'mean':>10}  {'95 % interval':<22}"
        f"{'min':>10}{'max':>10}{'episodes':>10}",
    ]
    for seed, metrics in result["seeds"].items():
        of = f"{seed:>6}{result['updates'][seed]:>8}"
        for metric, row in metrics.items():
            interval = f"[{row['low']:.4f}, {row['high']:.4f}]"
            lines.append(
                f"{of}  {metric:<18}{row['mean']:>10.4f}  {interval:<22}{row['min']:>10.4f}{row['max']:>10.4f}"
                f"{row['episodes']:>10}"
            )
    for metric, row in result["over_seeds"].items():
        interval = f"[{row['low']:.4f}, {row['high']:.4f}]"
        lines.append(f"{'IQM':>14}  {metric:<18}{row['iqm']:>10.4f}  {interval:<22}(over {len(result['seeds'])} seeds)")
    return "\n".join(lines)
