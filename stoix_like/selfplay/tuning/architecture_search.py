"""A search of the size of the network, for a pipeline whose champions no longer gain: an example of a plateau hook.

A pipeline cannot change its architecture, so this one changes nothing. Each size learns the newest window from random
parameters, with the same draws, and is judged by its loss on the games that nothing learns from. The one in use learns
so too, because its own parameters have seen many windows. `architectures.json` has the table. If a size is better by
more than chance, a note has the command that begins another pipeline with it.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.alphazero import window_learner
from stoix_like.config.checks.access import replace_leaves
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages import export
from stoix_like.selfplay.tuning.context import PlateauContext
from stoix_like.selfplay.tuning.window_training import (
    NewestWindow,
    compiled_chunk,
    held_out_losses,
    is_better,
    num_updates,
    paired_gain,
    read_window,
    train_on_window,
)

TABLE = "architectures.json"


class Size(NamedTuple):
    """The size of a network, by leaves."""

    hidden_dim: int
    num_layers: int | None  # None: as the network has it


class _Trial(NamedTuple):
    size: Size
    num_parameters: int
    losses: np.ndarray  # [M], of the positions that are held out
    seconds: float


def search_architectures(context: PlateauContext) -> dict[str, Any]:
    """No leaves: what is found stands in `architectures.json`, and in a note.

    Raises:
        RunError: the last iteration has too few games that are validated on.
        CheckpointError: its files are missing or damaged.
        Interrupted: it is stopped.
    """
    window, sizes = read_window(context), sizes_of(context)
    progress = Progress(
        context.pipeline.reporter,
        context.pipeline.stop,
        "plateau",
        "updates",
        len(sizes) * num_updates(context, window),
    )
    trials, end = list[_Trial](), time.monotonic() + context.options.plateau_seconds
    for size in sizes:
        if len(trials) < 2 or time.monotonic() < end:
            trials.append(_trial(context, window, size, progress))
            atomic_write_json(context.folder / TABLE, [_row(trial, trials[0], window) for trial in trials])
    best = min(trials, key=lambda trial: _mean(trial.losses))
    if best is not trials[0] and is_better(trials[0].losses, best.losses, window.games):
        context.pipeline.reporter.note(_proposal(context, trials[0], best))
    return {}


def sizes_of(context: PlateauContext) -> list[Size]:
    """At most `plateau_trials`: the present size, wider, narrower, and where `num_layers` is set, deeper."""
    section = context.pipeline.config.architecture
    width, depth = section.hidden_dim, section.num_layers
    sizes = [Size(width, depth), Size(2 * width, depth), Size(max(width // 2, 1), depth)]
    sizes += [] if depth is None else [Size(width, depth + 1), Size(2 * width, depth + 1)]
    return sizes[: context.options.plateau_trials]


def _trial(context: PlateauContext, window: NewestWindow, size: Size, progress: Progress) -> _Trial:
    """What a network of this size has learned from the window."""
    pipeline, began = context.pipeline, time.monotonic()
    updates = num_updates(context, window)
    config = replace_leaves(pipeline.config, size._asdict())
    other = Pipeline(config, pipeline.reporter, pipeline.stop)
    state = jax.jit(other.learner.init)(other.root)
    state = window_learner.window_of(state, export.samples_of(other, window.learned))
    state = state._replace(hyper=state.hyper._replace(num_updates=jnp.float32(updates)))
    before = progress.done
    state = train_on_window(compiled_chunk(other.learner), state, updates, lambda done: progress.update(before + done))
    progress.show(before + updates)
    params = state.params.average
    num_parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    return _Trial(size, num_parameters, held_out_losses(other, params, window), time.monotonic() - began)


def _mean(losses: np.ndarray) -> float:
    """The mean loss; infinite if it is not finite."""
    mean = float(losses.mean())
    return mean if math.isfinite(mean) else math.inf


def _row(trial: _Trial, first: _Trial, window: NewestWindow) -> dict[str, Any]:
    gain, error = paired_gain(first.losses, trial.losses, window.games)
    numbers = {"loss": float(trial.losses.mean()), "gain": gain, "standard_error": error}
    return {**trial.size._asdict(), "num_parameters": trial.num_parameters, **numbers, "seconds": trial.seconds}


def _proposal(context: PlateauContext, first: _Trial, best: _Trial) -> str:
    layout, leaves = context.pipeline.layout, {name: n for name, n in best.size._asdict().items() if n is not None}
    words = [word for name, number in leaves.items() for word in (f"--{name.replace('_', '-')}", str(number))]
    folder = "-".join([str(layout.root.parent), *map(str, leaves.values())])
    game = ("--board-type", context.pipeline.game.name, "--save-dir", folder)
    found = f"{', '.join(f'{name} {number}' for name, number in leaves.items())} learns the window better"
    losses = f"loss {_mean(best.losses):.4f} instead of {_mean(first.losses):.4f}"
    again = "a pipeline of that size, to which the other flags of this one are added"
    return f"{layout.root.name}: {found}, {losses}; {again}: {command_line('run-training-loop', *game, *words)}"
