"""The best-scoring parameters of each seed, on the device and in `checkpoints/best`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.ops import trees
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.host_values import BestScores, best_scores
from stoix_like.types import Params


class BestCheckpoint:
    """Stores exactly the parameters that were scored. Scores on levels of another `level_set_id` are not compared."""

    def __init__(self, store: CheckpointStore, num_seeds: int, level_set_id: Mapping[str, Any] | None = None) -> None:
        self._store = store
        self._num_seeds = num_seeds
        self._level_set_id = dict(level_set_id or {})
        self._params: Params = None
        self.scores = np.full(num_seeds, -np.inf)  # [S], best mean returns
        self.updates = np.full(num_seeds, -1)  # [S], at which they were scored

    def restore(self, template: Params, last_update: int) -> bool:
        """Loads the best parameters as of `last_update` and removes later ones. False if other levels were scored.

        A resumed run evaluates those later updates again; if it continues with other settings, they are obsolete.
        Parameters scored on other levels stay on disk until the next evaluation replaces them.
        """
        for update in self._store.updates():
            if update > last_update:
                self._store.remove(update)
        if not self._store.updates():
            return True
        best = best_scores(self._store.load_meta())
        if best is None or best.scored_on not in (None, self._level_set_id):
            return False
        self._params = self._store.load_part("params", template)
        self.scores = np.array(best.scores, float)
        self.updates = np.array(best.updates, int)
        return True

    def update(self, params: Params, scores: np.ndarray, meta: CheckpointMeta) -> bool:
        """Whether the mean return [S] of a seed is its best so far; its parameters are then copied and saved.

        Parameters are those of all seeds, [S, ...] (or [...] for one seed), exactly as they were scored.
        """
        better = scores > self.scores
        if not better.any():
            return False
        if self._params is None or self._num_seeds == 1:
            self._params = jax.tree.map(jnp.copy, params)  # the next chunk donates the originals
        else:
            self._params = trees.where(jnp.asarray(better), params, self._params)
        self.scores = np.where(better, scores, self.scores)
        self.updates = np.where(better, meta.update, self.updates)
        best = BestScores(self.scores.tolist(), self.updates.tolist(), self._level_set_id)
        self._store.save({"params": self._params}, meta._replace(host=best.to_host()), replace=True)
        return True

    def prune(self, older_than: int) -> None:
        """Keeps the newest best parameters up to update `older_than`, and all later ones; removes the rest.

        A run resumed from the checkpoint of `older_than`, or from a later one, needs no others.
        """
        for update in [update for update in self._store.updates() if update <= older_than][:-1]:
            self._store.remove(update)
