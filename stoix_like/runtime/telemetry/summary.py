"""The state of a progress display, and its text. Uses no terminal library, so that any view can use it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from stoix_like.runtime.console.text import number_text
from stoix_like.runtime.telemetry.sink import Row, RunMeta

_TOTALS = ("steps_per_second", "episodes", "levels_reused")  # summed over seeds


class RunSummary:
    """The last values of each category over all seeds, the best evaluation, and the time that is left.

    Attributes:
        update: number of updates.
        trainer, actor, evaluation: {name without prefix: value over seeds}, see `over_seeds`; the evaluation is the
            deterministic one.
        best: (mean return, update) of the best evaluation, or None.
        steps_per_second: of all seeds together; NaN before the first report.
        seconds_left: expected seconds to the last update, including evaluations and checkpoints. None if unknown, if
            the run is done, or while a replay is being filled.
    """

    def __init__(self, meta: RunMeta) -> None:
        self.meta = meta
        self.update = meta.resumed_update or 0
        self.trainer: dict[str, float] = {}
        self.actor: dict[str, float] = {}
        self.evaluation: dict[str, float] = {}
        self.network_evaluation: dict[str, float] = {}  # of the network alone, if the policy searches
        self.best = meta.best
        self.steps_per_second = math.nan
        self.seconds_left: float | None = None
        self._first: tuple[int, float] | None = None  # (update, elapsed seconds) of the first report of this process

    def add(self, rows: Sequence[Row]) -> None:
        """Adds the rows of one report."""
        if not rows:
            return
        last = rows[-1]
        self.update = last.update
        self.trainer = _merged(rows, "trainer/") or self.trainer
        self.actor = _merged(rows, "actor/") or self.actor
        self.steps_per_second = self.actor.get("steps_per_second", self.steps_per_second)
        self.network_evaluation = _merged(rows, "evaluator_network/") or self.network_evaluation
        evaluation = _merged(rows, "evaluator/")
        if evaluation:
            self.evaluation = evaluation
            score = evaluation.get("mean_return", math.nan)
            if math.isfinite(score) and (self.best is None or score > self.best[0]):
                self.best = score, last.update
        self.seconds_left = self._seconds_left(last)

    @property
    def is_filling(self) -> bool:
        """Whether the replay is being filled and nothing is learned yet. Such updates are faster than later ones."""
        return self.trainer.get("gradient_steps_sum") == 0

    def _seconds_left(self, last: Row) -> float | None:
        left = self.meta.num_updates - last.update
        if left <= 0 or self.is_filling:
            return None
        if self._first is None:
            self._first = last.update, last.elapsed_seconds
        updates, seconds = last.update - self._first[0], last.elapsed_seconds - self._first[1]
        if updates > 0 and seconds > 0:  # wall-clock time between reports, which includes evaluations
            return left * seconds / updates
        per_update = self.meta.steps_per_update * len(self.meta.seeds)
        rate = self.steps_per_second
        return left * per_update / rate if math.isfinite(rate) and rate > 0 else None


def _merged(rows: Sequence[Row], prefix: str) -> dict[str, float]:
    """{name: value over seeds} of the numbers whose key starts with the prefix; NaN if no seed has a value."""
    seed_values: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.values.items():
            if key.startswith(prefix) and not isinstance(value, str):
                seed_values.setdefault(key.removeprefix(prefix), []).append(float(value))
    return {name: over_seeds(name, values) for name, values in seed_values.items()}


def over_seeds(name: str, values: Iterable[float]) -> float:
    """One value over seeds: the sum of rates and counts, the extreme of extremes, otherwise the mean."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan
    if name in _TOTALS:
        return sum(finite)
    if name.startswith("max_") or name.endswith("_max"):
        return max(finite)
    if name.startswith("min_") or name.endswith("_min"):
        return min(finite)
    return sum(finite) / len(finite)


def parse_labels(text: str) -> tuple[dict[str, str], list[str]]:
    """({metric name: label}, problems) from a text such as `global_grad_norm=Grad Norm,steps_per_second=SPS`."""
    labels: dict[str, str] = {}
    problems: list[str] = []
    for entry in filter(str.strip, text.split(",")):
        name, equals, label = (part.strip() for part in entry.partition("="))
        if equals and name and label:
            labels[name] = label
        else:
            problems.append(f"'{entry.strip()}' is not name=label; it is ignored")
    return labels, problems


def labelled(values: Mapping[str, float], names: Iterable[str], labels: Mapping[str, str]) -> list[str]:
    """`label value` for each of the names that has a value, in order."""
    return [f"{labels.get(name, name)} {number_text(values[name])}" for name in names if name in values]
