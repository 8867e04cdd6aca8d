"""Rows as the flat numbers and texts that dashboards take: one value per key and step.

Of several seeds a key holds the value over all of them (`summary.over_seeds`), and `<key>/seed_<n>` that of each.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stoix_like.runtime.telemetry.sink import Row
from stoix_like.runtime.telemetry.summary import over_seeds

#: What a step is called, in rows of training and of pipelines around it; the first that is there counts.
STEP_FIELDS = ("timesteps", "policy_version", "step", "global_step", "update")


class Report(NamedTuple):
    """What is known of one step.

    Attributes:
        step: environment steps of one seed, or what stands for them.
        numbers: {key: finite value}.
        texts: {key: value}, such as the hash of a level set.
    """

    step: int
    numbers: dict[str, float]
    texts: dict[str, str]


def reports(rows: Sequence[Row]) -> Iterator[Report]:
    """The rows of one report by step, in their order; values that are not finite are left out."""
    for step, group in itertools.groupby(rows, lambda row: step_of(row._asdict())):
        yield _report(step, list(group))


def step_of(fields: Mapping[str, Any]) -> int:
    """The first of STEP_FIELDS that has a value.

    Raises:
        ValueError: none has.
    """
    for name in STEP_FIELDS:
        if fields.get(name) is not None:
            return int(fields[name])
    raise ValueError(f"none of {', '.join(STEP_FIELDS)} in a row with {', '.join(fields)}")


def _report(step: int, rows: Sequence[Row]) -> Report:
    texts: dict[str, str] = {}
    found: dict[str, dict[int | None, float]] = {}
    for row in rows:
        for key, value in row.values.items():
            if isinstance(value, str):
                texts[key] = value
            elif math.isfinite(value):
                found.setdefault(key, {})[row.seed] = float(value)
    has_seeds = len({row.seed for row in rows} - {None}) > 1
    numbers: dict[str, float] = {}
    for key, by_seed in found.items():
        numbers[key] = over_seeds(key.rpartition("/")[2], by_seed.values())
        if has_seeds and None not in by_seed:
            numbers |= {f"{key}/seed_{seed}": value for seed, value in by_seed.items()}
    return Report(step, numbers, texts)


def flat_config(config: Mapping[str, Any]) -> dict[str, str]:
    """{leaf: value as text} of a configuration by sections; leaf names are unique. Lists and dictionaries as JSON."""
    return {
        name: json.dumps(value) if isinstance(value, (dict, list, tuple)) else str(value)
        for leaves in config.values()
        for name, value in leaves.items()
    }
