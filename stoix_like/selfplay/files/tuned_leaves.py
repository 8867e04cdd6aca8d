"""Leaves that were tuned while a pipeline ran, such as learning rates. Imports no JAX.

Each result stands in `plateau/<iteration>/result.json`. The newest one that has leaves holds for the iterations that
begin after it. A leaf of it holds only while the configuration has the value that it had when the leaf was tuned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.config.checks.access import check_leaf, get_leaf, leaf_sections, section_types
from stoix_like.config.checks.values import nearest
from stoix_like.config.layers import config_from_layers
from stoix_like.config.sections.roles import Role, leaf_roles
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.selfplay.files.folders import Layout

RESULT = "result.json"


class TuningResult(NamedTuple):
    """What came of tuning.

    Attributes:
        leaves: {leaf: value} that hold from now on, those of earlier results included; empty if nothing was found.
        configured: {leaf: value} that the configuration has for them.
        error: what was wrong, if it has failed.
        time: when it ended, in seconds since 1970.
    """

    leaves: dict[str, Any]
    configured: dict[str, Any]
    error: str | None
    time: float


def read_result(layout: Layout, iteration: int) -> TuningResult | None:
    """The result of the tuning after an iteration; None if there is none. Raises CheckpointError if it is damaged."""
    path = layout.plateau(iteration) / RESULT
    if not path.is_file():
        return None
    try:
        result = TuningResult(**json.loads(path.read_bytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise _unreadable(path) from error
    if not (isinstance(result.leaves, dict) and isinstance(result.configured, dict)):
        raise _unreadable(path)
    return result


def _unreadable(path: Path) -> CheckpointError:
    return CheckpointError(f"{path} cannot be read", "remove it, and leaves are tuned again")


def write_result(layout: Layout, iteration: int, result: TuningResult) -> None:
    """Writes a result, whole or not at all."""
    atomic_write_json(layout.plateau(iteration) / RESULT, result._asdict())


def newest_found(layout: Layout) -> tuple[int, TuningResult] | None:
    """(the iteration after which it was tuned, the result) of the newest one that has leaves; None if there is none.

    Raises CheckpointError if it, or a newer one, is damaged.
    """
    for iteration in reversed(layout.plateaus()):
        result = read_result(layout, iteration)
        if result is not None and result.leaves:
            return iteration, result
    return None


def tuned_leaves(config: SelfPlayConfig, layout: Layout) -> dict[str, Any]:
    """{leaf: value} that hold for a configuration. Raises CheckpointError if they cannot be read."""
    if (found := newest_found(layout)) is None:
        return {}
    iteration, result = found
    leaves, before = result.leaves, result.configured
    try:
        held = {leaf: value for leaf, value in leaves.items() if get_leaf(config, leaf) == before[leaf]}
        with_leaves(config, held)
    except (ConfigError, KeyError) as error:
        path = layout.plateau(iteration) / RESULT
        raise CheckpointError(f"{path} has leaves that do not fit: {error}", "remove it") from error
    return held


def with_tuned_leaves(config: SelfPlayConfig, layout: Layout) -> SelfPlayConfig:
    """The configuration with the leaves that hold for it. Raises as `tuned_leaves`."""
    held = tuned_leaves(config, layout)
    return with_leaves(config, held) if held else config


def with_leaves(config: SelfPlayConfig, leaves: Mapping[str, Any]) -> SelfPlayConfig:
    """The configuration with other leaves.

    Raises ConfigError for values that are wrong, and for leaves that no function may set: those that cannot change
    while a pipeline runs, and those that change no learning.
    """
    homes, roles, sections = leaf_sections(SelfPlayConfig), leaf_roles(SelfPlayConfig), section_types(SelfPlayConfig)
    problems, values = list[str](), dict[str, Any]()
    for name, value in leaves.items():
        if name not in homes:
            problems.append(f"unknown leaf '{name}'{nearest(name, homes)}")
        elif roles[name] & Role.FIXED or not roles[name] & Role.LEARNING:
            problems.append(f"{homes[name]}.{name}: it cannot change while a pipeline runs, or changes no learning")
        else:
            values[name], problem = check_leaf(sections[homes[name]], name, value)
            problems += [f"{homes[name]}.{name}: {problem}"] if problem else []
    if problems:
        raise ConfigError(problems, "a function returns leaves such as {'actor_lr': 0.001}")
    changed: SelfPlayConfig = config_from_layers(config, {name: (value, "") for name, value in values.items()})
    return changed
