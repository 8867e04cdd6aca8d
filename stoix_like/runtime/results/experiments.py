"""Runs grouped into experiments: pooled where all that can change learning or its score is equal, else named by what
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stoix_like.runtime.results.series import RunRecord


def group_experiments(runs: Sequence[RunRecord]) -> list[tuple[str, list[RunRecord]]]:
    """[(name, runs to pool)] in the order given; the same folder given twice counts once."""
    unique = list({run.path.resolve(): run for run in runs}.values())
    groups: list[tuple[str, list[RunRecord]]] = []
    for identity in dict.fromkeys((run.task_id, run.algorithm) for run in unique):
        family = [run for run in unique if (run.task_id, run.algorithm) == identity]
        folders = _folder_names(family)
        batches = split_by(family, lambda run: run.leaves)
        unequal = differing([batch[0].leaves for batch in batches])
        for batch in batches:
            name = f"{identity[1]} · {_setting(batch[0], unequal, folders)}" if len(batches) > 1 else identity[1]
            if sum(len(run.seeds) for run in batch) == len(set().union(*(run.seeds for run in batch))):
                groups.append((name, batch))
            else:  # one seed twice is no second sample: another version of the code, or a repetition
                groups.extend((f"{identity[1]} · {folders[run.path]}", [run]) for run in batch)
    return groups


def split_by(runs: Sequence[RunRecord], what: Callable[[RunRecord], Any]) -> list[list[RunRecord]]:
    """The runs in batches for which `what` is equal, in the order given."""
    batches: list[list[RunRecord]] = []
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


def _folder_names(runs: Sequence[RunRecord]) -> dict[Path, str]:
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


def _setting(run: RunRecord, unequal: Sequence[str], folders: Mapping[Path, str]) -> str:
    """What sets a run apart: up to two leaves by value, otherwise its name."""
    if not run.leaves or len(unequal) > 2:
        return folders[run.path]
    return ", ".join(f"{name} {run.leaves.get(name)}" for name in unequal)
