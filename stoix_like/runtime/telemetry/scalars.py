"""Rows as flat numbers and texts for dashboards: one value per key and step.

With several seeds, a key holds the value over all seeds (`summary.over_seeds`), and `<key>/seed_<n>` that of one seed.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stoix_like.config.dicts import config_to_dict
from stoix_like.config.sections import RunConfig
from stoix_like.runtime.telemetry.sink import Row
from stoix_like.runtime.telemetry.summary import over_seeds

#: Names of the step, in rows of training and of pipelines around it. The first one with a value is used.
STEP_FIELDS = ("timesteps", "policy_version", "step", "global_step", "update")


class Report(NamedTuple):
    """The values of one step.

    Attributes:
        step: environment steps of one seed, or another of STEP_FIELDS.
        numbers: {key: finite value}.
        texts: {key: value}, such as the hash of a level set.
    """

    step: int
    numbers: dict[str, float]
    texts: dict[str, str]


def reports(rows: Sequence[Row]) -> Iterator[Report]:
    """The rows of one report grouped by step, in order. Values that are not finite are left out."""
    for step, group in itertools.groupby(rows, lambda row: step_of(row._asdict())):
        yield _report(step, list(group))


def step_of(fields: Mapping[str, Any]) -> int:
    """The first of STEP_FIELDS that has a value. Raises ValueError if none has one."""
    for name in STEP_FIELDS:
        if fields.get(name) is not None:
            return int(fields[name])
    raise ValueError(f"none of {', '.join(STEP_FIELDS)} in a row with {', '.join(fields)}")


def _report(step: int, rows: Sequence[Row]) -> Report:
    texts: dict[str, str] = {}
    seed_values: dict[str, dict[int | None, float]] = {}
    for row in rows:
        for key, value in row.values.items():
            if isinstance(value, str):
                texts[key] = value
            elif math.isfinite(value):
                seed_values.setdefault(key, {})[row.seed] = float(value)
    has_seeds = len({row.seed for row in rows} - {None}) > 1
    numbers: dict[str, float] = {}
    for key, by_seed in seed_values.items():
        numbers[key] = over_seeds(key.rpartition("/")[2], by_seed.values())
        if has_seeds and None not in by_seed:
            numbers |= {f"{key}/seed_{seed}": value for seed, value in by_seed.items()}
    return Report(step, numbers, texts)


def flat_config(config: RunConfig) -> dict[str, str]:
    """{leaf: value as text}. Leaf names are unique across sections; lists and dictionaries become JSON."""
    return {
        name: json.dumps(value) if isinstance(value, (dict, list, tuple)) else str(value)
        for leaves in config_to_dict(config).values()
        for name, value in leaves.items()
    }
