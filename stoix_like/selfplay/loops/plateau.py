"""What a master loop starts when the champions of a game no longer gain: one registered function, if it is enabled.

Whether it is due is a function of manifests and of earlier results. So a killed process starts it again; a result, a
failure too, ends it, and the next one is due after twice as many iterations if nothing was found.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoix_like.config.checks.access import get_leaf
from stoix_like.config.sections.master_loop import PlateauHookConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.events import history
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.iteration_start import read_start
from stoix_like.selfplay.files.tuned_leaves import TuningResult, read_result, tuned_leaves, with_leaves, write_result
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.loops.attempts import failure_text
from stoix_like.selfplay.pipeline.game_bounds import check_bounds
from stoix_like.selfplay.tuning import registry
from stoix_like.selfplay.tuning.context import PlateauContext

if TYPE_CHECKING:
    from stoix_like.selfplay.loops.runner import GameRunner

STARTS, MOST_STARTS = "starts.json", 3  # of a function that never came back: it has ended the process
_MOST_DOUBLINGS = 6


def due_iteration(layout: Layout, rule: WatchRule) -> int | None:
    """The last iteration of a game, if the function is to be started after it: between two iterations, on a plateau.

    After a result it is due when so many iterations have been made that another plateau could have been seen, and
    twice as many after each one in a row that has no leaves. Raises CheckpointError if a file cannot be read.
    """
    last = begin.next_iteration(layout) - 1
    recent = list(itertools.islice(history.results(layout), rule.plateau_iterations))
    if read_start(layout, last + 1) is not None or history.plateau(recent, rule) is None:
        return None
    results = [(n, one) for n in reversed(layout.plateaus()) if (one := read_result(layout, n)) is not None]
    if not results:
        return last
    fruitless = sum(1 for _ in itertools.takewhile(lambda one: not one[1].leaves, results))
    return last if last - results[0][0] >= rule.plateau_iterations * 2 ** min(fruitless, _MOST_DOUBLINGS) else None


def run_plateau_hook(runner: GameRunner, options: PlateauHookConfig, last: int) -> TuningResult:
    """Starts the function after an iteration, and keeps its result. Called under the lock of the game.

    Raises Interrupted if it is stopped, and OSError or RunError if its result cannot be kept.
    """
    folder, pipeline = runner.layout.plateau(last), runner.pipeline
    folder.mkdir(parents=True, exist_ok=True)
    leaves, error = dict[str, Any](), None
    try:
        _count_start(folder / STARTS)
        context = PlateauContext(pipeline, runner.configured, last, folder, options)
        leaves = _checked(registry.function_of(options.plateau_function)(context))
        check_bounds(pipeline.game, with_leaves(pipeline.config, leaves))
    except Interrupted:
        (folder / STARTS).unlink(missing_ok=True)
        if not runner.stop.go_on():
            raise
        leaves, error = {}, "it did not end in time"
    except Exception as problem:
        leaves, error = {}, failure_text(problem, pipeline.reporter)
    held = tuned_leaves(runner.configured, runner.layout) | leaves if leaves else {}
    result = TuningResult(held, {leaf: get_leaf(runner.configured, leaf) for leaf in held}, error, time.time())
    write_result(runner.layout, last, result)
    pipeline.reporter.note(f"{runner.game}: {_text(options.plateau_function, leaves, error)}")
    if error is not None:
        runner.attempts.emit_failure(last, "plateau_hook", error, is_open=False)
    return result


def run_if_due(runner: GameRunner, options: PlateauHookConfig, last: int, rule: WatchRule) -> None:
    """`run_plateau_hook`, unless another process has had the lock since this one has looked, and it is due no more."""
    if due_iteration(runner.layout, rule) == last:
        run_plateau_hook(runner, options, last)


def _checked(found: object) -> dict[str, Any]:
    """What a function has returned; None is nothing."""
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"it returned {found!r}", "return {leaf: value}, such as {'actor_lr': 0.001}")
    return dict(found or {})


def _count_start(path: Path) -> None:
    """Counts a start. Raises RuntimeError if those before were so many, of which none came back."""
    starts = int(json.loads(path.read_bytes())) if path.is_file() else 0
    if starts >= MOST_STARTS:
        raise RuntimeError(f"it has ended the process {starts} times")
    atomic_write_json(path, starts + 1)


def _text(name: str, leaves: Mapping[str, Any], error: str | None) -> str:
    if error is not None:
        return f"{name} has failed: {error}"
    texts = (f"{leaf} {value:.4g}" if isinstance(value, float) else f"{leaf} {value}" for leaf, value in leaves.items())
    return (
        f"{name}: the next iterations have {', '.join(texts)}" if leaves else f"{name}: the settings stay as they are"
    )
