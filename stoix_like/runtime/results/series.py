"""Reads the metrics of a finished or running run: one series per metric and seed, and its configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoix_like.config.roles import Role
from stoix_like.config.sections import LEAF_ROLES
from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.loading.strict_yaml import read_sections
from stoix_like.runtime.runs.find import missing_config_hint, runs_hint
from stoix_like.runtime.telemetry.jsonl import FILE_NAME, read_rows


class Series(NamedTuple):
    """One metric of one seed, ordered by the environment steps of that seed."""

    timesteps: NDArray[np.float64]  # [K]
    values: NDArray[np.float64]  # [K]
    seconds: NDArray[np.float64]  # [K] wall-clock of the run; NaN if the row has none


class RunRecord(NamedTuple):
    """The metrics and configuration of one run folder.

    Attributes:
        leaves: the configuration as `experiment_leaves` returns it.
        series: {metric key: {seed: series}}.
        level_hashes: {prefix such as `evaluator`: hashes of its level sets, in order}; None stands for fresh levels.
        device: the device it ran on; all of them if it was resumed on another.
        num_seeds: seeds trained side by side, in the same wall-clock time.
    """

    path: Path
    algorithm: str
    task_id: str
    leaves: dict[str, Any]
    series: dict[str, dict[int, Series]]
    level_hashes: dict[str, tuple[str | None, ...]]
    device: str
    num_seeds: int

    @property
    def seeds(self) -> set[int]:
        """Every seed that has a row."""
        return {seed for by_seed in self.series.values() for seed in by_seed}


def read_run(path: Path) -> RunRecord:
    """The metrics and configuration of a run folder. The run may still be running.

    Raises:
        ConfigError: the folder does not exist.
        RunError: it has no metrics, only the start row, or no start row.
    """
    if not path.is_dir():
        siblings = [p.parent for p in path.parent.glob(f"*/{FILE_NAME}") if not p.parent.is_symlink()]
        known = runs_hint(siblings) or "train one first, or check the path"
        raise ConfigError(f"no run at {path}{nearest(str(path), [str(p) for p in siblings])}", known)
    rows = read_rows(path / FILE_NAME)
    start = next((row for row in rows if "misc/algorithm" in row and "misc/task_id" in row), None)
    if rows and start is None:
        raise RunError(f"{path / FILE_NAME} has no start row", "plot run folders as the training scripts write them")
    reports = [row for row in rows if row.get("category") != "MISC" and "timesteps" in row]
    series = _series(reports)
    if start is None or not series:
        raise RunError(
            f"run {path} has no metrics yet",
            "wait for its first report, some seconds after compiling; if it has ended, leave it out",
        )
    algorithm, task_id = str(start["misc/algorithm"]), str(start["misc/task_id"])
    devices = dict.fromkeys(str(row["misc/device"]) for row in rows if "misc/device" in row)
    device, num_seeds = " and ".join(devices), int(start.get("misc/num_seeds", 1))
    leaves, hashes = read_experiment_leaves(path), _level_hashes(reports)
    return RunRecord(path, algorithm, task_id, leaves, series, hashes, device, num_seeds)


def _series(rows: Iterable[dict[str, Any]]) -> dict[str, dict[int, Series]]:
    """{key: {seed: series}} of every number. Nulls are skipped; of two rows at one step the later one counts."""
    points: dict[str, dict[int, dict[int, tuple[float, float]]]] = {}
    for row in rows:
        seconds = float(row.get("elapsed_seconds", np.nan))
        for key, value in row.items():
            if "/" in key and isinstance(value, (int, float)):
                by_seed = points.setdefault(key, {})
                by_seed.setdefault(row.get("seed") or 0, {})[row["timesteps"]] = float(value), seconds
    return {key: {seed: _in_order(found) for seed, found in by_seed.items()} for key, by_seed in points.items()}


def _in_order(points: dict[int, tuple[float, float]]) -> Series:
    table = np.array([(timesteps, *point) for timesteps, point in sorted(points.items())], np.float64)
    return Series(*table.T)


def _level_hashes(rows: Iterable[dict[str, Any]]) -> dict[str, tuple[str | None, ...]]:
    found: dict[str, dict[str | None, None]] = {}
    for row in rows:
        for prefix in {key.partition("/")[0] for key in row if "/" in key}:
            found.setdefault(prefix, {})[row.get(f"{prefix}/level_hash")] = None
    return {prefix: tuple(hashes) for prefix, hashes in found.items()}


def read_experiment_leaves(path: Path) -> dict[str, Any]:
    """`experiment_leaves` of a run's config.yaml; empty if there is no such file."""
    file = path / "config.yaml"
    if not file.is_file():
        return {}
    sections = read_sections(file)
    if sections is None:
        remedy = missing_config_hint(path)
        raise RunError(f"{file} is not readable YAML", f"{remedy}, or leave this run out" if remedy else "leave it out")
    return experiment_leaves(sections)


def experiment_leaves(sections: Mapping[str, Any]) -> dict[str, Any]:
    """{leaf: value} of a configuration, only leaves that can change learning or scores, without the seed.

    Two runs belong to one experiment if these are equal. A leaf that this version does not know counts.
    """
    leaves = [leaf for values in sections.values() if isinstance(values, dict) for leaf in values.items()]
    matters = Role.LEARNING | Role.TASK
    return {name: value for name, value in leaves if LEAF_ROLES.get(name, Role.LEARNING) & matters}
