"""Writes the tables of results in docs/spa.md from the records of docs/benchmarks/spa/WORLD/ARM_SEED.json.

`python docs/tools/spa_tables.py` rewrites the page in a clone; a test fails if it is out of date. A record is the
`results.json` that `spa.py run` writes. The page marks the tables of a world, with the figures of `spa_figures.py` if
arms are compared, and the first episodes of a record:

    <!-- results of spa: frozen_lake -->
    <!-- end of results of spa: frozen_lake -->

    <!-- episodes of spa: frozen_lake/spa_0 1 -->
    <!-- end of episodes of spa: frozen_lake/spa_0 1 -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from config_table import replace_part

from stoix_like.evaluation.statistics import Interval, mean_interval
from stoix_like.runtime.console.text import DASH, interval_text, number_text
from stoix_like.spa.record import read_record
from stoix_like.spa.report import PLAY, POINT_NAMES, WORLD_MODEL, Group, Record, groups_of, interval_of

DOCUMENT = Path(__file__).parents[1] / "spa.md"
FOLDER = DOCUMENT.parent / "benchmarks" / "spa"
BEGIN, END = "<!-- results of spa: {} -->", "<!-- end of results of spa: {} -->"
BEGIN_EPISODES, END_EPISODES = "<!-- episodes of spa: {} -->", "<!-- end of episodes of spa: {} -->"
_MARK = re.compile(BEGIN.format(r"(\w+)"))
_MARK_OF_EPISODES = re.compile(BEGIN_EPISODES.format(r"(\S+ \d+)"))
FIGURES = {  # {end of the name of a file: what it shows}
    "curves": "Success over episodes of PPO, tokens and seconds",
    "pass_at_k": "Pass@k of the pretrained model, the fine-tuned one, and after PPO",
}
_UPDATES = (10, 20, 40, 60, None)  # of PPO, at which the presets evaluate; None = the last
_COSTS = ("tokens", "seconds")
_KNOWLEDGE = (
    *("observation_exact", "next_state_exact", "next_state_given_answer", "answer_consistency", "forced_success"),
    "well_formed",
)


def with_tables(text: str, folder: Path = FOLDER) -> str:
    """The page with the tables of every marked world, and all marked episodes."""
    for world in _MARK.findall(text):
        groups = read_groups(folder / world)
        part = "\n\n".join([*_tables(groups), *(_figures(world) if len(groups) > 1 else [])])
        text = replace_part(text, DOCUMENT, BEGIN.format(world), END.format(world), part)
    for mark in _MARK_OF_EPISODES.findall(text):
        name, number = mark.split()
        part = _episodes(read_record(folder / f"{name}.json"), int(number))
        text = replace_part(text, DOCUMENT, BEGIN_EPISODES.format(mark), END_EPISODES.format(mark), part)
    return text


def _figures(world: str) -> Iterator[str]:
    for name, text in FIGURES.items():
        yield f"![{text}](benchmarks/spa/{world}_{name}.png)"


def _episodes(record: Record, number: int) -> str:
    """The first episodes that a record shows."""
    parts = re.split(r"(?m)^(?=── episode )", str(record["example"]))
    return f"```text\n{''.join(parts[1 : 1 + number]).strip()}\n```"


def read_groups(folder: Path) -> list[Group]:
    """The records of a folder by arm, SPA first."""
    groups = groups_of([read_record(file) for file in sorted(folder.glob("*.json"))])
    return sorted(groups, key=lambda group: (group.arm != "spa", group.arm))


def _tables(groups: Sequence[Group]) -> Iterator[str]:
    (every,) = {group.records[0]["settings"]["ppo_updates"] for group in groups}  # the columns are of one number
    moments = [f"{number or every} updates" for number in _UPDATES]
    yield _table(("arm", "seeds", *moments, "final levels", "Pass@8 before", "and after"), map(_success, groups))
    if any(_pairs(groups[0], other) for other in groups[1:]):
        yield _table(("difference", "seeds", *moments, "final levels"), _differences(groups))
    if known := list(_knowledge(groups)):
        yield _table(("arm", "at", *((WORLD_MODEL | PLAY)[name] for name in _KNOWLEDGE)), known)
    yield _table(("arm", *(f"{name} {when} PPO" for when in ("before", "of") for name in _COSTS)), map(_cost, groups))


def _success(group: Group) -> tuple[str, ...]:
    curve = [_text(_over_seeds(group.records, _success_at(number))) for number in _UPDATES]
    first = "sft" if "sft" in group.records[0]["points"] else "base"
    points = (("ppo", "success"), (first, "pass_at_8"), ("ppo", "pass_at_8"))
    return group.arm, str(len(group.records)), *curve, *(_text(interval_of(group, *point)) for point in points)


def _success_at(updates: int | None) -> Callable[[Record], float]:
    """Reads the success of the levels of training after so many updates, or after the last."""

    def read(record: Record) -> float:
        curve: Any = record["curve"]
        episodes = np.array(curve.get("episodes", []))
        if not len(episodes):
            return np.nan
        share = 1.0 if updates is None else updates / record["settings"]["ppo_updates"]
        return float(np.interp(share * episodes[-1], episodes, curve["success"]))

    return read


def _final(record: Record) -> float:
    return float(record["points"]["ppo"]["success"][0])


def _over_seeds(records: Sequence[Record], read: Callable[[Record], float]) -> Interval | None:
    values = [read(record) for record in records]
    return None if np.isnan(values).any() else mean_interval(values)


def _pairs(one: Group, other: Group) -> list[tuple[Record, Record]]:
    """The records of two arms that share a seed, and so the pretrained model."""
    by_seed = {record["seed"]: record for record in other.records}
    return [(record, by_seed[record["seed"]]) for record in one.records if record["seed"] in by_seed]


def _differences(groups: Sequence[Group]) -> Iterator[tuple[str, ...]]:
    """The first arm less each other one, seed by seed."""
    for other in groups[1:]:
        if pairs := _pairs(groups[0], other):
            reads = [*map(_success_at, _UPDATES), _final]
            found = [[read(one) - read(two) for one, two in pairs] for read in reads]
            cells = [None if np.isnan(values).any() else mean_interval(values) for values in found]
            yield f"{groups[0].arm} - {other.arm}", str(len(pairs)), *map(_text, cells)


def _knowledge(groups: Sequence[Group]) -> Iterator[tuple[str, ...]]:
    for group in groups:
        has_states = "sft" in group.records[0]["points"]  # answers tell them
        for point, name in POINT_NAMES.items() if has_states else ():
            found = [interval_of(group, point, measure) for measure in _KNOWLEDGE]
            if any(one is not None for one in found):
                yield group.arm, name, *(DASH if one is None else f"{one.point:.3f}" for one in found)


def _cost(group: Group) -> tuple[str, ...]:
    """Means over the seeds."""
    before = [[record["before_ppo"].get(name, np.nan) for record in group.records] for name in _COSTS]
    learned = [[record["curve"].get(name, [np.nan])[-1] for record in group.records] for name in _COSTS]
    return group.arm, *(number_text(round(mean) if np.isfinite(mean := np.mean(x)) else mean) for x in before + learned)


def _text(interval: Interval | None) -> str:
    if interval is None:
        return DASH
    bounds = "" if np.isnan(interval.low) else f" {interval_text(interval.low, interval.high, '.2f')}"
    return f"{interval.point:.3f}{bounds}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
