"""Reads configurations from YAML, as {leaf: (value, "file:line")}, and writes them as YAML.

`strict_yaml.py` parses YAML, `config/sections.py` defines the leaves, and `config/checks.py` checks their values.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import yaml

from stoix_like.config.checks import check_leaf, leaf_sections, leaf_types, section_types
from stoix_like.config.sections import ACCEPTED_LEAVES, CHECKED_ONLY_SECTIONS, RENAMED_LEAVES, SECTION_ALIASES
from stoix_like.config.values import allows, choices, nearest
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.text import shown_path
from stoix_like.runtime.loading.strict_yaml import (
    TAG,
    Loader,
    YamlFile,
    compose,
    construct,
    entries,
    problem_in,
    root_node,
)

Layer = dict[str, tuple[Any, str]]  # {leaf: (value, "file:line" or flag)}


def _value(node: Any, annotation: Any) -> Any:
    """The value of a leaf from a node.

    A text leaf takes an unquoted scalar as written. `none` means null if the leaf allows null.
    """
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        if node.value.lower() == "none" and allows(annotation, type(None)):
            return None
        if allows(annotation, str) and node.tag != TAG + "null":
            return node.value
    return construct(node)


@dataclasses.dataclass
class _ConfigFile(YamlFile):
    """A configuration being read."""

    config_type: type = object
    layer: Layer = dataclasses.field(default_factory=dict)


def read_yaml(path: Path, config_type: type, text: str | None = None) -> tuple[Layer, list[str]]:
    """({leaf: (checked value, "file:line")}, problems) of a configuration file; `text` is its content if known."""
    file = _ConfigFile(shown_path(path), config_type=config_type)
    node = root_node(file, path, text)
    if isinstance(node, yaml.MappingNode):
        _read_sections(file, node)
    elif node is not None:
        file.problem(node.start_mark.line + 1, "a configuration is made of sections, such as 'environment:'")
    return file.layer, file.problems


def _read_sections(file: _ConfigFile, node: Any) -> None:
    kinds = section_types(file.config_type) | CHECKED_ONLY_SECTIONS.get(file.config_type, {})
    homes = _all_homes(file.config_type)
    seen: dict[str, tuple[str, int]] = {}
    for name, value, line in entries(file, node, ""):
        section = SECTION_ALIASES.get(name, name)
        if section in seen:
            other, first = seen[section]
            file.problem(line, f"'{name}' and '{other}' (line {first}) are the same section; keep one of them")
        elif section in kinds:
            seen[section] = (name, line)
            _read_section(file, section, kinds[section], value)
        elif name in homes:
            file.problem(line, f"unknown section '{name}'; it is a key of section '{homes[name]}'")
        else:
            file.problem(line, f"unknown section '{name}'{nearest(name, [*kinds, *SECTION_ALIASES])}")


def _all_homes(config_type: type) -> dict[str, str]:
    checked_only = CHECKED_ONLY_SECTIONS.get(config_type, {})
    homes = {leaf: section for section, kind in checked_only.items() for leaf in leaf_types(kind)}
    return homes | leaf_sections(config_type)


def _read_section(file: _ConfigFile, section: str, kind: type, node: Any) -> None:
    if isinstance(node, yaml.ScalarNode) and node.tag == TAG + "null":
        return  # all keys of the section are commented out
    if not isinstance(node, yaml.MappingNode):
        file.problem(
            node.start_mark.line + 1, f"section '{section}' must hold keys, such as '{next(iter(leaf_types(kind)))}:'"
        )
        return
    is_used = section in section_types(file.config_type)
    seen: dict[str, tuple[str, int]] = {}
    for name, value, line in entries(file, node, f"{section}."):
        leaf = _leaf_of_key(kind, name)
        if leaf is None:
            _unknown_key(file, section, kind, name, line)
        elif leaf in seen:
            other, first = seen[leaf]
            file.problem(line, f"'{section}.{name}' and '{other}' (line {first}) are the same key; keep one of them")
        else:
            seen[leaf] = (name, line)
            if is_used:
                _read_leaf(file, section, name, leaf, value, line)


def _leaf_of_key(kind: type, name: str) -> str | None:
    """The leaf of a section that a key sets, under its own name or that of rust_rl; None if there is none."""
    leaf, _ = ACCEPTED_LEAVES.get(name, (name, {}))
    return leaf if leaf in leaf_types(kind) else None


def _read_leaf(file: _ConfigFile, section: str, name: str, leaf: str, node: Any, line: int) -> None:
    kind = section_types(file.config_type)[section]
    is_ours = name == leaf
    try:
        value = _value(node, leaf_types(kind)[leaf] if is_ours else bool)
    except yaml.YAMLError as error:
        file.problem(*problem_in(error))
        return
    value, problem = check_leaf(kind, leaf, value) if is_ours else _translated(name, value)
    file.layer[leaf] = (value, f"{file.shown}:{line}")
    if problem:
        file.problem(line, f"{section}.{name}: {problem}")


def _translated(name: str, value: Any) -> tuple[Any, str | None]:
    """(value of our leaf, or a problem) for a value of rust_rl's leaf."""
    _, meanings = ACCEPTED_LEAVES[name]
    if isinstance(value, bool):
        return meanings[value], None
    return value, f"expected bool, got {value!r} ({type(value).__name__})"


def _unknown_key(file: _ConfigFile, section: str, kind: type, name: str, line: int) -> None:
    homes = _all_homes(file.config_type)
    if name in RENAMED_LEAVES:
        ours, meaning = RENAMED_LEAVES[name]
        file.problem(line, f"'{section}.{name}' is not read; use {ours}: {meaning}")
    elif name in homes:
        file.problem(line, f"unknown key '{section}.{name}'; it belongs to section '{homes[name]}'")
    else:
        file.problem(line, f"unknown key '{section}.{name}'{nearest(name, leaf_types(kind))}")


def parse_text(text: str, annotation: Any) -> Any:
    """The value of a leaf from the text of a flag, by the rules of files. Raises ConfigError for invalid YAML."""
    if allows(annotation, str):  # as written, because a path may hold '#' or ': '
        is_null = text.lower() in ("null", "none", "~") and allows(annotation, type(None))
        return None if is_null else text
    try:
        return _value(compose(text), annotation)
    except yaml.YAMLError as error:
        raise ConfigError(f"{problem_in(error)[1]}, got '{text}'", "quote it: '{num_rows: 6, num_cols: 6}'") from None


class _Dumper(yaml.SafeDumper):
    """Quotes text that `Loader`, or the rule for `none`, would read as another value."""

    yaml_implicit_resolvers = {None: list(Loader.yaml_implicit_resolvers[None])}  # noqa: RUF012 - PyYAML's own class attribute


_Dumper.add_implicit_resolver(TAG + "null", re.compile(r"(?i:none)\Z"), None)
_Dumper.add_representer(float, lambda dumper, value: dumper.represent_scalar(TAG + "float", _float_text(value)))


def _float_text(value: float) -> str:
    return repr(value).replace("inf", ".inf").replace("nan", ".nan")


def _leaf_text(value: Any, annotation: Any) -> str:
    if isinstance(value, str) and value in choices(annotation):
        return value
    text = yaml.dump([value], Dumper=_Dumper, default_flow_style=True, width=float("inf"), sort_keys=False)
    return text[1:-2]  # without brackets and line end; dumping a scalar alone would add a document marker


def to_yaml(config: Any) -> str:
    """The configuration as YAML with a comment for each key. Reading it gives the identical configuration."""
    lines: list[str] = []
    for name, kind in section_types(config.__class__).items():
        lines += [""] * bool(lines) + [f"# {(kind.__doc__ or '').splitlines()[0]}", f"{name}:"]
        for field in dataclasses.fields(kind):
            value = _leaf_text(getattr(getattr(config, name), field.name), leaf_types(kind)[field.name])
            lines.append(f"  {field.name}: {value}".ljust(40) + f"  # {field.metadata['help']}")
    return "\n".join(lines) + "\n"
