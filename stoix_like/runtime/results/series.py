"""The metrics of a finished or running run, read back: one series per metric and seed, and the leaves that matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.loading.strict_yaml import read_sections
from stoix_like.runtime.runs.find import missing_config_hint, runs_hint
from stoix_like.runtime.telemetry.jsonl import FILE_NAME, read_rows

_IGNORED_SECTIONS = ("logging", "checkpointing", "hardware", "evaluation")  # they change nothing that is learned ...

_KEPT_LEAVES = ("load_path", "level_set")  # ... but where it began and what it is scored on

_IGNORED_LEAVES = ("seed", "num_seeds", "total_timesteps")


class Series(NamedTuple):
    """One metric of one seed over environment steps of that seed, in order."""

    timesteps: NDArray[np.float64]  # [K]
    values: NDArray[np.float64]  # [K]
    seconds: NDArray[np.float64]  # [K] wall-clock of the run; NaN where a row has none


class RunRecord(NamedTuple):
    """What one run folder says of itself: series by metric key and seed.

    Attributes:
        level_hashes: {prefix such as `evaluator`: what it was scored on, in order}; None stands for fresh levels.
        device: where it ran; of a run that was continued elsewhere all of them.
        num_seeds: trained side by side, in the same wall-clock time.
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
    """A run folder, read. Works while the run goes on.

    Raises:
        ConfigError: no such folder.
        RunError: no metrics, none but the start, or metrics without their start row.
    """
    if not path.is_dir():
        siblings = [p.parent for p in path.parent.glob(f"*/{FILE_NAME}") if not p.parent.is_symlink()]
        known = runs_hint(siblings) or "train one first, or check the path"
        raise ConfigError(f"no run at {path}{nearest(str(path), [str(p) for p in siblings])}", known)
    rows = read_rows(path / FILE_NAME)
    start = next((row for row in rows if "misc/algorithm" in row and "misc/task_id" in row), None)
    if rows and start is None:
        raise RunError(f"{path / FILE_NAME} has no start row", "plot run folders as the training scripts write them")
    told = [row for row in rows if row.get("category") != "MISC" and "timesteps" in row]
    series = _series(told)
    if start is None or not series:
        raise RunError(
            f"run {path} has no metrics yet",
            "wait for its first report, some seconds after compiling; if it has ended, leave it out",
        )
    algorithm, task_id = str(start["misc/algorithm"]), str(start["misc/task_id"])
    devices = dict.fromkeys(str(row["misc/device"]) for row in rows if "misc/device" in row)
    clock = " and ".join(devices), int(start.get("misc/num_seeds", 1))
    return RunRecord(path, algorithm, task_id, config_leaves(path), series, _level_hashes(told), *clock)


def _series(rows: Iterable[dict[str, Any]]) -> dict[str, dict[int, Series]]:
    """{key: {seed: series}} of every number; a null is no point, and of two rows at one step the later holds."""
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


def config_leaves(path: Path) -> dict[str, Any]:
    """The leaves of a run's config.yaml that can change learning or its score, without the seed; empty if there is no
    such file. Runs are seeds of one experiment if these are equal."""
    file = path / "config.yaml"
    if not file.is_file():
        return {}
    sections = read_sections(file)
    if sections is None:
        remedy = missing_config_hint(path)
        raise RunError(f"{file} is not readable YAML", f"{remedy}, or leave this run out" if remedy else "leave it out")
    return leaves_that_matter(sections)


def leaves_that_matter(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a configuration by sections that can change learning or its score, without the seed."""
    leaves = [
        (name, value, section in _IGNORED_SECTIONS)
        for section, values in sections.items()
        if isinstance(values, dict)
        for name, value in values.items()
    ]
    ignored = {name for name, _, aside in leaves if (aside and name not in _KEPT_LEAVES) or name in _IGNORED_LEAVES}
    return {name: value for name, value, _ in leaves if name not in ignored}
