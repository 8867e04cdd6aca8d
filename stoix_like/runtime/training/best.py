"""The parameters that scored best, per seed: kept on the device and, whenever they change, in `checkpoints/best`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.ops import trees
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.types import Params


class BestCheckpoint:
    """Stores the parameters that were scored, not those of an update before or after.

    Args:
        folder: where it is kept.
        num_seeds: S.
        level_set_id: what scores are means over, as plain JSON values; scores of other levels are not compared.

    Attributes:
        scores: best mean return per seed, [S]; -inf before the first evaluation.
        updates: the update each was scored at, [S].
    """

    def __init__(self, folder: Path, num_seeds: int, level_set_id: Mapping[str, Any] | None = None) -> None:
        self._store = CheckpointStore(folder, create=True)
        self._num_seeds = num_seeds
        self._level_set_id = dict(level_set_id or {})
        self._params: Params = None
        self.scores = np.full(num_seeds, -np.inf)
        self.updates = np.full(num_seeds, -1)

    def restore(self, template: Params, last_update: int) -> bool:
        """Takes up what an interrupted run had found up to `last_update`; what was found later is removed.

        It is found again, unless the run goes on with other values, and then it belongs to no run at all. False if
        there is one that was scored on other levels: it stays on disk until the next evaluation replaces it.
        """
        for update in self._store.updates():
            if update > last_update:
                self._store.remove(update)
        if not self._store.updates():
            return True
        host = self._store.load_meta().host
        if host.get("scored_on", self._level_set_id) != self._level_set_id:
            return False
        self._params = self._store.load_part("params", template)
        self.scores = np.array(host["scores"], float)
        self.updates = np.array(host["updates"], int)
        return True

    def update(self, params: Params, scores: np.ndarray, meta: CheckpointMeta) -> bool:
        """True if a seed's score is better than all before it; its parameters are then copied and saved.

        Args:
            params: of all seeds, [S, ...] (or [...] for one seed), exactly as they were scored.
            scores: mean returns [S].
            meta: of this update; its host part is replaced.
        """
        better = scores > self.scores
        if not better.any():
            return False
        if self._params is None or self._num_seeds == 1:
            self._params = jax.tree.map(jnp.copy, params)  # the loop donates its own
        else:
            self._params = trees.where(jnp.asarray(better), params, self._params)
        self.scores = np.where(better, scores, self.scores)
        self.updates = np.where(better, meta.update, self.updates)
        host = {"scores": self.scores.tolist(), "updates": self.updates.tolist(), "scored_on": self._level_set_id}
        self._store.save({"params": self._params}, meta._replace(host=host), replace=True)
        return True

    def prune(self, older_than: int) -> None:
        """Removes what a run that falls back to the checkpoint of update `older_than`, or to a later one, never needs.

        That is all older than the newest best as of then; what scored better afterwards stays beside it.
        """
        for update in [update for update in self._store.updates() if update <= older_than][:-1]:
            self._store.remove(update)
