"""The jitted program of a run: a chunk of any number of updates, with metrics accumulated on the device.

Nothing leaves the device during a chunk. One compilation serves every length.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.stages import Compiled

from stoix_like.algorithms.rollout import refuse_breaches
from stoix_like.ops import trees
from stoix_like.runtime.telemetry.metrics import reduce_metrics
from stoix_like.types import Learner, Metrics, metric_reduction

#: The compiled chunk: (state, number of updates) -> (state, accumulated metrics). The state is donated.
ChunkFunction = Callable[[Any, Any], tuple[Any, Metrics]]
#: The same, waited for: (state, number of updates) -> (state, accumulated metrics, wall-clock seconds).
TimedChunk = Callable[[Any, int], tuple[Any, Metrics, float]]


def chunk_function(learner: Learner, num_seeds: int) -> ChunkFunction:
    """A pure function: `length` updates of one state, or of `num_seeds` stacked states, and their metrics [S]."""

    def chunk(state: Any, length: Any) -> tuple[Any, Metrics]:
        axes = trees.seed_axes(state, learner.shared)
        every_seed = trees.over_seeds(learner.update, learner.seeds, (axes,), (axes, 0))
        # Jitted so that it is traced once, for `eval_shape` and for the loop.
        update = jax.jit(learner.update if num_seeds == 1 else every_seed)

        def body(_: Any, carry: tuple[Any, Metrics]) -> tuple[Any, Metrics]:
            state, total = carry
            state, metrics = update(state)
            return state, trees.accumulate_metrics(total, metrics)

        _, example = jax.eval_shape(update, state)
        return jax.lax.fori_loop(0, length, body, (state, trees.empty_metrics(example)))

    return chunk


def compile_chunk(learner: Learner, num_seeds: int, state: Any) -> Compiled:
    """The compiled chunk for this state's shapes and placement."""
    placed = jax.tree.map(lambda x: x.sharding, state)  # the state keeps its placement
    chunk = jax.jit(chunk_function(learner, num_seeds), donate_argnums=0, out_shardings=(placed, None))
    return chunk.lower(state, np.int32(0)).compile()


def timed(program: ChunkFunction) -> TimedChunk:
    """The program, which waits for its results and times them."""

    def run(state: Any, length: int) -> tuple[Any, Metrics, float]:
        began = time.monotonic()
        state, metrics = jax.block_until_ready(program(state, np.int32(length)))
        return state, metrics, time.monotonic() - began

    return run


class MetricAccumulator:
    """Metrics of the chunks since the last report, combined on the host by the same rules as on the device.

    Attributes:
        updates, seconds: of these chunks.
    """

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._totals: dict[str, np.ndarray] = {}
        self.updates = 0
        self.seconds = 0.0

    def add(self, metrics: Metrics, updates: int, seconds: float) -> None:
        """Adds the metrics of one chunk; blocks until the device has computed them.

        Raises UnsupportedEnvironmentError, see `refuse_breaches`.
        """
        metrics = refuse_breaches(metrics, self._task_id)
        combine = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}
        for name, value in jax.device_get(metrics).items():
            new = np.atleast_1d(np.asarray(value, np.float64))
            old = self._totals.get(name)
            self._totals[name] = new if old is None else combine[metric_reduction(name)](old, new)
        self.updates += updates
        self.seconds += seconds

    def take(self) -> dict[str, np.ndarray]:
        """The reduced metrics, {name: [S]}, since the last call; resets them."""
        taken = reduce_metrics(self._totals, self.updates)
        self._totals, self.updates, self.seconds = {}, 0, 0.0
        return taken
