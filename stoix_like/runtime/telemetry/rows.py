"""From reduced metrics to rows: pure functions between the device's results and the sinks.

The learner's metric names end in their reduction (`types.metric_reduction`). Here sums and counts become the means,
rates and extremes of the schema. Reads no clock and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stoix_like.runtime.console.text import Value
from stoix_like.runtime.telemetry.sink import Category, Row, RunMeta
from stoix_like.types import metric_reduction

EvaluationMode = Literal["deterministic", "sampled", "network"]
EVALUATION_PREFIXES: dict[EvaluationMode, str] = {
    "deterministic": "evaluator",
    "sampled": "evaluator_sampled",
    "network": "evaluator_network",
}
#: The scores that evaluations of every task report. A task may add its own (see `evaluation_values`).
EVALUATION_METRICS = (
    "mean_return",
    "max_return",
    "min_return",
    "episode_length_mean",
    "episode_length_max",
    "episode_length_min",
)
_CATEGORIES: dict[str, Category] = {"trainer": "TRAINER", "actor": "ACTOR", "misc": "MISC"}
#: {name in a row: name of the actor's reduced metric}. Means are computed from sum and count.
_EPISODE_EXTREMES = {
    "max_return": "episode_return_max",
    "min_return": "episode_return_min",
    "episode_length_max": "episode_length_max",
    "episode_length_min": "episode_length_min",
}


class Progress(NamedTuple):
    """The progress of a run at a report. Steps are environment steps of one seed.

    Attributes:
        update: number of updates.
        timesteps: steps since update 0.
        elapsed_seconds: wall-clock seconds of the run.
        steps: steps since the last report.
        seconds: wall-clock seconds of those steps, including learning, without evaluation and compilation.
    """

    update: int
    timesteps: int
    elapsed_seconds: float
    steps: int
    seconds: float


def reduce_metrics(accumulated: Mapping[str, ArrayLike], num_updates: int) -> dict[str, NDArray[Any]]:
    """The metrics of a chunk, {name: [S]}: means, which were accumulated as sums, are divided by `num_updates`.

    Sums, counts and extremes are unchanged. Raises ValueError if `num_updates` is below 1.
    """
    if num_updates < 1:
        raise ValueError(f"a chunk has at least one update, got {num_updates}")
    arrays = {name: np.asarray(value) for name, value in accumulated.items()}
    return {name: v / num_updates if metric_reduction(name) == "mean" else v for name, v in arrays.items()}


def training_rows(metrics: Mapping[str, ArrayLike], progress: Progress, seeds: Sequence[int]) -> list[Row]:
    """One TRAINER and one ACTOR row (and MISC, if there is a `misc/` metric) per seed.

    Args:
        metrics: {name: [S]} from `reduce_metrics`; a scalar is one seed. Prefixes: trainer/, actor/, misc/.
        progress: of the run.
        seeds: the S seeds, in the order of the arrays.
    """
    grouped: dict[str, dict[str, NDArray[Any]]] = {"trainer": {}, "actor": {}}
    for full_name, value in metrics.items():
        prefix, _, name = full_name.partition("/")
        array = np.atleast_1d(np.asarray(value))  # [S]
        if prefix not in _CATEGORIES or array.shape != (len(seeds),):
            raise ValueError(f"metric '{full_name}' has shape {array.shape}; expected trainer/, actor/ or misc/, [S]")
        grouped.setdefault(prefix, {})[name] = array
    at = progress.update, progress.timesteps, progress.elapsed_seconds
    rows = []
    for index, seed in enumerate(seeds):
        for prefix, arrays in grouped.items():
            values = {name: array[index] for name, array in arrays.items()}
            values = _actor_values(values, progress) if prefix == "actor" else values
            prefixed = {f"{prefix}/{name}": to_number(value) for name, value in values.items()}
            rows.append(Row(_CATEGORIES[prefix], *at, seed, prefixed))
    return rows


def _actor_values(raw: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """The ACTOR values of one seed: means over finished episodes, NaN if none finished."""
    left = dict(raw)
    values: dict[str, Any] = {"steps_per_second": progress.steps / progress.seconds if progress.seconds > 0 else np.nan}
    episodes = left.pop("episodes_count", 0)
    divisor = episodes or np.nan  # 0 finished episodes have no mean: NaN, not 0 and not a division error
    if "episode_return_sum" in left:
        values["mean_return"] = left.pop("episode_return_sum") / divisor
    for name, source in _EPISODE_EXTREMES.items():
        if source in left:  # without episodes it holds the initial value of the reduction, an infinity
            value = left.pop(source)
            whole = int if name.startswith("episode_length") else float  # lengths are steps, carried in float32
            values[name] = whole(value) if episodes else np.nan
    if "episode_length_sum" in left:
        values["episode_length_mean"] = left.pop("episode_length_sum") / divisor
    values["episodes"] = int(episodes)
    if "levels_reused_sum" in left:
        values["levels_reused"] = int(left.pop("levels_reused_sum"))
    for name, value in left.items():
        reduction = metric_reduction(name)
        if name.endswith("_sum"):
            values[name.removesuffix("_sum")] = value / divisor
        elif reduction in ("max", "min") and not episodes:
            values[name] = np.nan
        else:
            values[name] = value
    return values


def evaluation_values(
    results: Mapping[str, ArrayLike], mode: EvaluationMode, duration_seconds: float
) -> dict[str, float | int]:
    """The values of an EVALUATOR row: the eight keys of the schema, and the means of the environment's own metrics.

    Args:
        results: per-episode arrays [E]: `episode_return`, `episode_length` (steps) and any others.
        mode: decides the prefix: evaluator/, evaluator_sampled/ or evaluator_network/.
        duration_seconds: wall-clock seconds of the evaluation; reported in milliseconds.
    """
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in results.items()}
    returns, lengths = arrays.pop("episode_return"), arrays.pop("episode_length")
    odd = [name for name, array in arrays.items() if array.shape != returns.shape]
    if returns.ndim != 1 or returns.size == 0 or lengths.shape != returns.shape or odd:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in results.items())
        raise ValueError(f"results must be arrays [E] of at least one episode, got {shapes}")
    values: dict[str, Any] = {
        "episodes": returns.size,
        "mean_return": returns.mean(),
        "max_return": returns.max(),
        "min_return": returns.min(),
        "episode_length_mean": lengths.mean(),
        "episode_length_max": int(lengths.max()),
        "episode_length_min": int(lengths.min()),
        "duration_ms": 1000.0 * duration_seconds,
        **{name: array.mean() for name, array in arrays.items()},
    }
    return {f"{EVALUATION_PREFIXES[mode]}/{name}": to_number(value) for name, value in values.items()}


def start_row(meta: RunMeta, elapsed_seconds: float = 0.0) -> Row:
    """The first MISC row of a new or resumed run: algorithm, task, device, sizes and versions."""
    update = meta.resumed_update or 0
    facts = {"algorithm": meta.algorithm, "task_id": meta.task_id, **meta.start_values}
    values: dict[str, Value] = {"misc/event": "start" if meta.resumed_update is None else "resume"}
    values.update({f"misc/{name}": value for name, value in facts.items()})
    values.update({f"misc/version_{library}": version for library, version in meta.versions.items()})
    return Row("MISC", update, update * meta.steps_per_update, elapsed_seconds, None, values)


def to_number(value: Any) -> float | int:
    """A scalar as a Python number: an exact integer, or the shortest decimal of its float32; NaN if not finite.

    The device computes in float32, so more digits would be noise.
    """
    array = np.asarray(value)
    if array.dtype.kind in "iub":
        return int(array)
    with np.errstate(over="ignore"):  # the device would overflow too
        single = np.float32(array)
    return float(str(single)) if np.isfinite(single) else float("nan")
