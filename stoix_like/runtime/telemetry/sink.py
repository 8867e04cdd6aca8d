"""The types of telemetry: rows of metrics, spans of time, and the protocol of sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from stoix_like.config.checks import steps_per_update
from stoix_like.config.sections import RunConfig
from stoix_like.runtime.console.text import Value

Category = Literal["TRAINER", "ACTOR", "EVALUATOR", "MISC"]


class Row(NamedTuple):
    """One line of metrics.jsonl: the values of one category and one seed after `update` updates."""

    category: Category
    update: int
    timesteps: int  # environment steps of one seed since update 0
    elapsed_seconds: float  # wall-clock time of the run
    seed: int | None  # None: the values are of all seeds
    values: Mapping[str, Value]  # with prefix, such as `trainer/policy_loss`; NaN if there is no value


class Span(NamedTuple):
    """A named interval of a run's wall-clock time. A span without a parent is a trace.

    Attributes:
        name: chunk, update, rollout, search, optimise, evaluate or checkpoint.
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
    """Metadata of a run that sinks receive before the first row.

    Attributes:
        algorithm: "PPO" or "SPO".
        device: such as "cpu" or "NVIDIA H200".
        versions: {"stoix_like": "0.1.0", "jax": ...}.
        config: the whole configuration.
        resumed_update: the update of the checkpoint that is resumed; None for a new run.
        resumed_evaluated: whether that checkpoint was evaluated at its update; if not, rows of an evaluation are cut.
        best: (evaluation mean return, update) of the best checkpoint of a resumed run.
    """

    algorithm: str
    device: str
    versions: Mapping[str, str]
    config: RunConfig
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
    def steps_per_update(self) -> int:
        """Environment steps of one update and one seed."""
        return steps_per_update(self.config)

    @property
    def start_values(self) -> dict[str, str | int]:
        """What the first row of metrics.jsonl and the first span say of the run, by name."""
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
    """A destination of rows. Calls come in the order open, write ..., close; after an exception only close follows."""

    def open(self, run_dir: Path, meta: RunMeta) -> None: ...

    def write(self, rows: Sequence[Row]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class SpanSink(Sink, Protocol):
    """A sink that also takes spans."""

    def trace(self, spans: Sequence[Span]) -> None: ...
