"""Access to the leaves of a configuration by their names, and the check of a single one.

Works on any frozen dataclass of section dataclasses (see `config/sections/runs.py`). Imports only the standard library.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Any

from stoix_like.config.checks.board_games import canonical_name
from stoix_like.config.checks.retired import RETIRED_LEAVES
from stoix_like.config.checks.values import choices, coerce, nearest, range_problem
from stoix_like.errors import ConfigError


@functools.cache
def section_types(config_type: type) -> dict[str, type]:
    """The sections of a configuration type, in order, as {name: dataclass}."""
    hints = typing.get_type_hints(config_type)
    return {field.name: hints[field.name] for field in dataclasses.fields(config_type)}


@functools.cache
def leaf_types(section_type: type) -> dict[str, Any]:
    """The annotation of each leaf of a section, as {name: type}."""
    return typing.get_type_hints(section_type)


@functools.cache
def former_names(section_type: type) -> dict[str, str]:
    """{former name: leaf} of the leaves of a section that were renamed."""
    found = {field.name: field.metadata.get("former") for field in dataclasses.fields(section_type)}
    return {former: name for name, former in found.items() if former is not None}


@functools.cache
def leaf_sections(config_type: type) -> dict[str, str]:
    """The section of each leaf, as {leaf: section}. Raises ConfigError if two sections have a leaf of one name."""
    homes: dict[str, str] = {}
    for section, kind in section_types(config_type).items():
        for leaf in leaf_types(kind):
            if homes.setdefault(leaf, section) != section:
                what = f"{config_type.__name__}: {homes[leaf]} and {section} both have a leaf '{leaf}'"
                raise ConfigError(what, "flags name a leaf without its section: give one of them another name")
    return homes


def get_leaf(config: Any, name: str) -> Any:
    """The value of one leaf, by its unique name."""
    return getattr(getattr(config, leaf_sections(config.__class__)[name]), name)


def replace_leaves(config: Any, leaves: Mapping[str, Any]) -> Any:
    """The configuration with leaves replaced by name, without checking values. Raises ConfigError for unknown names."""
    homes = leaf_sections(config.__class__)
    unknown = [f"unknown leaf '{name}'{_instead(name, homes)}" for name in leaves if name not in homes]
    if unknown:
        raise ConfigError(unknown, "docs/configuration.md lists every leaf")
    grouped: dict[str, dict[str, Any]] = {}
    for name, value in leaves.items():
        grouped.setdefault(homes[name], {})[name] = value
    sections = {name: dataclasses.replace(getattr(config, name), **values) for name, values in grouped.items()}
    return dataclasses.replace(config, **sections)


def _instead(name: str, homes: Mapping[str, str]) -> str:
    return f"; {RETIRED_LEAVES[name].reason}" if name in RETIRED_LEAVES else nearest(name, homes)


def check_leaf(section_type: type, name: str, value: Any) -> tuple[Any, str | None]:
    """(the coerced value, or a problem) for one leaf of one section."""
    if name == "standardize_advantages" and isinstance(value, bool):
        value = "batch" if value else "none"
    if name == "task_id" and isinstance(value, str):
        value = canonical_name(value)
    annotation = leaf_types(section_type)[name]
    metadata = next(f.metadata for f in dataclasses.fields(section_type) if f.name == name)
    try:
        value = coerce(value, annotation)
    except TypeError as problem:
        shown = "null" if value is None else f"{value!r} ({type(value).__name__})"
        suggestion = nearest(value, choices(annotation)) if isinstance(value, str) else ""
        return value, f"{problem}, got {shown}{suggestion}"
    reason = range_problem(value, metadata)
    return value, f"{reason}, got {value!r}" if reason else None
