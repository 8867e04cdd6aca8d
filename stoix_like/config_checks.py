"""Checks and small tools for configurations: every problem is found before anything starts, and all are told at once.

Works on any frozen dataclass made of section dataclasses (see `config.py`); imports only the standard library.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any

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
def leaf_sections(config_type: type) -> dict[str, str]:
    """Which section each leaf stands in, as {leaf: section}. Leaf names are unique over all sections."""
    return {leaf: name for name, kind in section_types(config_type).items() for leaf in leaf_types(kind)}


def get_leaf(config: Any, name: str) -> Any:
    """The value of one leaf, by its unique name."""
    return getattr(getattr(config, leaf_sections(type(config))[name]), name)


def nearest(word: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, or an empty string."""
    match = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean '{match[0]}'?" if match else ""


def replace_leaves(config: Any, leaves: Mapping[str, Any]) -> Any:
    """The configuration with leaves replaced by name; values are not checked here.

    Raises:
        ConfigError: a name that no section has.
    """
    homes = leaf_sections(type(config))
    unknown = [f"unknown leaf '{name}'{nearest(name, homes)}" for name in leaves if name not in homes]
    if unknown:
        raise ConfigError(unknown, "docs/configuration.md lists every leaf")
    grouped: dict[str, dict[str, Any]] = {}
    for name, value in leaves.items():
        grouped.setdefault(homes[name], {})[name] = value
    sections = {name: dataclasses.replace(getattr(config, name), **values) for name, values in grouped.items()}
    return dataclasses.replace(config, **sections)


def type_name(annotation: Any) -> str:
    """How a leaf's type is called in messages and in the documentation: `int or null`, `auto, cpu or gpu`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(a) for a in arguments)
    if origin is typing.Literal:
        return ", ".join(str(a) for a in arguments)
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, str):
        return "text"
    if origin is not None and issubclass(origin, Mapping):
        return "mapping"
    return str(annotation.__name__)


def coerce(value: Any, annotation: Any) -> Any:
    """The value as the annotated type: 1e7 becomes an int, 3 becomes a float; a bool is never a number.

    Raises:
        TypeError: the value does not fit.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _coerce_union(value, arguments)
    if origin is typing.Literal:
        fits = any(value == a and type(value) is type(a) for a in arguments)
    elif annotation is type(None):
        fits = value is None
    elif annotation is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        value = float(value) if fits else value
    elif annotation is int:
        integral = isinstance(value, float) and math.isfinite(value) and value.is_integer()
        value = int(value) if integral else value
        fits = isinstance(value, int) and not isinstance(value, bool)
    else:
        fits = isinstance(value, origin or annotation)
    if not fits:
        raise TypeError(f"expected {type_name(annotation)}")
    return value


def _coerce_union(value: Any, arguments: tuple[Any, ...]) -> Any:
    for argument in arguments:
        try:
            return coerce(value, argument)
        except TypeError:
            continue
    raise TypeError


def range_problem(value: Any, metadata: Mapping[str, Any]) -> str | None:
    """Why a number lies outside the range in its field's metadata, or None."""
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value):
        return "must be finite"
    low, high, above = metadata.get("low"), metadata.get("high"), metadata.get("above")
    if low is not None and high is not None and not low <= value <= high:
        return f"must lie in [{low:g}, {high:g}]"
    if low is not None and value < low:
        return f"must be at least {low:g}"
    if above is not None and value <= above:
        return f"must be greater than {above:g}"
    return None


def resolve(config: Any, explicit: Collection[str] = (), where: Mapping[str, str] | None = None) -> Any:
    """The configuration with every value coerced, the number of updates settled, and everything checked.

    Args:
        config: a configuration whose leaves may still have loose types, such as 1e7 for an int.
        explicit: leaves that the user set; `num_updates` and `total_timesteps` may not both be.
        where: {leaf: "file:line" or flag}, put in front of problems.

    Raises:
        ConfigError: with every problem found.
    """
    config, problems = _checked_leaves(config, where or {})
    if problems:
        raise ConfigError(problems, "docs/configuration.md lists every leaf with its type and range")
    config, problems = _settle_num_updates(config, explicit)
    problems += combination_problems(config)
    if problems:
        raise ConfigError(problems, "change the values named; docs/configuration.md explains each leaf")
    return config


def _checked_leaves(config: Any, where: Mapping[str, str]) -> tuple[Any, list[str]]:
    problems: list[str] = []
    values: dict[str, Any] = {}
    for section_name, kind in section_types(type(config)).items():
        section = getattr(config, section_name)
        for field in dataclasses.fields(kind):
            place = f"{where[field.name]}: " if field.name in where else ""
            value, problem = check_leaf(kind, field.name, getattr(section, field.name))
            values[field.name] = value
            if problem:
                problems.append(f"{place}{section_name}.{field.name}: {problem}")
    return (config if problems else replace_leaves(config, values)), problems


def check_leaf(section_type: type, name: str, value: Any) -> tuple[Any, str | None]:
    """(the coerced value, or a problem) for one leaf of one section."""
    if name == "standardize_advantages" and isinstance(value, bool):
        value = "batch" if value else "none"
    annotation = leaf_types(section_type)[name]
    metadata = next(f.metadata for f in dataclasses.fields(section_type) if f.name == name)
    try:
        value = coerce(value, annotation)
    except TypeError:
        shown = "null" if value is None else f"{value!r} ({type(value).__name__})"
        suggestion = nearest(value, type_name(annotation).split(", ")) if isinstance(value, str) else ""
        return value, f"expected {type_name(annotation)}, got {shown}{suggestion}"
    reason = range_problem(value, metadata)
    return value, f"{reason}, got {value!r}" if reason else None


def steps_per_update(config: Any) -> int:
    """Environment steps of one update and one seed."""
    return int(config.environment.num_envs * config.training_core.rollout_length)


def _settle_num_updates(config: Any, explicit: Collection[str]) -> tuple[Any, list[str]]:
    total = config.training_core.total_timesteps
    if total is None:
        return config, []
    if "num_updates" in explicit and "total_timesteps" in explicit:
        return config, ["training_core: give num_updates or total_timesteps, not both"]
    per_update = steps_per_update(config)
    if total % per_update:
        below, above = total // per_update * per_update, (total // per_update + 1) * per_update
        choices = f"{above:,}" if below == 0 else f"{below:,} or {above:,}"
        factors = f"num_envs * rollout_length = {per_update:,}"
        return config, [f"training_core.total_timesteps: {total:,} is not a multiple of {factors}; use {choices}"]
    return replace_leaves(config, {"num_updates": total // per_update, "total_timesteps": None}), []


def combination_problems(config: Any) -> list[str]:
    """One line for each combination of legal values that cannot run."""
    environment, core, evaluation = config.environment, config.training_core, config.evaluation
    problems = []
    if core.num_updates is None and core.total_timesteps is None:
        problems.append("training_core: num_updates and total_timesteps are both null; give one")
    batch = steps_per_update(config)
    if batch % core.num_minibatches:
        problems.append(
            f"training_core.num_minibatches: num_envs * rollout_length = {environment.num_envs} * {core.rollout_length}"
            f" = {batch} is not divisible by {core.num_minibatches}; use {_nearest_divisors(batch, core.num_minibatches)}"
        )
    if evaluation.num_eval_episodes % evaluation.num_eval_envs:
        lower = evaluation.num_eval_episodes // evaluation.num_eval_envs * evaluation.num_eval_envs
        near = [n for n in (lower, lower + evaluation.num_eval_envs) if n]
        problems.append(
            f"evaluation.num_eval_episodes: {evaluation.num_eval_episodes} is not a multiple of num_eval_envs ="
            f" {evaluation.num_eval_envs}; use {' or '.join(map(str, near))}"
        )
    return problems + _environment_problems(environment) + _hardware_problems(config)


def _environment_problems(environment: Any) -> list[str]:
    if environment.task_id.startswith("BinPack"):
        return []
    return [
        f"environment.{name}: only BinPack has it, and the task is {environment.task_id}; leave it null"
        for name in ("max_items", "max_ems")
        if getattr(environment, name) is not None
    ]


def _hardware_problems(config: Any) -> list[str]:
    hardware, num_envs, problems = config.hardware, config.environment.num_envs, []
    if num_envs % hardware.num_devices:
        near = _nearest_divisors(num_envs, hardware.num_devices)
        problems.append(
            f"hardware.num_devices: num_envs = {num_envs} is not divisible by {hardware.num_devices}; use {near}"
        )
    hosts = (hardware.coordinator_address, hardware.num_processes, hardware.process_id)
    if any(h is not None for h in hosts) and any(h is None for h in hosts):
        problems.append("hardware: coordinator_address, num_processes and process_id go together; give all or none")
    elif hosts[1] is not None and hosts[2] >= hosts[1]:
        problems.append(f"hardware.process_id: {hosts[2]} is not below num_processes = {hosts[1]}")
    return problems


def _nearest_divisors(number: int, wanted: int) -> str:
    below = next(n for n in range(min(wanted, number), 0, -1) if number % n == 0)
    above = next((n for n in range(wanted, number + 1) if number % n == 0), None)
    return f"{below}" if above is None or above == below else f"{below} or {above}"
