"""What a pipeline has come to, as one JSON value: what reports are made of, and what is kept when its runs are not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from stoix_like.algorithms.agent.counting import GENERATED_TOKENS
from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.sections.spa import SPAConfig
from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.loading.documents import read_yaml
from stoix_like.runtime.results.series import RunRecord, read_started_run
from stoix_like.runtime.runs import find
from stoix_like.runtime.runs.pipeline_files import RUN
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.table import StageFiles, is_done
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.spa.arms import EVALUATE, GENERATE, PLAIN, PPO, SFT, STAGE_NAMES, arm_of
from stoix_like.spa.folders import Layout, read_sources
from stoix_like.spa.table import stages_of_arm

RESULTS, KIND = "results.json", "stoix_like.spa"
_CURVE = {"success": "evaluator/solve_rate", "pass_at_8": "evaluator/pass_at_8", "well_formed": "evaluator/well_formed"}
_FIELDS = {"arm": str, "seed": int, "levels": str, "level_hash": str}
_FIELDS |= dict.fromkeys(("world", "points", "curve", "before_ppo", "stages", "settings"), dict)
_KINDS = {str: "text", int: "whole number", dict: "mapping"}


def write_record(layout: Layout) -> dict[str, Any]:
    """The record of a pipeline, which is also written into its folder. Raises RunError if it is not evaluated."""
    found = pipeline_record(layout)
    atomic_write_json(layout.root / RESULTS, found)
    return found


def read_record(path: Path) -> dict[str, Any]:
    """The record of a pipeline's folder, or of a file that `write_record` has written.

    Raises CheckpointError for another file, or RunError if the pipeline is not evaluated.
    """
    if path.is_dir():
        kept, layout = path / RESULTS, Layout(path)
        has_run = layout.stage(PPO).is_dir() or PPO in read_sources(layout)
        return read_record(kept) if kept.is_file() and not has_run else pipeline_record(layout)
    hint = "give pipelines, such as runs/spa/lake_0, or their results.json"
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no result of SPA", hint) from error
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise CheckpointError(f"{path} is no result of SPA", hint)
    if problem := _problem(found):
        raise CheckpointError(f"{path} is no result of SPA: {problem}", hint)
    return _without_null(found)


def _problem(record: dict[str, Any]) -> str | None:
    """What is wrong with the first field that is; None of a whole record."""
    for name, kind in _FIELDS.items():
        if not isinstance(record.get(name), kind):
            return f"it lacks {name}" if name not in record else f"its {name} is no {_KINDS[kind]}"
    if not isinstance(record["world"].get("task_id"), str) or not isinstance(record["world"].get("kwargs"), dict):
        return "its world has no task_id or kwargs"
    if not (record.get("ceiling") is None or _is_number(record["ceiling"])):
        return "its ceiling is no number"
    if not all(_is_number(value) for value in record["before_ppo"].values()):
        return "its before_ppo has what is no number"
    return _points_problem(record["points"]) or _curve_problem(record["curve"]) or _stages_problem(record["stages"])


def _without_null(record: dict[str, Any]) -> dict[str, Any]:
    """A whole record without the numbers that were not finite; in its curve they are NaN."""
    points = {
        point: {name: value for name, value in values.items() if value is not None}
        for point, values in record["points"].items()
    }
    curve = {name: [math.nan if x is None else x for x in values] for name, values in record["curve"].items()}
    return record | {"points": points, "curve": curve}


def _points_problem(points: dict[str, Any]) -> str | None:
    if "ppo" not in points:
        return "its points have no ppo"
    for point, values in points.items():
        if not isinstance(values, dict) or "success" not in values:
            return f"its point {point} has no success"
        for name, value in values.items():
            is_interval = isinstance(value, list) and len(value) == 3 and all(_is_number(x) for x in value)
            is_one = (value is None or _is_number(value)) and name != "success"  # one that is not finite is null
            if not (is_interval or is_one):
                return f"{name} of its point {point} is neither a number nor a mean with two bounds"
    return None


def _curve_problem(curve: dict[str, Any]) -> str | None:
    for name, values in curve.items():
        if not isinstance(values, list) or not all(value is None or _is_number(value) for value in values):
            return f"{name} of its curve is no list of numbers"
    if curve and ("success" not in curve or len({len(values) for values in curve.values()}) > 1):
        return "its curve has no success, or lists of several lengths"
    return None


def _stages_problem(stages: dict[str, Any]) -> str | None:
    for name, stage in stages.items():
        whole = isinstance(stage, dict) and _is_number(stage.get("seconds")) and isinstance(stage.get("facts"), dict)
        if not whole:
            return f"its stage {name} has no seconds or facts"
        if not all(_is_number(value) for value in stage["facts"].values()):
            return f"the facts of its stage {name} are not all numbers"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def pipeline_record(layout: Layout) -> dict[str, Any]:
    """The record of a pipeline. Raises RunError if it is not evaluated, or there is none."""
    config = read_config(layout)
    arm = arm_of(config)
    files = StageFiles(layout.root, stages_of_arm(config, arm), read_sources(layout))
    evaluated = files.done(EVALUATE)
    learned = read_started_run(files.folder(PPO) / RUN)
    if not is_done(files.stages[EVALUATE], files):
        raise RunError(f"the stage {EVALUATE} of {layout.root} is due again", "run the pipeline once more")
    leaves = {name: value for stage in arm.stages for name, value in files.done(stage).settings.items()}
    curve = _curve(learned, has_episodes=arm.name != PLAIN)
    return {
        "kind": KIND,
        "arm": arm.name,
        "seed": config.model.seed,
        "world": {"task_id": config.world.task_id, "kwargs": dict(config.world.kwargs)},
        "levels": evaluated.facts.get("levels"),
        "level_hash": evaluated.facts.get("level_hash"),
        "ceiling": evaluated.facts.get("ceiling"),
        "points": evaluated.facts["points"],
        "curve": curve,
        "curve_levels": _curve_levels(files.folder(PPO) / RUN, sampled=arm.name != PLAIN) if curve else {},
        "before_ppo": {
            "tokens": sum(_tokens(files.find(name)) for name in (GENERATE, SFT) if name in files.stages),
            "seconds": sum(_seconds(files, name) for name in (GENERATE, SFT) if name in files.stages),
        },
        "stages": {
            name: {"seconds": _seconds(files, name), "facts": _short(files.done(name).facts)}
            for name in STAGE_NAMES
            if name in files.stages and name != EVALUATE
        },
        "settings": leaves,
        "example": _example(files.folder(PPO) / RUN),
        "versions": evaluated.recorded.get("versions", {}),
    }


def read_config(layout: Layout) -> SPAConfig:
    """The configuration that a pipeline keeps. Raises RunError if there is none, or it cannot be read."""
    if not layout.config.is_file():
        raise RunError(f"there is no pipeline in {layout.root}", "give one, such as runs/spa/lake_0")
    layer, problems = read_yaml(layout.config, SPAConfig)
    if problems:
        raise RunError(f"{layout.config} cannot be read: {problems[0]}", "use the version that wrote it")
    config: SPAConfig = replace_leaves(SPAConfig(), {name: value for name, (value, _) in layer.items()})
    return config


def _tokens(manifest: Manifest | None) -> int:
    """Tokens that a stage has sampled or learned from."""
    facts: dict[str, Any] = {} if manifest is None else manifest.facts
    return int(facts.get("generated_tokens", facts.get("trained_tokens", 0)))


def _seconds(files: StageFiles, name: str) -> float:
    """How long a stage took: of one that trains, all its processes; else the last."""
    run = files.folder(name) / RUN
    if run.is_dir():
        return float(read_started_run(run).last.get("elapsed_seconds", 0.0))
    return float(files.done(name).recorded.get("seconds", 0.0))


def _curve(learned: RunRecord, *, has_episodes: bool) -> dict[str, list[float]]:
    """{"episodes", "tokens", "seconds", and scores: [K]} of the evaluations of PPO, whose steps may be episodes."""
    series = {name: next(iter(learned.series.get(key, {}).values()), None) for name, key in _CURVE.items()}
    success = series["success"]
    if success is None:
        return {}
    found = {"seconds": success.seconds.tolist()}
    if has_episodes:
        found["episodes"] = success.timesteps.tolist()
    tokens = next(iter(learned.series.get(GENERATED_TOKENS, {}).values()), None)
    if tokens is not None:
        known = np.concatenate([[0.0], tokens.timesteps]), np.concatenate([[0.0], tokens.values])
        found["tokens"] = np.interp(success.timesteps, *known).tolist()
    return found | {name: one.values.tolist() for name, one in series.items() if one is not None}


def _curve_levels(run: Path, *, sampled: bool) -> dict[str, Any]:
    """On what the agent was scored while it learned: what its run was asked for, not what the pipeline is now.

    An agent that plays its most probable actions plays each level once, and notes no number of samples.
    """
    leaves = {name: value for values in find.read_config(run).values() for name, value in values.items()}
    samples = {"samples": leaves.get("num_eval_samples", 1)} if sampled else {}
    return {"levels": leaves.get("num_eval_episodes")} | samples


def _short(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if isinstance(value, (int, float))}


def _example(run: Path) -> str:
    """The episodes of the last evaluation, as text; empty without any."""
    found = sorted((run / "samples").glob("[0-9]*.txt"))
    return found[-1].read_text() if found else ""
