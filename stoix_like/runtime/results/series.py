"""Reads metrics.jsonl and the configuration of a finished or running run: the one place that interprets its rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoix_like.config.checks.retired import RETIRED_LEAVES, meant_otherwise
from stoix_like.config.sections.roles import Role
from stoix_like.config.sections.tables import LEAF_ROLES
from stoix_like.errors import RunError
from stoix_like.runtime.console.text import ALGORITHM_TITLES
from stoix_like.runtime.runs.find import no_run_at, read_config
from stoix_like.runtime.telemetry.jsonl import FILE_NAME, read_rows


class Series(NamedTuple):
    """One metric of one seed, ordered by the environment steps of that seed."""

    timesteps: NDArray[np.float64]  # [K]
    values: NDArray[np.float64]  # [K]
    seconds: NDArray[np.float64]  # [K] wall-clock of the run; NaN if the row has none


@dataclasses.dataclass(frozen=True, eq=False)
class RunRecord:
    """The metrics and configuration of one run folder."""

    path: Path
    rows: list[dict[str, Any]]  # of metrics.jsonl, in order; all else is computed from them when it is first used

    @functools.cached_property
    def start(self) -> dict[str, Any]:
        """The first row, with algorithm and task_id, names without `misc/`; empty if it is not written yet."""
        return next((_unprefixed(row) for row in self.rows if "misc/algorithm" in row and "misc/task_id" in row), {})

    @property
    def algorithm(self) -> str:
        """The key of the algorithm, such as `ppo`; the row has its title."""
        title = str(self.start["algorithm"])
        return next((key for key, of_key in ALGORITHM_TITLES.items() if of_key == title), title.lower())

    @property
    def task_id(self) -> str:
        return str(self.start["task_id"])

    @property
    def device(self) -> str:
        """The device it ran on; all of them if it was resumed on another."""
        return " and ".join(dict.fromkeys(str(row["misc/device"]) for row in self.rows if "misc/device" in row))

    @functools.cached_property
    def leaves(self) -> dict[str, Any]:
        """The configuration as `experiment_leaves` returns it."""
        return experiment_leaves(read_config(self.path))

    @functools.cached_property
    def series(self) -> dict[str, dict[int, Series]]:
        """{metric key: {seed: series}} of every number. Of two rows at one step the later one counts."""
        points: dict[str, dict[int, dict[int, tuple[float, float]]]] = {}
        for row in self._reports():
            seconds = float(row.get("elapsed_seconds", np.nan))
            for key, value in row.items():
                if "/" in key and isinstance(value, (int, float)):
                    by_seed = points.setdefault(key, {})
                    by_seed.setdefault(row.get("seed") or 0, {})[row["timesteps"]] = float(value), seconds
        return {key: {seed: _in_order(found) for seed, found in by_seed.items()} for key, by_seed in points.items()}

    @property
    def seeds(self) -> set[int]:
        """Every seed that has a value."""
        return {seed for by_seed in self.series.values() for seed in by_seed}

    @functools.cached_property
    def level_hashes(self) -> dict[str, tuple[str | None, ...]]:
        """{prefix such as `evaluator`: hashes of its level sets, in order}; None stands for fresh levels."""
        found: dict[str, dict[str | None, None]] = {}
        for row in self._reports():
            for prefix in {key.partition("/")[0] for key in row if "/" in key}:
                found.setdefault(prefix, {})[row.get(f"{prefix}/level_hash")] = None
        return {prefix: tuple(hashes) for prefix, hashes in found.items()}

    @functools.cached_property
    def evaluations(self) -> dict[int, dict[int, dict[str, Any]]]:
        """{update: {seed: {metric key: value}}}; None for a value that was not finite."""
        found: dict[int, dict[int, dict[str, Any]]] = {}
        for row in self.rows:
            if row.get("category") == "EVALUATOR":
                values = found.setdefault(row["update"], {}).setdefault(row.get("seed") or 0, {})
                values |= {key: value for key, value in row.items() if "/" in key}
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        """The rows of events such as `checkpoint_saved`, names without `misc/`."""
        return [_unprefixed(row) for row in self.rows if "misc/event" in row]

    @property
    def last(self) -> dict[str, Any]:
        """The row of the highest update, of several the latest; empty without a row."""
        return max(self.rows, key=lambda row: (row.get("update", 0), row.get("elapsed_seconds", 0.0)), default={})

    def latest(self, name: str) -> Any:
        """The last value of `misc/<name>`; None if it was not logged."""
        return next((row[f"misc/{name}"] for row in reversed(self.rows) if f"misc/{name}" in row), None)

    def _reports(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row.get("category") != "MISC" and "timesteps" in row]


def read_started_run(path: Path) -> RunRecord:
    """The record of a run folder, which may not have reported yet. Raises RunError if there is no metrics.jsonl."""
    return RunRecord(path, read_rows(path / FILE_NAME))


def read_run(path: Path) -> RunRecord:
    """The record of a run folder with at least one report. The run may still be running.

    Raises CheckpointError if the folder does not exist, and RunError if it has no metrics or no start row.
    """
    if not path.is_dir():
        raise no_run_at(str(path), path.parent)
    run = read_started_run(path)
    if run.rows and not run.start:
        raise RunError(f"{path / FILE_NAME} has no start row", "plot run folders as the training scripts write them")
    if not run.series:
        raise RunError(
            f"run {path} has no metrics yet",
            "wait for its first report, some seconds after compiling; if it has ended, leave it out",
        )
    return run


def _unprefixed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("misc/"): value for key, value in row.items()}


def _in_order(points: dict[int, tuple[float, float]]) -> Series:
    table = np.array([(timesteps, *point) for timesteps, point in sorted(points.items())], np.float64)
    return Series(*table.T)


def experiment_leaves(sections: Mapping[str, Any]) -> dict[str, Any]:
    """{leaf: value} of a configuration, only leaves that can change learning or scores, without the seed.

    Two runs belong to one experiment if these are equal. A leaf that this version does not know counts; one that is
    gone counts if it meant something else than what holds today.
    """
    leaves = [leaf for values in sections.values() if isinstance(values, dict) for leaf in values.items()]
    matters, gone = Role.LEARNING | Role.TASK, meant_otherwise(sections)
    known = {name: value for name, value in leaves if name not in RETIRED_LEAVES}
    return {name: value for name, value in known.items() if LEAF_ROLES.get(name, Role.LEARNING) & matters} | gone
