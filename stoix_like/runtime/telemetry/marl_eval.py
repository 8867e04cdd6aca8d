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
from stoix_like.runtime.telemetry.sink import Row, RunMeta

FILE_NAME = "marl_eval.json"
_PREFIX = "evaluator/"
_SCORE = "mean_return"
_RENAMED = {"mean_return": "mean_episode_return", "episode_length_mean": "mean_episode_length"}  # the schema's names
_LEFT_OUT = ("episodes", "duration_ms", "level_hash", "unfinished")  # they describe the evaluation, not the policy
_EXTREMES = ("max_return", "min_return", "episode_length_max", "episode_length_min")  # must not be averaged


class Evaluation(NamedTuple):
    """One evaluation of one seed.

    Attributes:
        timesteps: environment steps of the seed.
        elapsed_seconds: wall-clock time of the run, including compilation, evaluations and checkpoints.
        metrics: {name: mean over episodes}, without values that are not finite.
        level_hash: of the frozen levels; None for fresh ones. Only scores on the same levels are compared.
    """

    timesteps: int
    elapsed_seconds: float
    metrics: dict[str, float]
    level_hash: str | None

    @property
    def score(self) -> float:
        """The score by which the best evaluation is selected."""
        return self.metrics.get(_RENAMED[_SCORE], -math.inf)


class MarlEvalSink:
    """Writes marl_eval.json in the run folder, atomically, after every evaluation."""

    def __init__(self) -> None:
        self._path = Path()
        self._names = ("", "", "")
        self._evaluations: dict[int, dict[int, Evaluation]] = {}

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """For a resumed run, writes the file from metrics.jsonl, which has been cut to the checkpoint before."""
        self._path = run_dir / FILE_NAME
        self._names = names_of(meta.task_id, meta.algorithm)
        if meta.resumed_update is None:
            return
        self._add(map(_row, read_rows(run_dir / RECORD_NAME)))
        if self._evaluations:
            self._write()
        else:  # all evaluations came after the checkpoint and are repeated
            self._path.unlink(missing_ok=True)

    def write(self, rows: Sequence[Row]) -> None:
        """Adds the evaluations among the rows, and writes the file if there are any."""
        if self._add(rows):
            self._write()

    def close(self) -> None:
        """Does nothing: the file is not kept open."""

    def _add(self, rows: Iterable[Row]) -> bool:
        new = [(row.seed or 0, evaluation) for row in rows if (evaluation := evaluation_of(row)) is not None]
        for seed, evaluation in new:  # a repeated evaluation replaces the one before
            self._evaluations.setdefault(seed, {})[evaluation.timesteps] = evaluation
        return bool(new)

    def _write(self) -> None:
        by_seed = {seed: list(of_seed.values()) for seed, of_seed in self._evaluations.items()}
        text = json.dumps(document(self._names, by_seed), indent=1, allow_nan=False) + "\n"
        if not self._path.is_file() or self._path.read_text(encoding="utf-8") != text:
            atomic_write_text(self._path, text)


def names_of(task_id: str, algorithm: str) -> tuple[str, str, str]:
    """(suite, task, algorithm): `probe/x` is task x of the suite probe; all other tasks are of the suite Jumanji."""
    suite, slash, task = task_id.rpartition("/")
    return (suite, task, algorithm) if slash else ("Jumanji", task_id, algorithm)


def evaluation_of(row: Row) -> Evaluation | None:
    """The evaluation that a row reports; None if it is of another category or mode."""
    values = {name.removeprefix(_PREFIX): v for name, v in row.values.items() if name.startswith(_PREFIX)}
    if row.category != "EVALUATOR" or _SCORE not in values:
        return None
    metrics = {
        _RENAMED.get(name, name): float(value)
        for name, value in values.items()
        if name not in _LEFT_OUT + _EXTREMES and isinstance(value, (int, float)) and math.isfinite(value)
    }
    level_hash = values.get("level_hash")
    seconds = round(row.elapsed_seconds, 3)  # as in metrics.jsonl, so that a resumed run writes the same
    return Evaluation(row.timesteps, seconds, metrics, None if level_hash is None else str(level_hash))


def document(names: tuple[str, str, str], evaluations: Mapping[int, Sequence[Evaluation]]) -> dict[str, Any]:
    """The content of the file, as plain JSON values.

    Args:
        names: suite, task and algorithm.
        evaluations: of every seed, one or more.
    """
    suite, task, algorithm = names
    seeds = {f"seed_{seed}": _seed_document(evaluations[seed]) for seed in sorted(evaluations)}
    return {suite: {task: {algorithm: seeds}}}


def _seed_document(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """The steps in order, then the absolute metrics: those of the best evaluation so far.

    The best evaluation is the one whose parameters are saved as best, the first of equals. The schema asks for more
    episodes with them. Here the best of many noisy scores is reported, which is biased upwards.
    """
    ordered = sorted(evaluations, key=lambda evaluation: evaluation.timesteps)
    steps: dict[str, Any] = {
        f"step_{index}": {
            "step_count": evaluation.timesteps,
            "elapsed_time": evaluation.elapsed_seconds,
            **_lists(evaluation),
        }
        for index, evaluation in enumerate(ordered)
    }
    comparable = [evaluation for evaluation in ordered if evaluation.level_hash == ordered[-1].level_hash]
    return {**steps, "absolute_metrics": _lists(max(comparable, key=lambda evaluation: evaluation.score))}


def _lists(evaluation: Evaluation) -> dict[str, list[float]]:
    return {name: [value] for name, value in evaluation.metrics.items()}


def _row(fields: Mapping[str, Any]) -> Row:
    """The Row of a line of metrics.jsonl; null becomes NaN."""
    values = {name: math.nan if value is None else value for name, value in fields.items() if "/" in name}
    at = {name: fields.get(name, 0) for name in ("update", "timesteps", "elapsed_seconds")}
    return Row(fields.get("category", "MISC"), **at, seed=fields.get("seed"), values=values)
