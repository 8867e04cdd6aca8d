"""What a row of metrics is, what a sink must do, and the fan-out from one to the other.

The JSONL file is the record of a run: it is written first and a failure to write it ends the run. Every other sink is
a convenience: one that raises is dropped with one warning and training goes on. All sinks are called on the caller's
thread, in order; a sink that may wait for a network keeps its own queue and thread behind these three calls.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from stoix_like.errors import RunError, StoixError

Category = Literal["TRAINER", "ACTOR", "EVALUATOR", "MISC"]
Value = float | int | str


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


class RunMeta(NamedTuple):
    """What every sink may know of a run before its first row. Plain values, so that no sink needs the configuration.

    Attributes:
        algorithm, task_id: as in the run's name: "PPO", "Maze-v0".
        device: where it runs: "cpu", "cuda:0 (NVIDIA H100)".
        seed, num_seeds: the run trains seeds seed ... seed + num_seeds - 1.
        num_envs, rollout_length, num_updates: their product is the environment steps of one seed.
        eval_interval: updates between evaluations; 0 = only at the end.
        versions: {"stoix_like": "0.1.0", "jax": ...}.
        config: every leaf by name, for sinks that store parameters.
        resumed_update: the update of the checkpoint that is continued; None for a fresh run.
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


class Telemetry:
    """A sink made of sinks: `record` must work, the others may fail.

    Only `open` lets an error of theirs through, and only a StoixError: what the user asked for and cannot have (a
    missing extra) is said before training starts.
    """

    def __init__(self, record: Sink, others: Sequence[Sink] = ()) -> None:
        self._record = record
        self._others: list[Sink] = list(others)
        self._run_dir = Path()

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Opens the record, then every other sink.

        Raises:
            RunError: the record cannot be written.
            StoixError: a sink refuses what the configuration asks for; all are closed again.
        """
        self._run_dir = run_dir
        with _disk_errors(run_dir):
            self._record.open(run_dir, meta)
        for sink in list(self._others):
            try:
                sink.open(run_dir, meta)
            except StoixError:
                self.close()
                raise
            except Exception as error:
                self._drop(sink, error)

    def write(self, rows: Sequence[Row]) -> None:
        """Hands the rows of one report to every sink.

        Raises:
            RunError: the record cannot be written (a full disk, a folder that is gone).
        """
        with _disk_errors(self._run_dir):
            self._record.write(rows)
        for sink in list(self._others):
            # Any exception: a sink may be anybody's client, and none of its failures may cost the training.
            try:
                sink.write(rows)
            except Exception as error:
                self._drop(sink, error)

    def close(self) -> None:
        """Closes every sink, the record last. Safe to call twice."""
        for sink in list(self._others):
            try:
                sink.close()
            except Exception as error:
                self._drop(sink, error)
        with _disk_errors(self._run_dir):
            self._record.close()

    def _drop(self, sink: Sink, error: Exception) -> None:
        self._others.remove(sink)
        with contextlib.suppress(Exception):
            sink.close()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"warning: {type(sink).__name__} dropped ({reason}); metrics continue in {self._run_dir}/metrics.jsonl"
        with contextlib.suppress(OSError, ValueError):  # a stderr that is closed is no reason to stop either
            print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _disk_errors(run_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"metrics cannot be written: {error.strerror or error}, {error.filename or run_dir}"
        raise RunError(what, "free the disk or make the folder writable, then continue with --resume") from error
