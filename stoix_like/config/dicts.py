"""Conversion of a configuration to plain dictionaries, as checkpoints and sinks store it, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stoix_like.config.checks.access import former_names, leaf_types, section_types
from stoix_like.config.checks.retired import RETIRED_LEAVES, meant_otherwise, retired_note
from stoix_like.config.layers import resolve
from stoix_like.errors import ConfigError


def config_to_dict(config: Any) -> dict[str, dict[str, Any]]:
    """{section: {leaf: value}} of plain values, as in the meta.json of a checkpoint."""
    return dataclasses.asdict(config)


def config_from_dict(config_type: type, mapping: Mapping[str, Mapping[str, Any]]) -> Any:
    """The configuration of a dictionary from `config_to_dict`. A missing leaf keeps its default.

    Raises ConfigError if a section or leaf is unknown, if a value does not fit, or if it asks for what is gone.
    """
    gone = [
        f"the run was stored with {name} = {value}; {RETIRED_LEAVES[name].reason}"
        for name, value in meant_otherwise(mapping).items()
    ]
    if gone:
        raise ConfigError(gone, "use the version of stoix_like that stored it (versions.json), or train again")
    kinds = section_types(config_type)
    problems: list[str] = []
    values: dict[str, Any] = {}
    for section, leaves in mapping.items():
        if section not in kinds or not isinstance(leaves, Mapping):
            problems.append(f"unknown section '{section}'")
            continue
        former = former_names(kinds[section])
        named = {former.get(name, name): value for name, value in leaves.items() if not retired_note(section, name)}
        problems += [f"unknown key '{section}.{name}'" for name in named if name not in leaf_types(kinds[section])]
        values |= named
    if problems:
        raise ConfigError(problems, "the configuration was stored by another version of stoix_like")
    return resolve(config_type(), values)
