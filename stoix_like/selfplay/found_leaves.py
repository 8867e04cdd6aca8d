"""Leaves that were found for a pipeline while it ran, such as better learning rates. Imports no JAX.

Each result stands in `plateau/<iteration>/result.json`. The newest that has leaves holds for the iterations which begin
after it, as long as the configuration says what it said when they were found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from stoix_like.config.checks import check_leaf, get_leaf, leaf_sections, section_types
from stoix_like.config.layers import config_from_layers
from stoix_like.config.roles import Role, leaf_roles
from stoix_like.config.selfplay_section import SelfPlayConfig
from stoix_like.config.values import nearest
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.selfplay.folders import Layout

RESULT = "result.json"


class FoundLeaves(NamedTuple):
    """What came of a search.

    Attributes:
        leaves: {leaf: value}; empty if nothing better was found.
        configured: {leaf: value} that the configuration had for them.
        error: what was wrong, if the search has failed.
        time: when it ended, in seconds since 1970.
    """

    leaves: dict[str, Any]
    configured: dict[str, Any]
    error: str | None
    time: float


def read_result(layout: Layout, iteration: int) -> FoundLeaves | None:
    """The result of the search after an iteration; None if there is none. Raises CheckpointError if it is damaged."""
    path = layout.plateau(iteration) / RESULT
    if not path.is_file():
        return None
    try:
        return FoundLeaves(**json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read", "remove it, and leaves are searched again") from error


def write_result(layout: Layout, iteration: int, result: FoundLeaves) -> None:
    """Writes a result, whole or not at all."""
    atomic_write_json(layout.plateau(iteration) / RESULT, result._asdict())


def with_found_leaves(config: SelfPlayConfig, layout: Layout) -> SelfPlayConfig:
    """The configuration with the leaves that were found last. Raises CheckpointError if they cannot be read."""
    for iteration in reversed(layout.plateaus()):
        result = read_result(layout, iteration)
        if result is None or not result.leaves:
            continue
        try:
            changed = any(get_leaf(config, leaf) != value for leaf, value in result.configured.items())
            return config if changed else with_leaves(config, result.leaves)
        except (ConfigError, KeyError) as error:
            path = layout.plateau(iteration) / RESULT
            raise CheckpointError(f"{path} has leaves that do not fit: {error}", "remove it") from error
    return config


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
