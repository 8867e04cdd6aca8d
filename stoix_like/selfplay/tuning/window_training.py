"""Training on the newest window, beside the run of a pipeline, to compare settings.

What is trained is judged by its loss on those games of the window that nothing learns from. One is better than another
if it gains more than three standard errors of the difference, games counted as independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.errors import RunError
from stoix_like.runtime.evaluators.timing import ChunkSizer
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.training.chunk import TimedChunk, chunk_function, timed
from stoix_like.selfplay.files.folders import VALIDATION_FILE, WINDOW_FILE
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages import train
from stoix_like.selfplay.tuning.context import PlateauContext
from stoix_like.types import Learner, NetworkParams

STANDARD_ERRORS = 3.0
LEAST_GAMES = 20  # that are held out; with fewer a standard error says little


class NewestWindow(NamedTuple):
    """The positions of the last iteration's window, and those of it that nothing learns from."""

    learned: dict[str, np.ndarray]
    held_out: dict[str, np.ndarray]
    games: np.ndarray  # [M] int, the game of each position that is held out


def read_window(context: PlateauContext) -> NewestWindow:
    """The window of the last iteration. Raises RunError if too few of its games are held out."""
    last = context.iteration
    folder = context.pipeline.layout.stage(last, "export")
    held_out, learned = (read_arrays(folder / name) for name in (VALIDATION_FILE, WINDOW_FILE))
    games = np.unique(held_out["game_id"], return_inverse=True)[1]
    if (count := len({*games.tolist()})) < LEAST_GAMES:
        what = f"iteration {last} has {count} games that are validated on"
        raise RunError(what, f"a sweep needs {LEAST_GAMES}: raise validation_share, or select another function")
    return NewestWindow(learned, held_out, games)


def num_updates(context: PlateauContext, window: NewestWindow) -> int:
    """The updates of a trial: `plateau_epochs` passes over the window."""
    settings = context.pipeline.settings
    samples = settings.most_gradient_steps * settings.batch_size
    return max(math.ceil(context.options.plateau_epochs * len(window.learned["is_full"]) / samples), 1)


def compiled_chunk(learner: Learner, num_states: int = 1) -> TimedChunk:
    """The chunk of runs, of one state, or of some that are stacked in the fields that the learner does not share."""
    return timed(jax.jit(chunk_function(learner, num_states)))


def train_on_window(chunk: TimedChunk, state: Any, num_updates: int, show: Callable[[int], None]) -> Any:
    """The state so many updates later. `show` is told between chunks how many are done, and may raise."""
    sizer, done = ChunkSizer(), 0
    while done < num_updates:
        show(done)
        length = sizer.next_length(num_updates - done)
        state, _, seconds = chunk(state, length)
        sizer.record(length, seconds)
        done += length
    return state


def held_out_losses(pipeline: Pipeline, params: NetworkParams, window: NewestWindow) -> np.ndarray:
    """[M] losses of the positions that are held out, for the network of this pipeline."""
    found = train.position_losses(pipeline, params, window.held_out)
    full_share = max(float(window.held_out["is_full"].mean()), 1.0 / len(window.games))  # others teach no policy
    return found["policy_loss"] / full_share + pipeline.config.optimization.vf_coef * found["value_loss"]


def is_better(before: np.ndarray, after: np.ndarray, games: np.ndarray) -> bool:
    """Whether the losses `after` [M] are finite, and lower than those `before` by more than chance."""
    gain, error = paired_gain(before, after, games)
    return bool(np.isfinite(after).all()) and not gain <= STANDARD_ERRORS * error  # nan: those before are not finite


def paired_gain(before: np.ndarray, after: np.ndarray, games: np.ndarray) -> tuple[float, float]:
    """(mean of `before` - `after`, its standard error) over positions [M], which are independent between games only."""
    difference = before - after
    mean = float(difference.mean())
    by_game = np.bincount(games, weights=difference - mean)  # [G], sums to 0
    count = len(by_game)
    return mean, float(np.sqrt(np.sum(by_game**2) * count / max(count - 1, 1)) / len(difference))
