"""The protocol of sinks, and what they receive: reports, spans of time, and the metadata of the run.

All sinks receive the same reports. `Report.rows` splits one by seed and category, where a row is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from stoix_like.config.sections.runs import RunConfig
from stoix_like.runtime.console.text import Value

Category = Literal["TRAINER", "ACTOR", "EVALUATOR", "MISC"]
_CATEGORIES: dict[str, Category] = {"trainer": "TRAINER", "actor": "ACTOR", "misc": "MISC"}  # all others: EVALUATOR
_TOTALS = ("steps_per_second", "episodes", "levels_reused")  # summed over seeds


class Clock(NamedTuple):
    """A moment of a run."""

    update: int  # number of updates
    timesteps: int  # environment steps of one seed since update 0
    elapsed_seconds: float  # wall-clock time of the run


class Report(NamedTuple):
    """The values of one moment.

    Attributes:
        clock: the moment.
        values: {key with prefix, such as `trainer/policy_loss`: numbers [S]}; NaN if there is no value.
        texts: {key with prefix: text}, of all seeds.
        seeds: S seeds, in the order of the numbers; (None,) if the values are of all seeds together.
    """

    clock: Clock
    values: Mapping[str, Sequence[float]]
    texts: Mapping[str, str] = {}
    seeds: Sequence[int | None] = (None,)

    def over_seeds(self) -> dict[str, float]:
        """{key: one value over seeds}, see `over_seeds`."""
        return {key: over_seeds(key.rpartition("/")[2], numbers) for key, numbers in self.values.items()}

    def rows(self) -> Iterator[dict[str, Value | None]]:
        """The lines of metrics.jsonl: one per seed and category."""
        by_category: dict[Category, list[str]] = {}
        for key in [*self.texts, *self.values] if "misc/event" in self.texts else [*self.values, *self.texts]:
            by_category.setdefault(_CATEGORIES.get(key.partition("/")[0], "EVALUATOR"), []).append(key)
        for index, seed in enumerate(self.seeds):
            for category, keys in by_category.items():
                numbers = {key: self.values[key][index] if key in self.values else self.texts[key] for key in keys}
                moment = {**self.clock._asdict(), "elapsed_seconds": round(self.clock.elapsed_seconds, 3)}
                yield {"category": category, **moment, "seed": seed, **numbers}


def event(clock: Clock, name: str, **values: Value) -> Report:
    """The report of an event: `misc/event` is its name."""
    named: dict[str, Any] = {f"misc/{key}": value for key, value in ({"event": name} | values).items()}
    texts = {key: value for key, value in named.items() if isinstance(value, str)}
    return Report(clock, {key: [value] for key, value in named.items() if key not in texts}, texts)


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


class Span(NamedTuple):
    """A named interval of a run's wall-clock time. A span without a parent is a trace.

    Attributes:
        name: such as chunk, update, rollout, search, optimise, evaluate or checkpoint.
        began: seconds since the epoch.
        seconds: duration.
        attributes: further values by name.
        children: nested spans, in the order in which they began.
    """

    name: str
    began: float
    seconds: float
    attributes: Mapping[str, Value] = {}
    children: tuple[Span, ...] = ()


class RunMeta(NamedTuple):
    """Metadata of a run that sinks receive before the first report.

    Attributes:
        algorithm: key of `build.ALGORITHMS`, such as "ppo".
        title: of the algorithm, such as "PPO".
        device: such as "cpu" or "NVIDIA H200".
        versions: {"stoix_like": "0.1.0", "jax": ...}.
        config: the whole configuration.
        steps_per_update: environment steps of one update and one seed.
        resumed_update: the update of the checkpoint that is resumed; None for a new run.
        resumed_evaluated: whether that checkpoint was evaluated at its update; if not, rows of an evaluation are cut.
        best: (evaluation mean return, update) of the best checkpoint of a resumed run.
    """

    algorithm: str
    title: str
    device: str
    versions: Mapping[str, str]
    config: RunConfig
    steps_per_update: int
    resumed_update: int | None = None
    resumed_evaluated: bool = True
    best: tuple[float, int] | None = None

    @property
    def task_id(self) -> str:
        return self.config.environment.task_id

    @property
    def num_updates(self) -> int:
        """Updates of the whole run."""
        number = self.config.training_core.num_updates
        assert number is not None  # narrows the type: a checked configuration has a number
        return number

    @property
    def seeds(self) -> range:
        first = self.config.architecture.seed
        return range(first, first + self.config.training_core.num_seeds)

    @property
    def start_values(self) -> dict[str, str | int]:
        """What the first report and the first span say of the run, by name."""
        core = self.config.training_core
        return {
            "device": self.device,
            "seed": self.seeds[0],
            "num_seeds": core.num_seeds,
            "num_envs": self.config.environment.num_envs,
            "rollout_length": core.rollout_length,
            "num_updates": self.num_updates,
        }


class Sink(Protocol):
    """A destination of reports. Calls: open, write ..., close; after an exception only close follows."""

    def open(self, run_dir: Path, meta: RunMeta) -> None: ...

    def write(self, reports: Sequence[Report]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class SpanSink(Sink, Protocol):
    """A sink that also takes spans."""

    def trace(self, spans: Sequence[Span]) -> None: ...
