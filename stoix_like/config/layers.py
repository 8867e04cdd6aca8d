"""From layers of leaves to one configuration. Each leaf is checked once, where it is read; here they are combined.

A layer has the leaves of one origin: a file, a command line, or the keywords of a program. Imports only the standard
library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stoix_like.config.checks.access import check_leaf, leaf_sections, replace_leaves, section_types
from stoix_like.config.checks.combinations import combination_problems, steps_per_update
from stoix_like.config.checks.values import LARGEST_WHOLE
from stoix_like.errors import ConfigError

#: {leaf: (checked value, place)}; the place is "file:line", a flag, or empty for a value of a program.
Layer = dict[str, tuple[Any, str]]


def resolve(config: Any, leaves: Mapping[str, Any]) -> Any:
    """The checked configuration with leaves of a program replaced by name, as `ppo_config` does.

    Args:
        config: a checked configuration.
        leaves: the values may have other types that can be converted, such as 1e7 for an int.

    Raises:
        ConfigError: with all unknown names, else all wrong values, else all invalid combinations.
    """
    replace_leaves(config, leaves)  # raises for unknown names
    layer, problems = layer_of(config.__class__, leaves)
    if problems:
        raise ConfigError(problems, "docs/configuration.md lists every leaf with its type and range")
    return config_from_layers(config, layer)


def layer_of(
    config_type: type, leaves: Mapping[str, Any], place: Callable[[str], str] = lambda _: ""
) -> tuple[Layer, list[str]]:
    """(the layer of values of a program, one line for each that is wrong). Unknown names are left out.

    Args:
        config_type: of the configuration.
        leaves: {leaf: value}; the values may have other types that can be converted.
        place: of a leaf, as problems name it; empty for its path.
    """
    kinds, layer, problems = section_types(config_type), Layer(), []
    for name, section in leaf_sections(config_type).items():
        if name in leaves:
            value, problem = check_leaf(kinds[section], name, leaves[name])
            layer[name] = (value, place(name))
            problems += [f"{place(name) or f'{section}.{name}'}: {problem}"] if problem else []
    return layer, problems


def config_from_layers(config: Any, *layers: Layer) -> Any:
    """The configuration with the leaves of the layers, of which later ones overwrite earlier ones.

    The number of updates is computed from `total_timesteps`. Raises ConfigError with all invalid combinations.
    """
    values, where, problems = merge_layers(*layers)
    if not problems:
        config, found = _with_num_updates(replace_leaves(config, values))
        problems = [_placed(problem, where) for problem in [*found, *combination_problems(config)]]
    if problems:
        raise ConfigError(problems, "change the values named; docs/configuration.md explains each leaf")
    return config


def merge_layers(*layers: Layer) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """({leaf: value}, {leaf: place}, problems). Later layers overwrite earlier ones."""
    values: dict[str, Any] = {}
    where: dict[str, str] = {}
    problems: list[str] = []
    for layer in layers:
        budgets = [leaf for leaf in ("num_updates", "total_timesteps") if layer.get(leaf, (None,))[0] is not None]
        if len(budgets) == 2:
            place = layer["total_timesteps"][1] or "training_core"
            problems.append(f"{place}: give num_updates or total_timesteps, not both")
        if budgets:  # either one replaces both of the earlier layers
            values |= {"num_updates": None, "total_timesteps": None}
        values |= {leaf: value for leaf, (value, _) in layer.items()}
        where |= {leaf: place for leaf, (_, place) in layer.items()}
    return values, where, problems


def _placed(problem: str, where: Mapping[str, str]) -> str:
    """A problem `section.leaf: ...` with the place of its leaf: `file:line: section.leaf: ...` or `--flag: ...`."""
    path, _, rest = problem.partition(": ")
    place = where.get(path.rpartition(".")[2])
    if not place:
        return problem
    return f"{place}: {rest}" if place.startswith("--") else f"{place}: {problem}"


def _with_num_updates(config: Any) -> tuple[Any, list[str]]:
    total = config.training_core.total_timesteps
    if total is None:
        return config, []
    per_update = steps_per_update(config)
    if total % per_update:
        below, above = total // per_update * per_update, (total // per_update + 1) * per_update
        near = f"{above:,}" if below == 0 else f"{below:,} or {above:,}"
        factors = f"num_envs * rollout_length = {per_update:,}"
        return config, [f"training_core.total_timesteps: {total:,} is not a multiple of {factors}; use {near}"]
    if total // per_update > LARGEST_WHOLE:
        what = f"{total:,} steps are {total // per_update:,} updates, and at most {LARGEST_WHOLE:,} can be counted"
        return config, [f"training_core.total_timesteps: {what}"]
    return replace_leaves(config, {"num_updates": total // per_update, "total_timesteps": None}), []
