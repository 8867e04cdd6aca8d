"""Reads the leaves of a sweep file: the fixed ones, and the space of the searched ones.

Leaves have the names, types and ranges of the configuration. Problems are collected, each with its line.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from stoix_like.config.checks import check_leaf, leaf_sections, leaf_types, section_types
from stoix_like.config.roles import Role, leaf_roles
from stoix_like.config.sections import CHECKED_ONLY_SECTIONS
from stoix_like.config.values import allows, choices, coerce, nearest
from stoix_like.runtime.loading.documents import Layer

#: {role: why a sweep file may not set its leaves}. The sweep sets them itself.
_RESERVED = {
    Role.FOLDER: "each trial has a folder in that of the study: --save-dir and --study",
    Role.PROCESS: "a sweep runs in one process",
}
#: Leaves that change how trials are scored, logged and saved, which must be equal.
_EQUAL = Role.SCORING | Role.MACHINE | Role.PROCESS
_RANGE_KEYS = ("low", "high", "log", "step")
_FORMS = "{low: ..., high: ...} with log or step, or {choices: [...]}"


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


@dataclass
class SweepFile:
    """A sweep file while it is read: its data, the place of each dotted key, and the problems found so far."""

    shown: str
    data: dict[str, Any]
    places: dict[str, str]
    problems: list[str]
    config_type: type

    def problem(self, key: str, message: str) -> None:
        """Adds the problem of a key with a wrong value."""
        self.problems.append(f"{self.places.get(key, self.shown)}: {key}: {message}")

    def unknown(self, key: str, message: str) -> None:
        """Adds the problem of an unknown key."""
        self.problems.append(f"{self.places[key]}: {message}")

    def keys_of(self, key: str) -> dict[str, Any]:
        """The mapping under a key; empty, with a problem, if it is not a mapping."""
        found = self.data.get(key)
        if found is not None and not isinstance(found, dict):
            self.problem(key, f"expected leaves, such as 'actor_lr: ...', got {found!r}")
        return found if isinstance(found, dict) else {}

    def section_of(self, leaf: str) -> type:
        """The dataclass of the section that has a leaf."""
        return section_types(self.config_type)[leaf_sections(self.config_type)[leaf]]


def read_fixed(sheet: SweepFile) -> Layer:
    """The leaves under `fixed`, checked."""
    layer: Layer = {}
    for name, value in sheet.keys_of("fixed").items():
        key = f"fixed.{name}"
        if _is_settable(sheet, key, name):
            layer[name] = _leaf_value(sheet, key, name, value), sheet.places[key]
    return layer


def read_space(sheet: SweepFile) -> dict[str, Dimension]:
    """{leaf: its dimension} of the leaves under `space`, checked."""
    space: dict[str, Dimension] = {}
    given, fixed = sheet.keys_of("space"), sheet.keys_of("fixed")
    if not given and not sheet.problems:
        sheet.problem("space", "nothing is searched; give a leaf, such as 'actor_lr: {low: 1e-4, high: 1e-2}'")
    for name, value in given.items():
        key = f"space.{name}"
        if not _is_settable(sheet, key, name):
            continue
        if name == "seed":
            sheet.problem(key, "a seed is not a parameter; each trial has num_seeds of them")
        elif leaf_roles(sheet.config_type)[name] & _EQUAL:
            section = leaf_sections(sheet.config_type)[name]
            sheet.problem(key, f"leaves of section '{section}' are the same in all trials; put it under 'fixed'")
        elif name in fixed:
            sheet.problem(key, f"it is also fixed ({sheet.places[f'fixed.{name}']}); keep one of them")
        elif (dimension := _dimension(sheet, key, name, value)) is not None:
            space[name] = dimension
    return space


def _is_settable(sheet: SweepFile, key: str, name: str) -> bool:
    """Whether a sweep may set the leaf; if not, adds a problem."""
    sections = leaf_sections(sheet.config_type)
    checked_only = CHECKED_ONLY_SECTIONS.get(sheet.config_type, {}).values()
    roles = leaf_roles(sheet.config_type).get(name, Role.NONE)
    reasons = [reason for role, reason in _RESERVED.items() if roles & role]
    if name == "num_seeds":
        sheet.problem(key, "it is a key of the sweep itself, next to 'config'")
    elif reasons:
        sheet.problem(key, reasons[0])
    elif name in section_types(sheet.config_type):
        sheet.unknown(key, f"unknown leaf '{key}'; it is a section: give its leaves without it")
    elif any(name in leaf_types(kind) for kind in checked_only):
        sheet.unknown(key, f"unknown leaf '{key}'; it is one of SPO, and algorithm is ppo")
    elif name not in sections:
        sheet.unknown(key, f"unknown leaf '{key}'{nearest(name, sections)}")
    else:
        return True
    return False


def _leaf_value(sheet: SweepFile, key: str, name: str, value: Any) -> Any:
    """The value in the leaf's type; adds a problem if it does not fit."""
    section = sheet.section_of(name)
    if isinstance(value, str) and value.lower() == "none" and allows(leaf_types(section)[name], type(None)):
        value = None
    value, problem = check_leaf(section, name, value)
    if problem:
        sheet.problem(key, problem)
    return value


def _dimension(sheet: SweepFile, key: str, name: str, given: Any) -> Dimension | None:
    if not isinstance(given, dict):
        sheet.problem(key, f"expected {_FORMS}; got {given!r}")
        return None
    before = len(sheet.problems)
    for word in given:
        if word not in ("choices", *_RANGE_KEYS):
            near = nearest(word, ["choices", *_RANGE_KEYS])
            sheet.unknown(f"{key}.{word}", f"unknown key '{key}.{word}'{near}")
        elif word != "choices" and "choices" in given:
            sheet.problem(f"{key}.{word}", "choices take no other key; leave it out")
    if len(sheet.problems) == before and "choices" not in given and not {"low", "high"} <= given.keys():
        sheet.problem(key, f"expected {_FORMS}")
    if len(sheet.problems) > before:
        return None
    dimension = _choices(sheet, key, name, given["choices"]) if "choices" in given else _range(sheet, key, name, given)
    return dimension if len(sheet.problems) == before else None


def _choices(sheet: SweepFile, key: str, name: str, given: Any) -> Choices:
    key = f"{key}.choices"
    if not isinstance(given, list) or len(given) < 2:
        sheet.problem(key, f"expected a list of at least two values, got {given!r}")
        return Choices(())
    values = [_leaf_value(sheet, key, name, value) for value in given]
    if any(isinstance(value, (dict, list)) for value in values):
        sheet.problem(key, "only numbers, words, true, false and null can be searched")
    elif repeated := [value for index, value in enumerate(values) if value in values[:index]]:
        sheet.problem(key, f"{repeated[0]!r} is given twice")
    return Choices(tuple(values))


def _range(sheet: SweepFile, key: str, name: str, given: dict[str, Any]) -> Range | None:
    annotation = leaf_types(sheet.section_of(name))[name]
    is_whole = not allows(annotation, float)
    if is_whole and not allows(annotation, int):
        words = ["true", "false"] if allows(annotation, bool) else choices(annotation) or ["..."]
        sheet.problem(key, f"it is not a number; give choices: [{', '.join(words)}]")
        return None
    before = len(sheet.problems)
    low, high = (_bound(sheet, f"{key}.{end}", name, given[end]) for end in ("low", "high"))
    log, step = given.get("log", False), _step(sheet, f"{key}.step", given.get("step"), is_whole)
    if not isinstance(log, bool):
        sheet.problem(f"{key}.log", f"expected bool, got {log!r} ({type(log).__name__})")
    if len(sheet.problems) > before:
        return None
    found = Range(low, high, log, step, is_whole)
    if problem := _range_problem(found):
        sheet.problem(key, problem)
    return found


def _bound(sheet: SweepFile, key: str, name: str, given: Any) -> Any:
    before = len(sheet.problems)
    value = _leaf_value(sheet, key, name, given)
    if len(sheet.problems) == before and (value is None or isinstance(value, str)):
        sheet.problem(key, f"expected a number, got {'null' if value is None else repr(value)}")
    return value


def _step(sheet: SweepFile, key: str, given: Any, is_whole: bool) -> float | None:
    if given is None:
        return None
    with contextlib.suppress(TypeError):
        step: float = coerce(given, int if is_whole else float)
        if 0 < step < float("inf"):
            return step
    sheet.problem(key, f"expected a {'whole number' if is_whole else 'number'} above 0, got {given!r}")
    return None


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
