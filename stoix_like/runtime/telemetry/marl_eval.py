"""marl_eval.json, the evaluations of a run in the schema of id-marl-eval 0.0.4 (Gorsane et al. 2022, 2209.10485).

{suite: {task: {algorithm: {seed_N: {step_i: {step_count, elapsed_time, metric: [values]}, absolute_metrics: {...}}}}}}

The file is computed from the `evaluator/` rows of metrics.jsonl, so a resumed run writes it again from there. The
rows hold means over episodes, so each list has one value; readers of the schema average longer lists to one.
Evaluations of other modes (`evaluator_sampled/`, `evaluator_network/`) are only in metrics.jsonl.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.telemetry.jsonl import FILE_NAME as RECORD_NAME
from stoix_like.runtime.telemetry.jsonl import read_rows
from stoix_like.runtime.telemetry.sink import Report, RunMeta

FILE_NAME = "marl_eval.json"
_PREFIX = "evaluator/"
_SCORE = "mean_return"
_RENAMED = {"mean_return": "mean_episode_return", "episode_length_mean": "mean_episode_length"}  # the schema's names
_LEFT_OUT = ("episodes", "duration_ms", "level_hash", "unfinished")  # they describe the evaluation, not the policy
_EXTREMES = ("max_return", "min_return", "episode_length_max", "episode_length_min")  # must not be averaged


class Evaluation(NamedTuple):
    """One evaluation of one seed."""

    timesteps: int  # environment steps of the seed
    elapsed_seconds: float  # wall-clock time of the run, including compilation, evaluations and checkpoints
    metrics: dict[str, float]  # {name: mean over episodes}, without values that are not finite
    level_hash: str | None  # of the frozen levels; None for fresh ones. Only scores on the same levels are compared

    @property
    def score(self) -> float:
        """The score by which the best evaluation is selected."""
        return self.metrics.get(_RENAMED[_SCORE], -math.inf)


class MarlEvalSink:
    """Writes marl_eval.json in the run folder, atomically, after every evaluation."""

    def __init__(self) -> None:
        self._path = Path()
        self._names = ("", "", "")
        self._evaluations: dict[int, dict[int, Evaluation]] = {}  # by seed and timesteps

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """For a resumed run, writes the file from metrics.jsonl, which has been cut to the checkpoint before."""
        self._path = run_dir / FILE_NAME
        self._names = names_of(meta.task_id, meta.title)
        if meta.resumed_update is None:
            return
        self._add(read_rows(run_dir / RECORD_NAME))
        if self._evaluations:
            self._write()
        else:  # all evaluations came after the checkpoint and are repeated
            self._path.unlink(missing_ok=True)

    def write(self, reports: Sequence[Report]) -> None:
        """Adds the evaluations among the reports, and writes the file if there are any."""
        if self._add(row for report in reports for row in report.rows()):
            self._write()

    def close(self) -> None:
        """Does nothing: the file is not kept open."""

    def _add(self, rows: Iterable[Mapping[str, Any]]) -> bool:
        new = [(row.get("seed") or 0, evaluation) for row in rows if (evaluation := evaluation_of(row)) is not None]
        for seed, evaluation in new:  # a repeated evaluation replaces the one before
            self._evaluations.setdefault(seed, {})[evaluation.timesteps] = evaluation
        return bool(new)

    def _write(self) -> None:
        suite, task, algorithm = self._names
        seeds = {f"seed_{seed}": _seed_document(self._evaluations[seed]) for seed in sorted(self._evaluations)}
        text = json.dumps({suite: {task: {algorithm: seeds}}}, indent=1, allow_nan=False) + "\n"
        if not self._path.is_file() or self._path.read_text(encoding="utf-8") != text:
            atomic_write_text(self._path, text)


def names_of(task_id: str, algorithm: str) -> tuple[str, str, str]:
    """(suite, task, algorithm): `probe/x` is task x of the suite probe; all other tasks are of the suite Jumanji."""
    suite, slash, task = task_id.rpartition("/")
    return (suite, task, algorithm) if slash else ("Jumanji", task_id, algorithm)


def evaluation_of(row: Mapping[str, Any]) -> Evaluation | None:
    """The evaluation in a row of metrics.jsonl; None if it is of another category or mode."""
    values = {name.removeprefix(_PREFIX): value for name, value in row.items() if name.startswith(_PREFIX)}
    if row.get("category") != "EVALUATOR" or _SCORE not in values:
        return None
    metrics = {
        _RENAMED.get(name, name): float(value)
        for name, value in values.items()
        if name not in _LEFT_OUT + _EXTREMES and isinstance(value, (int, float)) and math.isfinite(value)
    }
    return Evaluation(row.get("timesteps", 0), row.get("elapsed_seconds", 0), metrics, values.get("level_hash"))


def _seed_document(evaluations: Mapping[int, Evaluation]) -> dict[str, Any]:
    """The steps in order, then the absolute metrics: those of the best evaluation so far.

    The best evaluation is the one whose parameters are saved as best, the first of equals. The schema asks for more
    episodes with them. Here the best of many noisy scores is reported, which is biased upwards.
    """
    ordered = [evaluations[timesteps] for timesteps in sorted(evaluations)]
    steps: dict[str, Any] = {
        f"step_{index}": {"step_count": each.timesteps, "elapsed_time": each.elapsed_seconds, **_lists(each)}
        for index, each in enumerate(ordered)
    }
    comparable = [evaluation for evaluation in ordered if evaluation.level_hash == ordered[-1].level_hash]
    return {**steps, "absolute_metrics": _lists(max(comparable, key=lambda evaluation: evaluation.score))}


def _lists(evaluation: Evaluation) -> dict[str, list[float]]:
    return {name: [value] for name, value in evaluation.metrics.items()}
