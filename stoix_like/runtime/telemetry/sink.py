"""The types of telemetry: rows of metrics, spans of time, and the protocol of sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

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
    """Metadata of a run that sinks receive before the first row. Plain values, so that no sink needs the configuration.

    Attributes:
        algorithm: "PPO" or "SPO".
        task_id: such as "Maze-v0".
        device: such as "cpu" or "NVIDIA H200".
        seed: the first seed.
        num_seeds: the run trains seeds seed ... seed + num_seeds - 1.
        num_envs: environments of one seed.
        rollout_length: steps of each environment per update.
        num_updates: updates of the whole run; see `timesteps`.
        eval_interval: updates between evaluations; 0 = only at the end.
        versions: {"stoix_like": "0.1.0", "jax": ...}.
        config: {section: {leaf: value}}, for sinks that store parameters.
        resumed_update: the update of the checkpoint that is resumed; None for a new run.
        resumed_evaluated: whether that checkpoint was evaluated at its update; if not, rows of an evaluation are cut.
        best: (evaluation mean return, update) of the best checkpoint of a resumed run.
    """

    algorithm: str
    task_id: str
    device: str
    seed: int
    num_seeds: int
    num_envs: int
    rollout_length: int
    num_updates: int
    eval_interval: int
    versions: Mapping[str, str]
    config: Mapping[str, Any]
    resumed_update: int | None = None
    resumed_evaluated: bool = True
    best: tuple[float, int] | None = None

    @property
    def timesteps(self) -> int:
        """Environment steps of one seed over the whole run."""
        return self.num_envs * self.rollout_length * self.num_updates


class Sink(Protocol):
    """A destination of rows. Calls come in the order open, write ..., close; after an exception only close follows."""

    def open(self, run_dir: Path, meta: RunMeta) -> None: ...

    def write(self, rows: Sequence[Row]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class SpanSink(Sink, Protocol):
    """A sink that also takes spans."""

    def trace(self, spans: Sequence[Span]) -> None: ...
