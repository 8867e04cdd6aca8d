"""Reports as flat numbers for dashboards: one value per key and step.

With several seeds, a key holds the value over all seeds (`over_seeds`), and `<key>/seed_<n>` that of one seed.
"""

from __future__ import annotations

import json
import math

from stoix_like.config.dicts import config_to_dict
from stoix_like.config.sections.runs import RunConfig
from stoix_like.runtime.telemetry.sink import Report


def numbers(report: Report) -> dict[str, float]:
    """{key: value} of the values that are finite: one over seeds, and those of several seeds."""
    found = {key: float(value) for key, value in report.over_seeds().items() if math.isfinite(value)}
    if len(report.seeds) > 1:
        for key, values in report.values.items():
            by_seed = zip(report.seeds, values, strict=True)
            found |= {f"{key}/seed_{seed}": float(value) for seed, value in by_seed if math.isfinite(value)}
    return found


def flat_config(config: RunConfig) -> dict[str, str]:
    """{leaf: value as text}. Leaf names are unique across sections; lists and dictionaries become JSON."""
    return {
        name: json.dumps(value) if isinstance(value, (dict, list, tuple)) else str(value)
        for leaves in config_to_dict(config).values()
        for name, value in leaves.items()
    }
