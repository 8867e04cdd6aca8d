"""The leaves that a sweep file may set, and the space of the searched ones.

Leaves have the names, types and ranges of the configuration. Problems are collected, each with its line.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from stoix_like.config.checks.access import leaf_sections, leaf_types, section_types
from stoix_like.config.checks.values import allows, choices, nearest
from stoix_like.config.layers import Layer
from stoix_like.config.sections.leaves import leaf
from stoix_like.config.sections.roles import Role, leaf_roles, leaves_with
from stoix_like.config.sections.tables import CHECKED_ONLY_SECTIONS
from stoix_like.runtime.loading.documents import read_leaf
from stoix_like.runtime.loading.strict_yaml import YamlFile, entries

#: {role: why a sweep file may not set its leaves}. The sweep sets them itself.
_RESERVED = {
    Role.FOLDER: "each trial has a folder in that of the study: --save-dir and --study",
    Role.PROCESS: "a sweep runs in one process",
}
#: Leaves that change how trials are scored, logged and saved, which must be equal.
_EQUAL = Role.SCORING | Role.MACHINE | Role.PROCESS
_KEYS = ("choices", "low", "high", "log", "step")
_FORMS = "{low: ..., high: ...} with log or step, or {choices: [...]}"


@dataclass(frozen=True)
class _Spacing:
    """The keys of a range that are not values of its leaf."""

    log: bool = leaf(False, "sample the logarithm")
    step: float | None = leaf(None, "distance of the values", above=0.0)
    whole_step: int | None = leaf(None, "`step` of whole numbers", low=1)


class Range(NamedTuple):
    """Numbers from low to high, both included."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    is_whole: bool = False


class Choices(NamedTuple):
    """A categorical parameter: one of these values."""

    values: tuple[Any, ...]


Dimension = Range | Choices


def bounds(dimension: Dimension) -> tuple[Any, Any]:
    """The first and the last value of a dimension."""
    if isinstance(dimension, Choices):
        return dimension.values[0], dimension.values[-1]
    return dimension.low, dimension.high


def plain_value(dimension: Dimension) -> dict[str, Any]:
    """A dimension as a sweep file states it."""
    if isinstance(dimension, Choices):
        return {"choices": list(dimension.values)}
    keys = {"low": dimension.low, "high": dimension.high, "log": dimension.log or None, "step": dimension.step}
    return {name: value for name, value in keys.items() if value is not None}


def settable_leaves(config_type: type) -> dict[str, type]:
    """{leaf: the dataclass of its section} of the leaves that a sweep file may set."""
    reserved = leaves_with(config_type, Role.FOLDER | Role.PROCESS) | {"num_seeds"}
    kinds, homes = section_types(config_type), leaf_sections(config_type)
    return {name: kinds[home] for name, home in homes.items() if name not in reserved}


def unknown_leaf(config_type: type, section: str, name: str) -> str:
    """The problem of a key under `fixed` or `space` that is not a settable leaf."""
    roles = leaf_roles(config_type).get(name, Role.NONE)
    others = CHECKED_ONLY_SECTIONS.get(config_type, {}).items()
    key = f"{section}.{name}"
    if name == "num_seeds":
        return f"{key}: it is a key of the sweep itself, next to 'config'"
    if reasons := [reason for role, reason in _RESERVED.items() if roles & role]:
        return f"{key}: {reasons[0]}"
    if name in section_types(config_type):
        return f"unknown key '{key}'; it is a section: give its leaves without it"
    if owners := [section for section, kind in others if name in leaf_types(kind)]:
        return f"unknown key '{key}'; it is one of section '{owners[0]}', which this algorithm does not use"
    return f"unknown key '{key}'{nearest(name, leaf_sections(config_type))}"


def read_space(file: YamlFile, node: Any, config_type: type, fixed: Layer) -> dict[str, Dimension]:
    """{leaf: its dimension} of the leaves under `space`, checked."""
    space: dict[str, Dimension] = {}
    kinds = settable_leaves(config_type)
    for name, key, value in entries(file, node, "space", "section 'space' must hold keys, such as 'actor_lr:'"):
        if name not in kinds:
            file.problem(file.lines[key], unknown_leaf(config_type, "space", name))
        elif name == "seed":
            file.problem_of(key, "a seed is not a parameter; each trial has num_seeds of them")
        elif leaf_roles(config_type)[name] & _EQUAL:
            section = leaf_sections(config_type)[name]
            file.problem_of(key, f"leaves of section '{section}' are the same in all trials; put it under 'fixed'")
        elif name in fixed:
            file.problem_of(key, f"it is also fixed ({fixed[name][1]}); keep one of them")
        elif (dimension := _dimension(file, key, value, kinds[name], name)) is not None:
            space[name] = dimension
    if not space and not file.problems:
        file.problem_of("space", "nothing is searched; give a leaf, such as 'actor_lr: {low: 1e-4, high: 1e-2}'")
    return space


def _dimension(file: YamlFile, key: str, node: Any, kind: type, name: str) -> Dimension | None:
    """The dimension of a leaf, a field of `kind`. If it is not valid there are problems, and it may be None."""
    before = len(file.problems)
    given = {word: value for word, _, value in entries(file, node, key, f"{key}: expected {_FORMS}")}
    for word in given:
        if word not in _KEYS:
            file.problem(file.lines[f"{key}.{word}"], f"unknown key '{key}.{word}'{nearest(word, _KEYS)}")
        elif word != "choices" and "choices" in given:
            file.problem_of(f"{key}.{word}", "choices take no other key; leave it out")
    if len(file.problems) == before and "choices" not in given and not {"low", "high"} <= given.keys():
        file.problem_of(key, f"expected {_FORMS}")
    if len(file.problems) > before:
        return None
    read = _choices if "choices" in given else _range
    return read(file, key, given, kind, name)


def _choices(file: YamlFile, key: str, given: dict[str, Any], kind: type, name: str) -> Choices:
    key, before = f"{key}.choices", len(file.problems)
    node = given["choices"]
    values = [read_leaf(file, key, item, kind, name) for item in node.value] if node.id == "sequence" else []
    if len(values) < 2:
        got = values or (node.value if node.id == "scalar" else f"a {node.id}")
        file.problem_of(key, f"expected a list of at least two values, got {got}")
    elif any(isinstance(value, (dict, list)) for value in values):
        file.problem_of(key, "only numbers, words, true, false and null can be searched")
    repeated = [value for index, value in enumerate(values) if value in values[:index]]
    if repeated and len(file.problems) == before:
        file.problem_of(key, f"{repeated[0]!r} is given twice")
    return Choices(tuple(values))


def _range(file: YamlFile, key: str, given: dict[str, Any], kind: type, name: str) -> Range | None:
    annotation, before = leaf_types(kind)[name], len(file.problems)
    is_whole = not allows(annotation, float)
    if is_whole and not allows(annotation, int):
        words = ["true", "false"] if allows(annotation, bool) else choices(annotation) or ["..."]
        file.problem_of(key, f"it is not a number; give choices: [{', '.join(words)}]")
        return None
    leaves = {"low": (kind, name), "high": (kind, name), "log": (_Spacing, "log")}
    leaves["step"] = (_Spacing, "whole_step" if is_whole else "step")
    values = {word: read_leaf(file, f"{key}.{word}", node, *leaves[word]) for word, node in given.items()}
    if len(file.problems) == before:
        for end in ("low", "high"):
            if values[end] is None or isinstance(values[end], str):
                file.problem_of(f"{key}.{end}", f"expected a number, got {values[end]!r}".replace("None", "null"))
    if len(file.problems) > before:
        return None
    found = Range(**values, is_whole=is_whole)
    if problem := _range_problem(found):
        file.problem_of(key, problem)
    return found


def _range_problem(given: Range) -> str | None:
    """Why the numbers of a range do not fit together, or None."""
    if given.low >= given.high:
        return f"low = {given.low} is not below high = {given.high}"
    if given.log and given.low <= 0:
        return f"log needs low above 0, got {given.low}"
    if given.log and given.step is not None:
        return "log and step exclude each other; keep one"
    if given.step is None:
        return None
    low, high, step = (Decimal(str(number)) for number in (given.low, given.high, given.step))
    count, rest = divmod(high - low, step)
    if rest == 0:
        return None
    fitting = [low + step * n for n in (count, count + 1) if n > 0]
    return f"steps of {step} from {low} do not reach {high}; use high = {' or '.join(map(str, fitting))}"
