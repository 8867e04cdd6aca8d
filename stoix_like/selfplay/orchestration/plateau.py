"""What a master loop starts when the champions of a game no longer gain: one registered function, if it is enabled.

Whether it is due is read from disk: a plateau that lasts, its PLATEAU_DETECTED, and no result since. So a killed
process starts it again, and a result ends it, a failure too, until the next such event.
"""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stoix_like.config.checks import get_leaf
from stoix_like.config.unified_loop import PlateauHookConfig
from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError, StoixError
from stoix_like.selfplay import iteration
from stoix_like.selfplay.folders import Layout
from stoix_like.selfplay.found_leaves import FoundLeaves, read_result, with_leaves, write_result
from stoix_like.selfplay.iteration_start import read_start
from stoix_like.selfplay.orchestration import history
from stoix_like.selfplay.orchestration.event_log import EventLog
from stoix_like.selfplay.orchestration.events import PlateauDetected
from stoix_like.selfplay.orchestration.history import WatchRule
from stoix_like.selfplay.progress import Interrupted

if TYPE_CHECKING:
    from stoix_like.selfplay.orchestration.runner import GameRunner
    from stoix_like.selfplay.pipeline import Pipeline

CMA_ES = "cma_es"  # the function that is shipped


class PlateauContext(NamedTuple):
    """What a function is given.

    Attributes:
        pipeline: of the game, with its programs and its present configuration.
        iteration: the last one, which is finished; no other has begun.
        folder: where it may keep files; the same when it is started again after a kill.
        options: of the section `plateau_hook`.
    """

    pipeline: Pipeline
    iteration: int
    folder: Path
    options: PlateauHookConfig


#: Returns {leaf: value} for the next iterations, empty to change nothing. It looks at `pipeline.stop` now and then.
PlateauFunction = Callable[[PlateauContext], Mapping[str, Any]]
_functions: dict[str, PlateauFunction] = {}


def register_plateau_hook(name: str, function: PlateauFunction) -> None:
    """Makes a function known by a name, which `plateau_hook.function` of a master loop then takes.

    Args:
        name: a new one.
        function: receives a `PlateauContext`, and returns {leaf: value} for the iterations that follow.

    Raises:
        ConfigError: the name is taken.
    """
    if name in _known():
        raise ConfigError(f"register_plateau_hook: the name '{name}' is taken", "give another name")
    _functions[name] = function


def _known() -> list[str]:
    return [CMA_ES, *_functions]


def check_plateau_hook(options: PlateauHookConfig) -> None:
    """Raises ConfigError if the function is not known, and MissingExtraError if a package of it is missing."""
    if not options.enabled:
        return
    if options.function not in _known():
        what = f"plateau_hook.function: '{options.function}' is not registered{nearest(options.function, _known())}"
        raise ConfigError(what, f"known are {', '.join(_known())}; sl.register_plateau_hook adds one")
    if options.function == CMA_ES:
        from stoix_like.runtime.sweeps.cma_es import require_cma_es

        require_cma_es()


def due_iteration(log: EventLog, layout: Layout, rule: WatchRule) -> int | None:
    """The last iteration of a game, if the function is to be started after it.

    That is between two iterations, as long as a plateau that was told has neither ended nor been answered.
    """
    following = iteration.next_iteration(layout)
    if read_start(layout, following) is not None:
        return None
    recent = list(itertools.islice(history.results(layout), rule.plateau_iterations))
    if history.plateau(recent, rule) is None:
        return None
    told = [one.iteration for one in recent if log.count(layout.root.name, one.iteration, PlateauDetected.kind)]
    answered = [number for number in layout.plateaus() if read_result(layout, number) is not None]
    return following - 1 if told and max(answered, default=0) < told[0] else None


def answer(runner: GameRunner, options: PlateauHookConfig, last: int) -> FoundLeaves:
    """Starts the function, and keeps its result. Called under the lock of the game.

    Raises Interrupted if it is stopped, and OSError if its result cannot be written.
    """
    folder, pipeline = runner.layout.plateau(last), runner.pipeline
    folder.mkdir(parents=True, exist_ok=True)
    leaves, error = dict[str, Any](), None
    try:
        leaves = dict(_function(options.function)(PlateauContext(pipeline, last, folder, options)))
        with_leaves(pipeline.config, leaves)
    except Interrupted:
        if not runner.stop.timed_out:
            raise
        leaves, error = {}, "it did not end in time"
    except Exception as problem:
        if not isinstance(problem, StoixError):
            pipeline.reporter.warning(traceback.format_exc())
        leaves, error = {}, problem.line if isinstance(problem, StoixError) else repr(problem)
    result = FoundLeaves(leaves, {leaf: get_leaf(runner.configured, leaf) for leaf in leaves}, error, time.time())
    write_result(runner.layout, last, result)
    pipeline.reporter.note(f"{runner.game}: {_text(options.function, result)}")
    runner.take_found_leaves()
    return result


def _function(name: str) -> PlateauFunction:
    if name in _functions:
        return _functions[name]
    from stoix_like.selfplay.orchestration.rate_sweep import sweep_rates  # not while a configuration is checked

    return sweep_rates


def _text(name: str, result: FoundLeaves) -> str:
    if result.error is not None:
        return f"{name} has failed: {result.error}"
    found = ", ".join(
        f"{leaf} {value:.4g}" if isinstance(value, float) else f"{leaf} {value}"
        for leaf, value in result.leaves.items()
    )
    return f"{name}: the next iterations have {found}" if found else f"{name}: nothing better was found"
