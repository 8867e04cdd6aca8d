"""Leaves that are gone, and what configurations that were stored with them mean today. Only the standard library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Retired(NamedTuple):
    """A leaf that is gone."""

    section: str
    now: Any  # the value that holds for all runs of today
    tasks: str  # how the ids of the tasks begin that it concerned, "" all; for others every value meant the same
    reason: str


RETIRED_LEAVES = {
    "decay_entropy": Retired("optimization", False, "", "the entropy bonus is constant: a falling one gained nothing"),
    "relations": Retired("architecture", True, "BinPack", "the network of BinPack always compares lengths"),
}


def retired_note(section: str, leaf: str) -> str | None:
    """Why a leaf is not read any more; None if it is not one that is gone."""
    retired = RETIRED_LEAVES.get(leaf)
    return retired.reason if retired and retired.section == section else None


def meant_otherwise(sections: Mapping[str, Any]) -> dict[str, Any]:
    """{leaf: value} of the retired leaves of a stored configuration by which it means something that is gone."""
    task_id = str(_section(sections, "environment").get("task_id", ""))
    stored = {name: _section(sections, retired.section).get(name, retired.now) for name, retired in _retired(task_id)}
    return {name: value for name, value in stored.items() if value != RETIRED_LEAVES[name].now}


def _retired(task_id: str) -> list[tuple[str, Retired]]:
    return [(name, retired) for name, retired in RETIRED_LEAVES.items() if task_id.startswith(retired.tasks)]


def _section(sections: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = sections.get(name)
    return section if isinstance(section, Mapping) else {}
