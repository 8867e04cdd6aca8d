"""Scores of parameters on items, such as prompts, by a learner that has no policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, Literal, cast

import jax
import numpy as np

from stoix_like.errors import RunError
from stoix_like.ops import trees
from stoix_like.runtime.evaluators.episode_player import PlayProgress, play_to_end
from stoix_like.runtime.evaluators.scores import Levels, Scores
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.telemetry.metrics import EvaluationMode
from stoix_like.types import Array, Key, Learner, Params, role_key

SCORE, LENGTH = "score", "length"
_Score = Callable[[Params, Any, Key], dict[str, Array]]
MEMORY_HINT = "score fewer items at a time: --num-eval-envs"


def metrics_of_items(learner: Learner) -> list[str]:
    """The names of what a learner scores of items, beside returns and lengths. Nothing is computed."""
    key = jax.random.key(0)
    items = jax.tree.map(lambda x: np.asarray(x)[:1], learner.items)
    params = jax.eval_shape(learner.init, key).params
    found = jax.eval_shape(cast(_Score, learner.score), params, items, jax.random.split(key, 1))
    return [name for name in found if name not in (SCORE, LENGTH)]


class ItemEvaluator:
    """Evaluates by `Learner.score`, in slices of items. It takes the place of an `Evaluator`.

    `score` is reported as the return of an episode is, so that the best parameters are chosen by it; `length`, if it is
    there, as the length of an episode.

    Args:
        score: (params, items [N, ...], keys [N]) -> arrays [N] by name, `score` among them; higher is better.
        items: pytree of host arrays [E, ...].
        num_at_once: N, the size of a slice. It changes no score: the key of an item depends on its index alone.
        num_seeds: S. With several, parameters and keys have a leading axis [S].
        seeds: how several seeds are computed, see `trees.over_seeds`.
        mode: names the metrics.
    """

    def __init__(
        self,
        score: _Score,
        items: Any,
        num_at_once: int,
        num_seeds: int = 1,
        *,
        seeds: Literal["vmap", "map"] = "vmap",
        mode: EvaluationMode = "deterministic",
    ) -> None:
        self.mode = mode
        self._num_items = len(jax.tree.leaves(items)[0])
        self.levels = Levels(self._num_items)
        self._items, self._num_seeds = items, num_seeds
        self._num_at_once = min(num_at_once, self._num_items)
        self._program: Any = None

        def score_slice(params: Params, some: Any, indices: Array, root: Key, update: Array) -> dict[str, Array]:
            key = role_key(root, "evaluation", update)
            return score(params, some, jax.vmap(lambda index: jax.random.fold_in(key, index))(indices))

        axes = (0, None, None, 0, None)
        self._score = score_slice if num_seeds == 1 else trees.over_seeds(score_slice, seeds, axes)

    def compile(self, params: Params, root: Key) -> None:
        """Compiles the program before the first evaluation. Raises RunError if that runs out of memory."""
        if self._program is None:
            with reraise_device_errors("the evaluation cannot be compiled", MEMORY_HINT):
                self._program = jax.jit(self._score).lower(params, *self._slice(0), root, np.int32(0)).compile()

    def __call__(self, params: Params, root: Key, update: int, report: Callable[[str], None] | None = None) -> Scores:
        """Scores of the parameters, see `play`. `report` receives the progress every ten seconds."""
        return play_to_end(self.play(params, root, update), report)

    def play(self, params: Params, root: Key, update: int) -> Generator[PlayProgress, int, Scores]:
        """Yields the progress before each slice, and is sent a number above 0 to score it, as `EpisodePlayer.play`.

        Raises RunError if memory runs out, or if there is no finite `score` for each item.
        """
        self.compile(params, root)
        began = time.monotonic()
        found: list[dict[str, np.ndarray]] = []
        num_slices = -(-self._num_items // self._num_at_once)
        while True:
            index = len(found)
            ended, is_over = min(index * self._num_at_once, self._num_items), index == num_slices
            total = self._num_items * self._num_seeds
            steps = yield PlayProgress(ended * self._num_seeds, total, index, is_over, int(not is_over))
            if steps == 0:
                break
            if not is_over:  # others may not have ended: nothing more is scored
                with reraise_device_errors("the evaluation cannot be computed", MEMORY_HINT):
                    part = jax.block_until_ready(self._program(params, *self._slice(index), root, np.int32(update)))
                found.append(jax.device_get(part))
        return Scores(self._results(found), (), time.monotonic() - began, None)

    def _slice(self, index: int) -> tuple[Any, np.ndarray]:
        """(items [N, ...], their indices [N]); the last slice is filled up with the first items."""
        indices = (np.arange(self._num_at_once) + index * self._num_at_once) % self._num_items
        return jax.tree.map(lambda x: np.asarray(x)[indices], self._items), indices.astype(np.int32)

    def _results(self, found: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """{metric: [S, E]}."""
        of_one = self._num_seeds == 1
        joined = {
            name: np.concatenate([part[name][None] if of_one else part[name] for part in found], axis=1)
            for name in found[0]
        }
        results = {name: values[:, : self._num_items] for name, values in joined.items()}
        if SCORE not in results or not np.isfinite(results[SCORE]).all():
            what = "no `score`" if SCORE not in results else "a `score` that is not finite"
            raise RunError(f"the learner returned {what} of an item", "return a finite number for each item")
        score = results.pop(SCORE)
        length = results.pop(LENGTH, np.ones_like(score))
        return {"episode_return": score, "episode_length": length} | results
