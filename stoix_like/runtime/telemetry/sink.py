"""The words of telemetry: what a row of metrics is, what a span of time is, and what a sink must do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from stoix_like.runtime.console.text import Value

Category = Literal["TRAINER", "ACTOR", "EVALUATOR", "MISC"]


class Row(NamedTuple):
    """One line of metrics.jsonl: what one category has to say of one seed (None = of all) after `update` updates.

    `timesteps` are environment steps of one seed since update 0, `elapsed_seconds` wall-clock time of the run; `values`
    have their prefix already (`trainer/policy_loss`), and a value that does not exist is NaN.
    """

    category: Category
    update: int
    timesteps: int
    elapsed_seconds: float
    seed: int | None
    values: Mapping[str, Value]


class Span(NamedTuple):
    """A stretch of wall-clock time of a run, with what it is made of; a span that is in no other is a trace.

    Attributes:
        name: chunk, update, rollout, search, optimise, evaluate, checkpoint.
        began: seconds since the epoch.
        seconds: how long it took.
        attributes: what else is known of it.
        children: spans inside it, in the order in which they began.
    """

    name: str
    began: float
    seconds: float
    attributes: Mapping[str, Value] = {}
    children: tuple[Span, ...] = ()


class RunMeta(NamedTuple):
    """What every sink may know of a run before its first row. Plain values, so that no sink needs the configuration.

    Attributes:
        algorithm: "PPO" or "SPO".
        task_id: as in the run's name: "Maze-v0".
        device: where it runs: "cpu", "cuda:0 (NVIDIA H100)".
        seed: the first of those trained.
        num_seeds: the run trains seeds seed ... seed + num_seeds - 1.
        num_envs: environments of one seed.
        rollout_length: steps of each environment and update.
        num_updates: the whole run; see `timesteps`.
        eval_interval: updates between evaluations; 0 = only at the end.
        versions: {"stoix_like": "0.1.0", "jax": ...}.
        config: every leaf by name, for sinks that store parameters.
        resumed_update: the update of the checkpoint that is continued; None for a fresh run.
        resumed_evaluated: whether that checkpoint knows of an evaluation at its update; another one's rows are cut.
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
    """Where rows go. Calls come in the order open, write ..., close; after a raise only close follows."""

    def open(self, run_dir: Path, meta: RunMeta) -> None: ...

    def write(self, rows: Sequence[Row]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class SpanSink(Sink, Protocol):
    """A sink that takes spans, too."""

    def trace(self, spans: Sequence[Span]) -> None: ...
