"""Learning curves from the metrics of finished or running runs: read, grouped, aligned and summarised. Draws nothing.

A curve stands for seeds of one experiment: runs are pooled only if algorithm, task and every leaf that can change
learning or its score are equal and no seed comes twice. Otherwise each gets a curve of its own, named by what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError, RunError
from stoix_like.evaluation import statistics
from stoix_like.runtime.loading.strict_yaml import read_sections
from stoix_like.runtime.runs.find import config_remedy, known_runs
from stoix_like.runtime.telemetry.jsonl import FILE_NAME, read_rows

_PREFIXES = ("evaluator", "actor", "trainer", "misc")  # where a bare name is looked for; the first found is quoted
_IGNORED_SECTIONS = ("logging", "checkpointing", "hardware", "evaluation")  # they change nothing that is learned ...
_KEPT_LEAVES = ("load_path", "level_set")  # ... but where it began and what it is scored on
_IGNORED_LEAVES = ("seed", "num_seeds", "total_timesteps")
_MOST_POINTS = 400  # of a drawn curve; more cannot be seen


class Series(NamedTuple):
    """One metric of one seed over environment steps of that seed, in order."""

    timesteps: NDArray[np.float64]  # [K]
    values: NDArray[np.float64]  # [K]
    seconds: NDArray[np.float64]  # [K] wall-clock of the run; NaN where a row has none


class Run(NamedTuple):
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


class Curve(NamedTuple):
    """One metric over the seeds of one experiment.

    Attributes:
        name: what the legend says, without n.
        task_id: the task, one panel each.
        key: the metric with its prefix.
        seeds: every seed's own series, in full.
        timesteps: [K] common to all seeds; empty if they share no range.
        iqm: point, low, high [K]; low and high are the 95 % bootstrap interval over seeds.
    """

    name: str
    task_id: str
    key: str
    seeds: list[Series]
    timesteps: NDArray[np.float64]
    iqm: statistics.Interval


def load_run(path: Path) -> Run:
    """A run folder, read. Works while the run goes on.

    Raises:
        ConfigError: no such folder.
        RunError: no metrics, none but the start, or metrics without their start row.
    """
    if not path.is_dir():
        siblings = [p.parent for p in path.parent.glob(f"*/{FILE_NAME}") if not p.parent.is_symlink()]
        known = known_runs(siblings) or "train one first, or check the path"
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
    return Run(path, algorithm, task_id, config_leaves(path), series, _level_hashes(told), *clock)


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
        remedy = config_remedy(path)
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


class Curves(NamedTuple):
    """Curves to quote, curves to show beside them, and the experiments that have no value of the metric."""

    quoted: list[Curve]
    beside: list[Curve]
    missing: list[str]


def metric_keys(runs: Sequence[Run], metric: str) -> list[str]:
    """Where a metric is looked for, the first first: a bare name with every prefix, a full key only as itself.

    Raises:
        ConfigError: no run has the metric; the message names the nearest one.
    """
    wanted = [metric] if "/" in metric else [f"{prefix}/{metric}" for prefix in _PREFIXES]
    if not any(key in run.series for run in runs for key in wanted):
        known = sorted({key for run in runs for key in run.series})
        bare = sorted({key.split("/", maxsplit=1)[1] for key in known})
        guess = nearest(metric, known if "/" in metric else bare)
        hint = f"metrics with values there: {', '.join(bare)}"
        if metric == "mean_return":
            raise ConfigError("no evaluation and no finished episode yet, so there is no mean_return to draw", hint)
        raise ConfigError(f"unknown metric '{metric}'{guess}", hint)
    return wanted


def make_curves(runs: Sequence[Run], metric: str) -> Curves:
    """The curves of a metric, one experiment each: evaluations are quoted, training episodes shown beside them.

    A bare name is looked for under evaluator/, actor/, trainer/ in this order, per experiment; a full key such as
    `evaluator_network/mean_return` means only itself. Seeds without a value yet are left out of n.

    Raises:
        ConfigError: no run has the metric; the message names the nearest one.
    """
    wanted = metric_keys(runs, metric)
    curves = Curves([], [], [])
    for name, members in experiments(runs):
        keys = [key for key in wanted if any(key in run.series for run in members)]
        if not keys:
            curves.missing.append(f"{name} · {members[0].task_id}")
        for key, place in zip(keys, (curves.quoted, curves.beside), strict=False):
            found = [by_seed[seed] for run in members if (by_seed := run.series.get(key)) for seed in sorted(by_seed)]
            place.append(make_curve(name, members[0].task_id, key, found))
    return curves


def make_curve(name: str, task_id: str, key: str, series: Sequence[Series]) -> Curve:
    """The curve of some seeds on the timesteps they share, by linear interpolation between a seed's own points.

    Nothing is extrapolated: the common range ends with the shortest seed.
    """
    grid = common_grid([one.timesteps for one in series])  # [K]
    if grid.size == 0:
        nothing = np.empty(0)
        return Curve(name, task_id, key, list(series), nothing, statistics.Interval(nothing, nothing, nothing))
    aligned = np.stack([np.interp(grid, one.timesteps, one.values) for one in series])  # [R, K]
    return Curve(name, task_id, key, list(series), grid, statistics.bootstrap_curve(aligned))


def common_grid(axes: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """[K] points of the range that all axes share, from its first to its last; empty if they share none.

    Args:
        axes: rising numbers, [K] each.
    """
    first, last = max(axis[0] for axis in axes), min(axis[-1] for axis in axes)
    union = np.unique(np.concatenate(axes))
    grid = union[(union >= first) & (union <= last)]  # [K]
    if grid.size > _MOST_POINTS:
        grid = grid[np.linspace(0, grid.size - 1, _MOST_POINTS).round().astype(int)]
    return grid


def experiments(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """[(name, runs to pool)] in the order given; the same folder given twice counts once."""
    unique = list({run.path.resolve(): run for run in runs}.values())
    groups: list[tuple[str, list[Run]]] = []
    for identity in dict.fromkeys((run.task_id, run.algorithm) for run in unique):
        family = [run for run in unique if (run.task_id, run.algorithm) == identity]
        folders = _folder_names(family)
        batches = split(family, lambda run: run.leaves)
        unequal = differing([batch[0].leaves for batch in batches])
        for batch in batches:
            name = f"{identity[1]} · {_setting(batch[0], unequal, folders)}" if len(batches) > 1 else identity[1]
            if sum(len(run.seeds) for run in batch) == len(set().union(*(run.seeds for run in batch))):
                groups.append((name, batch))
            else:  # one seed twice is no second sample: another version of the code, or a repetition
                groups.extend((f"{identity[1]} · {folders[run.path]}", [run]) for run in batch)
    return groups


def split(runs: Sequence[Run], what: Callable[[Run], Any]) -> list[list[Run]]:
    """The runs in batches for which `what` is equal, in the order given."""
    batches: list[list[Run]] = []
    for run in runs:
        home = next((batch for batch in batches if what(batch[0]) == what(run)), None)
        if home is None:
            batches.append([run])
        else:
            home.append(run)
    return batches


def differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    """The names whose values are not the same in all settings."""
    names = dict.fromkeys(name for leaves in settings for name in leaves)
    return [name for name in names if any(leaves.get(name) != settings[0].get(name) for leaves in settings)]


def _folder_names(runs: Sequence[Run]) -> dict[Path, str]:
    """{path: what a run is called among these}: its folder's name, with as many of those above as it takes, such as
    `first/trial-0000` beside `second/trial-0000`.
    """
    names = {}
    for run in runs:
        others = [other.path.resolve().parts for other in runs if other is not run]
        parts = run.path.resolve().parts
        needed = next(n for n in range(1, len(parts) + 1) if all(other[-n:] != parts[-n:] for other in others))
        names[run.path] = "/".join(parts[-needed:])
    return names


def _setting(run: Run, unequal: Sequence[str], folders: Mapping[Path, str]) -> str:
    """What sets a run apart: up to two leaves by value, otherwise its name."""
    if not run.leaves or len(unequal) > 2:
        return folders[run.path]
    return ", ".join(f"{name} {run.leaves.get(name)}" for name in unequal)
