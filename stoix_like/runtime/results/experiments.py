"""Groups runs into experiments: runs are pooled if everything that can change learning or scores is equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.results.series import RunRecord

T = TypeVar("T")


def group_experiments(runs: Sequence[RunRecord]) -> list[tuple[str, list[RunRecord]]]:
    """[(experiment name, its runs)] in the order of the runs. A folder that is passed twice counts once."""
    unique = list({run.path.resolve(): run for run in runs}.values())
    groups: list[tuple[str, list[RunRecord]]] = []
    for family in split_by(unique, lambda run: (run.task_id, run.algorithm)):
        title = algorithm_title(family[0].algorithm)
        folders = _folder_names(family)
        batches = split_by(family, lambda run: run.leaves)
        unequal = differing_leaves([batch[0].leaves for batch in batches])
        for batch in batches:
            name = f"{title} · {_setting(batch[0], unequal, folders)}" if len(batches) > 1 else title
            if sum(len(run.seeds) for run in batch) == len(set().union(*(run.seeds for run in batch))):
                groups.append((name, batch))
            else:  # a seed occurs twice, which is not a second sample: each run is an experiment of its own
                groups.extend((f"{title} · {folders[run.path]}", [run]) for run in batch)
    return groups


def split_by(runs: Sequence[T], property_of: Callable[[T], Any]) -> list[list[T]]:
    """The runs in batches with equal `property_of`, in the order of the runs."""
    batches: list[list[T]] = []
    for run in runs:
        batch = next((batch for batch in batches if property_of(batch[0]) == property_of(run)), None)
        if batch is None:
            batches.append(batch := [])
        batch.append(run)
    return batches


def differing_leaves(settings: Sequence[dict[str, Any]]) -> list[str]:
    """The names whose values are not equal in all settings."""
    names = dict.fromkeys(name for leaves in settings for name in leaves)
    return [name for name in names if any(leaves.get(name) != settings[0].get(name) for leaves in settings)]


def _folder_names(runs: Sequence[RunRecord]) -> dict[Path, str]:
    """{path: shortest name that is unique among the runs}: `trial-0000`, or `first/trial-0000` if there are two."""
    names = {}
    for run in runs:
        others = [other.path.resolve().parts for other in runs if other is not run]
        parts = run.path.resolve().parts
        needed = next(n for n in range(1, len(parts) + 1) if all(other[-n:] != parts[-n:] for other in others))
        names[run.path] = "/".join(parts[-needed:])
    return names


def _setting(run: RunRecord, unequal: Sequence[str], folders: Mapping[Path, str]) -> str:
    """How a run differs from the others: up to two leaves with their values, otherwise the run's name."""
    if not run.leaves or len(unequal) > 2:
        return folders[run.path]
    return ", ".join(f"{name} {run.leaves.get(name)}" for name in unequal)
