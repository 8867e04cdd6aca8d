"""Reads leaves from YAML and from the texts of flags, and writes configurations as YAML.

`strict_yaml.py` parses YAML, `config/sections/` defines the leaves, and `config/checks/` checks their values.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from stoix_like.config.checks.access import check_leaf, former_names, leaf_types, section_types
from stoix_like.config.checks.retired import retired_note
from stoix_like.config.checks.values import allows, choices, nearest
from stoix_like.config.layers import Layer
from stoix_like.config.sections.tables import ACCEPTED_LEAVES, CHECKED_ONLY_SECTIONS, RENAMED_LEAVES, SECTION_ALIASES
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


def read_yaml(
    path: Path, config_type: type, text: str | None = None, notes: list[str] | None = None
) -> tuple[Layer, list[str]]:
    """({leaf: (checked value, "file:line")}, problems) of a configuration file; `text` is its content if known.

    A line for each key that has another name now is added to `notes`.
    """
    file = YamlFile(shown_path(path))
    used = section_types(config_type)
    kinds = used | CHECKED_ONLY_SECTIONS.get(config_type, {})
    homes = {leaf: section for section, kind in kinds.items() for leaf in leaf_types(kind)}
    layer: Layer = {}
    seen: dict[str, str] = {}
    expected = "a configuration is made of sections, such as 'environment:'"
    for name, _, node in entries(file, root_node(file, path, text), "", expected):
        section, line = SECTION_ALIASES.get(name, name), file.lines[name]
        if section in seen:
            other = f"'{seen[section]}' (line {file.lines[seen[section]]})"
            file.problem(line, f"'{name}' and {other} are the same section; keep one of them")
        elif section in kinds:
            seen[section] = name
            kind = kinds[section]
            leaves = dict.fromkeys(leaf_types(kind), kind if section in used else None)
            unknown = functools.partial(_unknown_key, homes, section)
            found = read_leaves(file, node, section, leaves, unknown, former_names(kind))
            layer |= found if section in used else {}
        elif name in homes:
            file.problem(line, f"unknown section '{name}'; it is a key of section '{homes[name]}'")
        else:
            file.problem(line, f"unknown section '{name}'{nearest(name, [*kinds, *SECTION_ALIASES])}")
    if notes is not None:
        notes += file.notes
    return layer, file.problems


def _unknown_key(homes: Mapping[str, str], section: str, name: str) -> str:
    if name in RENAMED_LEAVES:
        ours, meaning = RENAMED_LEAVES[name]
        return f"'{section}.{name}' is not read; use {ours}: {meaning}"
    if name in homes:
        return f"unknown key '{section}.{name}'; it belongs to section '{homes[name]}'"
    return f"unknown key '{section}.{name}'{nearest(name, [leaf for leaf, home in homes.items() if home == section])}"


def read_leaves(
    file: YamlFile,
    node: Any,
    section: str,
    kinds: Mapping[str, type | None],
    unknown: Callable[[str], str],
    former: Mapping[str, str] = MappingProxyType({}),
) -> Layer:
    """{leaf: (checked value, "file:line")} of the leaves in a mapping that are valid; the others are problems.

    Args:
        file, node: the mapping in its file.
        section: the name of the mapping, empty for that of the whole file.
        kinds: {leaf: the dataclass it is a field of}. For None the node is returned instead of a checked value.
        unknown: the problem of a key that is not in `kinds`.
        former: {former name: leaf}, besides those of the dataclasses in `kinds`.
    """
    layer: Layer = {}
    seen: dict[str, str] = {}
    named = f"section '{section}'" if section else "the file"
    known = {old: new for kind in {*kinds.values()} - {None} for old, new in former_names(kind).items()} | dict(former)
    for name, key, value in entries(
        file, node, section, f"{named} must hold keys, such as '{_nested(section, kinds)}'"
    ):
        leaf, _ = ACCEPTED_LEAVES.get(name, (known.get(name, name), {}))
        line, num_problems = file.lines[key], len(file.problems)
        file.notes += [f"{file.place(line)}: '{key}' is called {leaf} now"] * (name in known)
        if reason := retired_note(section, leaf):
            file.notes.append(f"{file.place(line)}: '{key}' is not read: {reason}")
        elif leaf not in kinds:
            file.problem(line, unknown(name))
        elif leaf in seen:
            other = f"'{seen[leaf]}' (line {file.lines[seen[leaf]]})"
            file.problem(line, f"'{key}' and {other} are the same key; keep one of them")
        else:
            seen[leaf], kind = key, kinds[leaf]
            checked = value if kind is None else read_leaf(file, key, value, kind, former.get(name, name))
            if len(file.problems) == num_problems:
                layer[leaf] = (checked, file.place(line))
    return layer


def read_leaf(file: YamlFile, key: str, node: Any, kind: type, name: str) -> Any:
    """The checked value of a leaf, under its own name or that of rust_rl. An invalid one is a problem of the key."""
    leaf, meanings = ACCEPTED_LEAVES.get(name, (name, {}))
    try:
        value = _value(node, bool if meanings else leaf_types(kind)[leaf])
    except yaml.YAMLError as error:
        file.problem(*problem_in(error))
        return None
    if not meanings:
        value, problem = check_leaf(kind, leaf, value)
    elif isinstance(value, bool):
        return meanings[value]
    else:
        problem = f"expected bool, got {value!r} ({type(value).__name__})"
    if problem:
        file.problem_of(key, problem)
    return value


def parse_leaf(text: str, kind: type, leaf: str) -> tuple[Any, str | None]:
    """(the checked value, or a problem) of a leaf from the text of a flag, by the rules of files."""
    annotation = leaf_types(kind)[leaf]
    if allows(annotation, str):  # as written, because a path may hold '#' or ': '
        is_null = text.lower() in ("null", "none", "~") and allows(annotation, type(None))
        return check_leaf(kind, leaf, None if is_null else text)
    try:
        node = compose(text)
        return (
            (None, f"needs a value, got '{text}'") if node is None else check_leaf(kind, leaf, _value(node, annotation))
        )
    except yaml.YAMLError as error:
        return None, f"{problem_in(error)[1]}, got '{text}'"


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


def _nested(section: str, kinds: Mapping[str, type | None]) -> str:
    """The first key, as it stands in its section."""
    return f"{section}: {{{next(iter(kinds))}: ...}}" if section else f"{next(iter(kinds))}:"


def print_yaml(config: Any, notes: Sequence[str]) -> None:
    """Prints what `to_yaml` gives, and the notes on standard error."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(to_yaml(config), end="")


def to_yaml(config: Any) -> str:
    """The configuration as YAML with a comment for each key. Reading it gives the identical configuration."""
    lines: list[str] = []
    for name, kind in section_types(config.__class__).items():
        lines += [""] * bool(lines) + [f"# {(kind.__doc__ or '').splitlines()[0]}", f"{name}:"]
        for field in dataclasses.fields(kind):
            value = _leaf_text(getattr(getattr(config, name), field.name), leaf_types(kind)[field.name])
            lines.append(f"  {field.name}: {value}".ljust(40) + f"  # {field.metadata['help']}")
    return "\n".join(lines) + "\n"
