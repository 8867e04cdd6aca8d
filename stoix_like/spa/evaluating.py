"""The stage `evaluate`: the agent before and after each stage that taught it, on the same held-out levels.

Points of time are `base` (after `pretrain`), `sft` and `ppo`. Each plays several sampled episodes on every level. Where
answers tell states, they are compared with those that were, and rows of validation are read by each. The output has the
success of every episode; the manifest has the means, with intervals over levels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.scoring import KS
from stoix_like.evaluation.statistics import bounded_interval
from stoix_like.ops.pass_at_k import pass_at_k
from stoix_like.runtime.evaluators.policies import select_policy
from stoix_like.runtime.evaluators.scores import Evaluator, make_levels
from stoix_like.runtime.runs.pipeline_files import RUN
from stoix_like.runtime.runs.saved import load_run
from stoix_like.runtime.stages.array_files import write_arrays
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.run import StageCall, StageResult, run_stage
from stoix_like.runtime.stages.table import StageFiles
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.spa.arms import EVALUATE, GENERATE, PLAIN, PPO, PRETRAIN, SFT
from stoix_like.spa.generating import check_rows
from stoix_like.spa.pipeline import Pipeline, agent_of, read_params
from stoix_like.spa.scoring import PointScores, Scorer, level_set_name

SCORES = "scores.npz"
_AT_ONCE = 256  # episodes of PPO without language
#: {point: the stage after which it is}
POINTS = {"base": PRETRAIN, "sft": SFT, "ppo": PPO}


def evaluate_stage(pipeline: Pipeline, files: StageFiles, call: StageCall) -> Manifest:
    """Scores the points. Facts: {"points": {point: {name: number}}}, and of what levels.

    Raises Interrupted if a signal came.
    """
    folder = files.folder(EVALUATE)
    work = _evaluate_plain if pipeline.arm.name == PLAIN else _evaluate
    return run_stage(folder, call, lambda: work(pipeline, files, folder))


def _evaluate(pipeline: Pipeline, files: StageFiles, folder: Path) -> StageResult:
    one, section = agent_of(pipeline, EVALUATE), pipeline.arm.config.evaluate
    rows = _true_rows(pipeline, files)
    scorer = Scorer(one, section.final_eval_levels, section.eval_samples, rows)
    arrays: dict[str, np.ndarray] = {}
    points: dict[str, dict[str, Any]] = {}
    for point, stage in POINTS.items():
        if stage not in pipeline.arm.stages:
            continue
        _end_if_stopped(pipeline)
        pipeline.reporter.progress(f"evaluate: {point}")
        params = read_params(files, stage, one)
        scores = scorer.play(params, lambda: pipeline.stop.is_set)
        if scores is None:
            raise Interrupted(EVALUATE)
        arrays |= {f"{point}_{name}": array for name, array in scores.arrays.items()}
        points[point] = _numbers(scores, section.eval_samples)
        points[point] |= scorer.state_perplexities(params)
        _end_if_stopped(pipeline)
        points[point] |= scorer.given_answer(params, scores)
        _end_if_stopped(pipeline)
        if section.eval_forced_prediction and (forced := scorer.forced(params)) is not None:
            arrays[f"{point}_forced_success"] = forced
            points[point]["forced_success"] = _interval(forced.mean(axis=1))
    facts: dict[str, Any] = {"points": points, "levels": scorer.levels.name, "level_hash": scorer.level_hash()}
    facts["ceiling"] = scorer.ceiling()
    return StageResult({SCORES: write_arrays(folder / SCORES, arrays)}, facts)


def _end_if_stopped(pipeline: Pipeline) -> None:
    if pipeline.stop.is_set:
        raise Interrupted(EVALUATE)


def _true_rows(pipeline: Pipeline, files: StageFiles) -> Path | None:
    """The folder of rows whose states were those of the world, in the form that is evaluated; None if there is none."""
    config = pipeline.arm.config
    if GENERATE not in pipeline.arm.stages or config.generate.generate_states != "replace":
        return None
    if config.generate.generate_mode != config.ppo.ppo_mode:
        return None
    check_rows(files)
    return files.folder(GENERATE)


def _numbers(scores: PointScores, num_samples: int) -> dict[str, Any]:
    """{name: number, or [mean, low, high] over levels}."""
    success = scores.arrays["success"]
    count = jnp.asarray(success.sum(axis=1), jnp.int32)
    found: dict[str, Any] = {"success": _interval(success.mean(axis=1))}
    for k in KS:
        if k <= num_samples:
            found[f"pass_at_{k}"] = _interval(np.asarray(pass_at_k(count, num_samples, k)))
    return found | {name: value for name, value in scores.means.items() if np.isfinite(value)}


def _interval(of_levels: np.ndarray) -> list[float]:
    """[mean, low, high] of shares of levels."""
    return [float(x) for x in bounded_interval(of_levels, np.array([0.0, 1.0]))]


def _evaluate_plain(pipeline: Pipeline, files: StageFiles, folder: Path) -> StageResult:
    """PPO without language, which plays its most probable actions, an episode a level."""
    config = pipeline.arm.config
    name = level_set_name(config.world.task_id, config.evaluate.final_eval_levels)
    saved = load_run(str(files.folder(PPO) / RUN), "latest")
    levels = make_levels(saved.env, name, 0)
    policy = select_policy(saved, None, False, True).policy
    evaluator = Evaluator(saved.env, policy, levels, _AT_ONCE, mode="deterministic")
    scores = evaluator(saved.seed_params(0), jax.random.key(pipeline.config.model.seed), 0)
    success = scores.results["solve_rate"][0]
    facts = {"points": {PPO: {"success": _interval(success)}}, "levels": name, "level_hash": levels.level_hash}
    return StageResult({SCORES: write_arrays(folder / SCORES, {"ppo_success": success[:, None]})}, facts)
