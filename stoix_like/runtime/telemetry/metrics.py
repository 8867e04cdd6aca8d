"""From reduced metrics to reports: pure functions between the device's results and the sinks.

The learner's metric names end in their reduction (`types.metric_reduction`). Here sums and counts become the means,
rates and extremes of the schema. Reads no clock and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stoix_like.runtime.telemetry.sink import Clock, Report, RunMeta, event
from stoix_like.types import metric_reduction

#: deterministic, sampled or network; or of a further opponent, such as vs_random.
EvaluationMode = str
_PREFIXES: dict[EvaluationMode, str] = {"deterministic": "evaluator"}


def evaluation_prefix(mode: EvaluationMode) -> str:
    """The prefix of the metrics of an evaluation: `evaluator`, `evaluator_sampled`, `evaluator_vs_random`."""
    return _PREFIXES.get(mode, f"evaluator_{mode}")


#: The scores that evaluations of every task report. A task may add its own (see `evaluation_values`).
EVALUATION_METRICS = (
    "mean_return",
    "max_return",
    "min_return",
    "episode_length_mean",
    "episode_length_max",
    "episode_length_min",
)
#: {the actor's reduced metric: its name in a report}, in the order of a report. All others follow.
_ACTOR_NAMES = {
    "episode_return_sum": "mean_return",
    "episode_return_max": "max_return",
    "episode_return_min": "min_return",
    "episode_length_max": "episode_length_max",
    "episode_length_min": "episode_length_min",
    "episode_length_sum": "episode_length_mean",
    "episodes_count": "episodes",
    "levels_reused_sum": "levels_reused",
}


def reduce_metrics(accumulated: Mapping[str, ArrayLike], num_updates: int) -> dict[str, NDArray[Any]]:
    """The metrics of some updates, {name: [S]}: means, which were accumulated as sums, are divided by `num_updates`.

    Sums, counts and extremes are unchanged. Raises ValueError if `num_updates` is below 1.
    """
    if num_updates < 1:
        raise ValueError(f"a report has at least one update, got {num_updates}")
    arrays = {name: np.asarray(value) for name, value in accumulated.items()}
    return {name: v / num_updates if metric_reduction(name) == "mean" else v for name, v in arrays.items()}


def training_report(
    metrics: Mapping[str, NDArray[Any]], clock: Clock, steps_per_second: float, seeds: Sequence[int]
) -> Report:
    """The report of some updates.

    Args:
        metrics: {name: [S]} from `reduce_metrics`. Prefixes: trainer/, actor/, misc/.
        clock: after these updates.
        steps_per_second: of one seed, including learning, without evaluation and compilation; NaN if unknown.
        seeds: the S seeds, in the order of the arrays.
    """
    for name, array in metrics.items():
        if name.partition("/")[0] not in ("trainer", "actor", "misc") or array.shape != (len(seeds),):
            raise ValueError(f"metric '{name}' has shape {array.shape}; expected trainer/, actor/ or misc/, [S]")

    def of(prefix: str) -> dict[str, Any]:
        return {name: array for name, array in metrics.items() if name.startswith(prefix)}

    raw = {name.removeprefix("actor/"): array for name, array in of("actor/").items()}
    actor = {"steps_per_second": [steps_per_second] * len(seeds), **_actor_values(raw, len(seeds))}
    values = of("trainer/") | {f"actor/{name}": each for name, each in actor.items()} | of("misc/")
    return Report(clock, _numbers(values), seeds=seeds)


def _actor_values(raw: Mapping[str, NDArray[Any]], num_seeds: int) -> dict[str, Sequence[Any]]:
    """{name: numbers [S]} of the actor: means over finished episodes, NaN for a seed that finished none."""
    raw = {"episodes_count": np.zeros(num_seeds), **raw}
    episodes = raw["episodes_count"]
    divisor = np.where(episodes, episodes, np.nan)  # no mean of 0 episodes: NaN, not 0 and not a division error
    values: dict[str, Any] = {}
    for source in [
        *(name for name in _ACTOR_NAMES if name in raw),
        *(name for name in raw if name not in _ACTOR_NAMES),
    ]:
        array = raw[source]
        if source in ("episodes_count", "levels_reused_sum"):
            numbers: Any = array.astype(int)
        elif source.endswith("_sum"):
            numbers = array / divisor
        elif metric_reduction(source) in ("max", "min"):  # without episodes, the initial value of the reduction
            kind = int if source.startswith("episode_length") else array.dtype.type  # steps are carried in float32
            numbers = [kind(value) if count else np.nan for value, count in zip(array, episodes, strict=True)]
        else:
            numbers = array
        values[_ACTOR_NAMES.get(source, source.removesuffix("_sum"))] = numbers
    return values


def evaluation_values(
    results: Mapping[str, ArrayLike], mode: EvaluationMode, duration_seconds: float
) -> dict[str, Sequence[float]]:
    """The values [S] of an evaluation: the eight keys of the schema, and the means of the environment's own metrics.

    Args:
        results: arrays [S, E], seeds and episodes: `episode_return`, `episode_length` (steps) and any others.
        mode: decides the prefix, see `evaluation_prefix`.
        duration_seconds: wall-clock seconds of the evaluation; reported in milliseconds.
    """
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in results.items()}
    returns, lengths = arrays.pop("episode_return"), arrays.pop("episode_length")
    odd = [name for name, array in arrays.items() if array.shape != returns.shape]
    if returns.ndim != 2 or returns.size == 0 or lengths.shape != returns.shape or odd:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in results.items())
        raise ValueError(f"results must be arrays [S, E] of at least one episode, got {shapes}")
    num_seeds, episodes = returns.shape
    values = {
        "episodes": [episodes] * num_seeds,
        "mean_return": returns.mean(1),
        "max_return": returns.max(1),
        "min_return": returns.min(1),
        "episode_length_mean": lengths.mean(1),
        "episode_length_max": lengths.max(1).astype(int),
        "episode_length_min": lengths.min(1).astype(int),
        "duration_ms": [1000.0 * duration_seconds] * num_seeds,
        **{name: array.mean(1) for name, array in arrays.items()},
    }
    return _numbers({f"{evaluation_prefix(mode)}/{name}": each for name, each in values.items()})


def _numbers(values: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[float]]:
    return {key: [to_number(value) for value in each] for key, each in values.items()}


def start_report(meta: RunMeta, elapsed_seconds: float = 0.0) -> Report:
    """The first report of a new or resumed run: algorithm, task, device, sizes and versions."""
    update = meta.resumed_update or 0
    facts = {"algorithm": meta.title, "task_id": meta.task_id, **meta.start_values}
    versions = {f"version_{library}": version for library, version in meta.versions.items()}
    name = "start" if meta.resumed_update is None else "resume"
    return event(Clock(update, update * meta.steps_per_update, elapsed_seconds), name, **facts, **versions)


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
