"""YAML in and out: the door to PyYAML. Files become {leaf: (value, "file:line")}; a configuration becomes YAML.

YAML is read strictly: its 1.2 scalars (1e-3 is a number; yes, 010 and 12:30 are text), no duplicate keys, no aliases,
no foreign tags. What the leaves mean and how values are checked is `config.py` and `config_checks.py`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from stoix_like.config import ACCEPTED_LEAVES, CHECKED_ONLY_SECTIONS, RENAMED_LEAVES, SECTION_ALIASES
from stoix_like.config_checks import check_leaf, leaf_sections, leaf_types, section_types
from stoix_like.config_values import allows, choices, nearest
from stoix_like.errors import ConfigError

Layer = dict[str, tuple[Any, str]]  # {leaf: (value, "file:line" or flag)}


class _Loader(yaml.SafeLoader):
    """Nodes only, with the scalars of YAML 1.2 instead of PyYAML's 1.1, and without aliases."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - replaces the inherited table; add_implicit_resolver fills it

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not read here", mark)
        return super().compose_node(parent, index)


_TAG = "tag:yaml.org,2002:"
_NUMBER = r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
for _name, _pattern in {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9][0-9_]*",
    "float": rf"{_NUMBER}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}.items():
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), None)


def _compose(text: str) -> Any:
    try:
        return yaml.compose(text, Loader=_Loader)
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None


def _yaml_problem(error: yaml.YAMLError) -> tuple[int | None, str]:
    """(line or None, what is wrong) of PyYAML's errors."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return mark.line + 1 if mark else None, f"not valid YAML: {what}"


def _refuse(node: Any, what: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, what, node.start_mark)


def _construct(node: Any) -> Any:
    """Plain data from a node. Raises YAMLError on duplicate or non-text keys, foreign tags and absurd numbers."""
    kind = node.tag.removeprefix(_TAG)
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return [_construct(item) for item in node.value]
    if isinstance(node, yaml.MappingNode) and kind == "map":
        data: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in data:
                raise _refuse(key, "keys must be text" if key.id != "scalar" else f"duplicate key '{key.value}'")
            data[key.value] = _construct(value)
        return data
    if not isinstance(node, yaml.ScalarNode):
        raise _refuse(node, f"tag {node.tag} is not read here")
    return _scalar(node, kind)


def _scalar(node: Any, kind: str) -> Any:
    text = node.value.replace("_", "")
    try:
        match kind:
            case "null":
                return None
            case "str":
                return node.value
            case "bool":
                return {"true": True, "false": False}[text.lower()]
            case "int":
                return int(text)
            case "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    except (ValueError, KeyError):
        raise _refuse(node, f"'{node.value[:40]}' is no {kind}") from None
    raise _refuse(node, f"tag {node.tag} is not read here")


def _value(node: Any, annotation: Any) -> Any:
    """A node as a leaf's value. An unquoted scalar is taken as written by a text leaf; `none` is null where null is."""
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        if node.value.lower() == "none" and allows(annotation, type(None)):
            return None
        if allows(annotation, str) and node.tag != _TAG + "null":
            return node.value
    return _construct(node)


@dataclasses.dataclass
class _File:
    """A file being read: what was found, and what is wrong with it."""

    shown: str
    config_type: type
    layer: Layer = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)

    def problem(self, line: int | None, what: str) -> None:
        self.problems.append(f"{self.shown}:{line}: {what}" if line else f"{self.shown}: {what}")


def read_yaml(path: Path, config_type: type, text: str | None = None) -> tuple[Layer, list[str]]:
    """({leaf: (checked value, "file:line")}, problems) of a configuration file, or of what it is known to hold."""
    file = _File(_shown(path), config_type)
    node = _root(file, path, text)
    if isinstance(node, yaml.MappingNode):
        _read_sections(file, node)
    elif node is not None:
        file.problem(node.start_mark.line + 1, "a configuration is made of sections, such as 'environment:'")
    return file.layer, file.problems


def read_tree(path: Path) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """(plain data, {dotted key: "file:line"}, problems) of a file that is no configuration: keys within keys."""
    file = _File(_shown(path), object)
    node = _root(file, path, None)
    places: dict[str, str] = {}
    if node is not None and not isinstance(node, yaml.MappingNode):
        file.problem(node.start_mark.line + 1, "expected keys, such as 'config: ppo/maze'")
        node = None
    return ({} if node is None else _branch(file, node, "", places)), places, file.problems


def _branch(file: _File, node: Any, prefix: str, places: dict[str, str]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, value, line in _entries(file, node, prefix):
        places[prefix + name] = f"{file.shown}:{line}"
        if isinstance(value, yaml.MappingNode):
            data[name] = _branch(file, value, f"{prefix}{name}.", places)
            continue
        try:
            data[name] = _construct(value)
        except yaml.YAMLError as error:
            file.problem(*_yaml_problem(error))
    return data


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _root(file: _File, path: Path, text: str | None) -> Any:
    """The node of the whole file; None if it is empty, or cannot be read, which becomes a problem."""
    try:
        return _compose(path.read_text(encoding="utf-8-sig") if text is None else text)
    except UnicodeDecodeError:
        file.problem(None, "not a text file in UTF-8")
    except OSError as error:
        file.problem(None, f"cannot be read: {os.strerror(error.errno or 0)}")
    except yaml.YAMLError as error:
        file.problem(*_yaml_problem(error))
    return None


def read_sections(path: Path) -> dict[str, Any] | None:
    """The file as plain data, unchecked: {section: {leaf: value}}. None if it is no YAML mapping."""
    try:
        node = _compose(path.read_text(encoding="utf-8-sig"))
        data = {} if node is None else _construct(node)
    except (UnicodeDecodeError, yaml.YAMLError):
        return None
    return data if isinstance(data, dict) else None


def _entries(file: _File, node: Any, prefix: str) -> Iterator[tuple[str, Any, int]]:
    """(key, value node, line) for each entry of a mapping; duplicates and odd keys become problems."""
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            file.problem(line, "keys must be text")
        elif key.value in seen:
            file.problem(line, f"duplicate key '{prefix}{key.value}' (first at line {seen[key.value]})")
        else:
            seen[key.value] = line
            yield key.value, value, line


def _read_sections(file: _File, node: Any) -> None:
    kinds = section_types(file.config_type) | CHECKED_ONLY_SECTIONS.get(file.config_type, {})
    homes = _all_homes(file.config_type)
    opened: dict[str, tuple[str, int]] = {}
    for name, value, line in _entries(file, node, ""):
        section = SECTION_ALIASES.get(name, name)
        if section in opened:
            other, first = opened[section]
            file.problem(line, f"'{name}' and '{other}' (line {first}) are one section; keep one of them")
        elif section in kinds:
            opened[section] = (name, line)
            _read_section(file, section, kinds[section], value)
        elif name in homes:
            file.problem(line, f"unknown section '{name}'; it is a key of section '{homes[name]}'")
        else:
            file.problem(line, f"unknown section '{name}'{nearest(name, [*kinds, *SECTION_ALIASES])}")


def _all_homes(config_type: type) -> dict[str, str]:
    checked_only = CHECKED_ONLY_SECTIONS.get(config_type, {})
    homes = {leaf: section for section, kind in checked_only.items() for leaf in leaf_types(kind)}
    return homes | leaf_sections(config_type)


def _read_section(file: _File, section: str, kind: type, node: Any) -> None:
    if isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "null":
        return  # a section whose keys are all commented out
    if not isinstance(node, yaml.MappingNode):
        file.problem(
            node.start_mark.line + 1, f"section '{section}' must hold keys, such as '{next(iter(leaf_types(kind)))}:'"
        )
        return
    read = section in section_types(file.config_type)
    opened: dict[str, tuple[str, int]] = {}
    for name, value, line in _entries(file, node, f"{section}."):
        leaf = _leaf_meant(kind, name)
        if leaf is None:
            _unknown_key(file, section, kind, name, line)
        elif leaf in opened:
            other, first = opened[leaf]
            file.problem(line, f"'{section}.{name}' and '{other}' (line {first}) are one key; keep one of them")
        else:
            opened[leaf] = (name, line)
            if read:
                _read_leaf(file, section, name, leaf, value, line)


def _leaf_meant(kind: type, name: str) -> str | None:
    """The leaf of a section that a key of a file sets, by our name or by rust_rl's; None if there is none."""
    leaf, _ = ACCEPTED_LEAVES.get(name, (name, {}))
    return leaf if leaf in leaf_types(kind) else None


def _read_leaf(file: _File, section: str, name: str, leaf: str, node: Any, line: int) -> None:
    kind = section_types(file.config_type)[section]
    is_ours = name == leaf
    try:
        value = _value(node, leaf_types(kind)[leaf] if is_ours else bool)
    except yaml.YAMLError as error:
        file.problem(*_yaml_problem(error))
        return
    value, problem = check_leaf(kind, leaf, value) if is_ours else _as_ours(name, value)
    file.layer[leaf] = (value, f"{file.shown}:{line}")
    if problem:
        file.problem(line, f"{section}.{name}: {problem}")


def _as_ours(name: str, value: Any) -> tuple[Any, str | None]:
    """(our value for a value of rust_rl's leaf, or a problem)."""
    _, meanings = ACCEPTED_LEAVES[name]
    if isinstance(value, bool):
        return meanings[value], None
    return value, f"expected bool, got {value!r} ({type(value).__name__})"


def _unknown_key(file: _File, section: str, kind: type, name: str, line: int) -> None:
    homes = _all_homes(file.config_type)
    if name in RENAMED_LEAVES:
        ours, meaning = RENAMED_LEAVES[name]
        file.problem(line, f"'{section}.{name}' is not read; use {ours}: {meaning}")
    elif name in homes:
        file.problem(line, f"unknown key '{section}.{name}'; it belongs to section '{homes[name]}'")
    else:
        file.problem(line, f"unknown key '{section}.{name}'{nearest(name, leaf_types(kind))}")


def parse_text(text: str, annotation: Any) -> Any:
    """The text of a flag as a leaf's value, by the scalar rules of files; a text leaf takes it as written.

    Raises:
        ConfigError: not valid YAML.
    """
    if allows(annotation, str):  # not through YAML: a path may hold '#' or ': '
        is_null = text.lower() in ("null", "none", "~") and allows(annotation, type(None))
        return None if is_null else text
    try:
        return _value(_compose(text), annotation)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{_yaml_problem(error)[1]}, got '{text}'", "quote it: '{num_rows: 6, num_cols: 6}'"
        ) from None


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader`, or the rule for `none`, would otherwise read as something else."""

    yaml_implicit_resolvers = {None: list(_Loader.yaml_implicit_resolvers[None])}  # noqa: RUF012 - PyYAML's own class attribute


_Dumper.add_implicit_resolver(_TAG + "null", re.compile(r"(?i:none)\Z"), None)
_Dumper.add_representer(float, lambda dumper, value: dumper.represent_scalar(_TAG + "float", _float_text(value)))


def _float_text(value: float) -> str:
    return repr(value).replace("inf", ".inf").replace("nan", ".nan")


def _leaf_text(value: Any, annotation: Any) -> str:
    if isinstance(value, str) and value in choices(annotation):
        return value
    text = yaml.dump([value], Dumper=_Dumper, default_flow_style=True, width=float("inf"), sort_keys=False)
    return text[1:-2]  # without the list's brackets and the line end: a scalar alone would get a document marker


def to_yaml(config: Any) -> str:
    """A whole run as YAML, each key with its description; reading it back gives the identical configuration."""
    lines: list[str] = []
    for name, kind in section_types(config.__class__).items():
        lines += [""] * bool(lines) + [f"# {(kind.__doc__ or '').splitlines()[0]}", f"{name}:"]
        for field in dataclasses.fields(kind):
            value = _leaf_text(getattr(getattr(config, name), field.name), leaf_types(kind)[field.name])
            lines.append(f"  {field.name}: {value}".ljust(40) + f"  # {field.metadata['help']}")
    return "\n".join(lines) + "\n"
