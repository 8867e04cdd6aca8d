"""The jitted program of a run: a chunk of any number of updates, with metrics accumulated on the device.

Nothing leaves the device during a chunk. One compilation serves every length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.stages import Compiled

from stoix_like.ops import trees
from stoix_like.types import Learner, Metrics, metric_reduction

#: The compiled chunk: (state, number of updates) -> (state, accumulated metrics). The state is donated.
ChunkFunction = Callable[[Any, Any], tuple[Any, Metrics]]


def chunk_function(learner: Learner, num_seeds: int) -> ChunkFunction:
    """A pure function: `length` updates of one state, or of `num_seeds` stacked states, and their metrics [S]."""
    # Jitted so that it is traced once, for `eval_shape` and for the loop.
    update = jax.jit(learner.update if num_seeds == 1 else jax.vmap(learner.update))

    def chunk(state: Any, length: Any) -> tuple[Any, Metrics]:
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


class MetricAccumulator:
    """Metrics of the chunks since the last report, combined on the host by the same rules as on the device."""

    def __init__(self) -> None:
        self._totals: dict[str, np.ndarray] = {}
        self.updates = 0
        self.seconds = 0.0

    def add(self, metrics: Metrics, updates: int, seconds: float) -> None:
        """Adds the metrics of one chunk; blocks until the device has computed them."""
        combine = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}
        for name, value in jax.device_get(metrics).items():
            new = np.atleast_1d(np.asarray(value, np.float64))
            old = self._totals.get(name)
            self._totals[name] = new if old is None else combine[metric_reduction(name)](old, new)
        self.updates += updates
        self.seconds += seconds

    def take(self) -> tuple[dict[str, np.ndarray], int, float]:
        """(accumulated metrics [S], updates, seconds) since the last call; resets them."""
        taken = (self._totals, self.updates, self.seconds)
        self._totals, self.updates, self.seconds = {}, 0, 0.0
        return taken
