"""The functions that a master loop may start on a plateau, by name: those that are shipped, and registered ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stoix_like.config.checks.values import nearest
from stoix_like.config.sections.master_loop import PlateauHookConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.sweeps.cma_es import require_cma_es
from stoix_like.selfplay.tuning.architecture_search import search_architectures
from stoix_like.selfplay.tuning.context import PlateauFunction
from stoix_like.selfplay.tuning.rate_sweep import sweep_rates


class _Hook(NamedTuple):
    function: PlateauFunction
    require: Callable[[], None] = lambda: None  # raises MissingExtraError if a package of it is missing


_hooks: dict[str, _Hook] = {"cma_es": _Hook(sweep_rates, require_cma_es), "architectures": _Hook(search_architectures)}


def register_plateau_hook(name: str, function: PlateauFunction) -> None:
    """Makes a function known by a name, for `plateau_hook.plateau_function` of `sl.run_master` in this process.

    Args:
        name: a new one.
        function: receives a `PlateauContext`, and returns {leaf: value} for the iterations that follow.

    Raises:
        ConfigError: the name is taken.
    """
    if name in _hooks:
        raise ConfigError(f"register_plateau_hook: the name '{name}' is taken", "give another name")
    _hooks[name] = _Hook(function)


def check_plateau_hook(options: PlateauHookConfig) -> None:
    """Raises ConfigError if the function is not known, and MissingExtraError if a package of it is missing."""
    if not options.plateau_hook:
        return
    if options.plateau_function not in _hooks:
        name = options.plateau_function
        what = f"plateau_hook.plateau_function: '{name}' is not registered{nearest(name, _hooks)}"
        raise ConfigError(what, f"known are {', '.join(_hooks)}; sl.register_plateau_hook adds one for sl.run_master")
    _hooks[options.plateau_function].require()


def function_of(name: str) -> PlateauFunction:
    """The function of a name that was checked."""
    return _hooks[name].function
