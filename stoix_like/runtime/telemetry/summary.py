"""The state of a progress display, and its text. Uses no terminal library, so that any view can use it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from stoix_like.runtime.console.text import duration_text, number_text
from stoix_like.runtime.telemetry.sink import Clock, Report, RunMeta

GAP = " · "
FILLING = "filling the replay"  # shown instead of losses
_PLAIN_TRAINER = ("policy_loss", "entropy")  # the TRAINER values of a plain line; metrics.jsonl holds all
_FORMAT = "well_formed"  # of agents that write: without it nothing is learned
SHOWN_APART = ("mean_return", _FORMAT, "episodes")  # of evaluations, in `score_text` or of no interest
_EXTREME = re.compile("(max|min)_.*|.*_(max|min)")


class RunSummary:
    """The last values of each category over all seeds, the best evaluation, and the time that is left.

    It shows the labels, {metric name: label}, instead of the names.

    Attributes:
        update: number of updates.
        best: (mean return, update) of the best deterministic evaluation, or None.
        seconds_left: expected seconds to the last update, including evaluations and checkpoints. None if unknown, if
            the run is done, or while a replay is being filled.
    """

    def __init__(self, meta: RunMeta, labels: Mapping[str, str] = {}) -> None:
        self.meta = meta
        self.update = meta.resumed_update or 0
        self.best = meta.best
        self.seconds_left: float | None = None
        self._labels = labels
        self._values: dict[str, dict[str, float]] = {}  # by prefix and name
        self._first: tuple[int, float] | None = None  # (update, elapsed seconds) of the first report of this process

    def add(self, reports: Sequence[Report]) -> None:
        """Adds the reports of one moment."""
        values: dict[str, dict[str, float]] = {}
        for report in reports:
            for key, value in report.over_seeds().items():
                prefix, _, name = key.partition("/")
                values.setdefault(prefix, {})[name] = value
        self._values |= values
        clock = reports[-1].clock
        self.update = clock.update
        score = values.get("evaluator", {}).get("mean_return", math.nan)
        if math.isfinite(score) and (self.best is None or score > self.best[0]):
            self.best = score, clock.update
        self.seconds_left = self._seconds_left(clock)

    def of(self, prefix: str) -> dict[str, float]:
        """{name: value over seeds} of the last report with this prefix, such as `actor`; see `over_seeds`."""
        return self._values.get(prefix, {})

    @property
    def steps_per_second(self) -> float:
        """Of all seeds together; NaN before the first report."""
        return self.of("actor").get("steps_per_second", math.nan)

    @property
    def is_filling(self) -> bool:
        """Whether the replay is being filled and nothing is learned yet. Such updates are faster than later ones."""
        return self.of("trainer").get("gradient_steps_sum") == 0

    def _seconds_left(self, last: Clock) -> float | None:
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

    def label(self, name: str) -> str:
        """What is shown for the name of a metric."""
        return self._labels.get(name, "steps/s" if name == "steps_per_second" else name)

    def named(self, prefix: str, names: Iterable[str]) -> list[str]:
        """`label value` for each of the names that has a value, in order."""
        values = self.of(prefix)
        return [f"{self.label(name)} {number_text(values[name])}" for name in names if name in values]

    def essential(self, prefix: str, *others: str) -> list[str]:
        """`named` without `others`, extremes and times, which are left to metrics.jsonl."""
        hidden = ("steps_per_second", "duration_ms", *others)
        names = [name for name in self.of(prefix) if name not in hidden and not _EXTREME.fullmatch(name)]
        return self.named(prefix, names)

    def score_text(self) -> str:
        """`mean_return 0.83 (best 0.86 @ 110)`, plus `network alone 0.81` if the policy searches, and the format.

        Empty before the first evaluation.
        """
        best = [f"(best {number_text(self.best[0])} @ {self.best[1]:,})"] if self.best else []
        score = self.named("evaluator", ["mean_return"])
        network = self.of("evaluator_network").get("mean_return")
        alone = [] if network is None else [f"network alone {number_text(network)}"]
        return GAP.join([" ".join([*score, *best]), *alone, *self.named("evaluator", [_FORMAT])]) if score else ""

    def _cut_text(self) -> list[str]:
        """`75 % of games cut`, where games against themselves have been: nothing is learned from these."""
        share = self.of("actor").get("truncated", 0.0)
        return [f"{100 * share:.0f} % of games cut"] if share > 0 else []

    def plain_line(self, *, is_training: bool) -> str:
        """One line for pipes and log files; with what was learned and played if the report `is_training`."""
        parts = [f"update {self.update:,}/{self.meta.num_updates:,}"]
        if is_training:
            if math.isfinite(self.steps_per_second):
                parts.append(f"{self.steps_per_second:,.0f} {self.label('steps_per_second')}")
            parts += [*self.named("actor", ["mean_return", _FORMAT]), *self._cut_text()]
            parts += [FILLING] if self.is_filling else self.named("trainer", _PLAIN_TRAINER)
        if score := self.score_text():
            parts.append(f"eval {score}")
        if self.seconds_left is not None:
            parts.append(f"{duration_text(self.seconds_left)} left")
        return GAP.join(parts)


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
