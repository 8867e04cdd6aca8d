"""Strict YAML, as nodes and as plain data. Only this module and `documents.py` import PyYAML.

Scalars are those of YAML 1.2: 1e-3 is a number; yes, 010 and 12:30 are text. Duplicate keys, aliases and foreign tags
are errors. This module knows nothing of configurations.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


class Loader(yaml.SafeLoader):
    """A loader with the scalars of YAML 1.2 instead of PyYAML's 1.1, and without aliases."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - replaces the inherited table; add_implicit_resolver fills it

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not read here", mark)
        return super().compose_node(parent, index)


TAG = "tag:yaml.org,2002:"
_NUMBER = r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
for _name, _pattern in {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9][0-9_]*",
    "float": rf"{_NUMBER}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}.items():
    Loader.add_implicit_resolver(TAG + _name, re.compile(rf"(?:{_pattern})\Z"), None)


def compose(text: str) -> Any:
    """The node of a text, None if it is empty. Raises YAMLError."""
    try:
        return yaml.compose(text, Loader=Loader)
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None


def problem_in(error: yaml.YAMLError) -> tuple[int | None, str]:
    """(line or None, message) of an error of PyYAML."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return mark.line + 1 if mark else None, f"not valid YAML: {what}"


def _error(node: Any, what: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, what, node.start_mark)


def construct(node: Any) -> Any:
    """Plain data from a node. Raises YAMLError on duplicate or non-text keys, foreign tags and absurd numbers."""
    kind = node.tag.removeprefix(TAG)
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return [construct(item) for item in node.value]
    if isinstance(node, yaml.MappingNode) and kind == "map":
        data: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in data:
                raise _error(key, "keys must be text" if key.id != "scalar" else f"duplicate key '{key.value}'")
            data[key.value] = construct(value)
        return data
    if not isinstance(node, yaml.ScalarNode):
        raise _error(node, f"tag {node.tag} is not read here")
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
        raise _error(node, f"'{node.value[:40]}' is no {kind}") from None
    raise _error(node, f"tag {node.tag} is not read here")


@dataclasses.dataclass
class YamlFile:
    """A file that is read, with the line of each key that was seen, its problems, and notes on keys with new names."""

    shown: str
    lines: dict[str, int] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def problem(self, line: int | None, what: str) -> None:
        self.problems.append(f"{self.place(line)}: {what}")

    def problem_of(self, key: str, what: str) -> None:
        """Adds the problem of a key's value, with the line of the key."""
        self.problem(self.lines.get(key), f"{key}: {what}")

    def place(self, line: int | None) -> str:
        return f"{self.shown}:{line}" if line else self.shown


def root_node(file: YamlFile, path: Path, text: str | None = None) -> Any:
    """The root node of the file; None if it is empty, or if it cannot be read, which is added to its problems."""
    try:
        return compose(path.read_text(encoding="utf-8-sig") if text is None else text)
    except UnicodeDecodeError:
        file.problem(None, "not a text file in UTF-8")
    except OSError as error:
        file.problem(None, f"cannot be read: {os.strerror(error.errno or 0)}")
    except yaml.YAMLError as error:
        file.problem(*problem_in(error))
    return None


def read_sections(path: Path) -> dict[str, Any] | None:
    """The file as unchecked plain data, {section: {leaf: value}}. None if it is not a YAML mapping."""
    try:
        node = compose(path.read_text(encoding="utf-8-sig"))
        data = {} if node is None else construct(node)
    except (UnicodeDecodeError, yaml.YAMLError):
        return None
    return data if isinstance(data, dict) else None


def entries(file: YamlFile, node: Any, section: str, expected: str) -> Iterator[tuple[str, str, Any]]:
    """(name, dotted key, value node) for each entry of a mapping; none if it is null. Notes the line of each key.

    Duplicate keys and keys that are not text are problems. `expected` is the problem of a node that is not a mapping.
    """
    if node is None or (section and node.tag == TAG + "null"):
        return
    if not isinstance(node, yaml.MappingNode):
        file.problem(node.start_mark.line + 1, expected)
        return
    seen: set[str] = set()
    for name, value in node.value:
        line = name.start_mark.line + 1
        key = f"{section}.{name.value}" if section else name.value
        if not isinstance(name, yaml.ScalarNode):
            file.problem(line, "keys must be text")
        elif key in seen:
            file.problem(line, f"duplicate key '{key}' (first at line {file.lines[key]})")
        else:
            seen.add(key)
            file.lines[key] = line
            yield name.value, key, value
