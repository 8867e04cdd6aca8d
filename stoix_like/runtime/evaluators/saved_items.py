"""Evaluation of a saved run that has no policy, such as a language agent's: its own scores of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from stoix_like.config.checks.access import leaf_sections, replace_leaves
from stoix_like.errors import ConfigError
from stoix_like.runtime.evaluators.items import ItemEvaluator

if TYPE_CHECKING:
    from stoix_like.runtime.runs.saved import SavedRun

MOST_AT_ONCE = 64  # items scored at a time, unless the user says another number


def item_evaluator(
    saved: SavedRun, num_items: int, level_set: str | None, num_at_once: int | None
) -> tuple[ItemEvaluator, Any]:
    """(the evaluator, its items) of the run's learner, with as many levels as are asked for.

    The items of a learner that plays no levels are those it was made with.

    Raises:
        ConfigError: the learner has neither policy nor scores, or no such level set.
    """
    from stoix_like.runtime.runs.build import build

    leaves: dict[str, Any] = {"num_eval_episodes": num_items, "level_set": level_set}
    known = {name: value for name, value in leaves.items() if name in leaf_sections(saved.config.__class__)}
    learner = build(saved.meta.algorithm, replace_leaves(saved.config, known)).learner
    if learner.score is None or learner.items is None:
        raise ConfigError(f"{saved.path} has neither a policy nor scores", "give the learner `score` and `items`")
    evaluator = ItemEvaluator(learner.score, learner.items, num_at_once or MOST_AT_ONCE, seeds=learner.seeds)
    return evaluator, learner.items


def ceiling_of_items(saved: SavedRun, items: Any) -> float | None:
    """The mean success of the best player on levels, if the items are keys of levels and it can be computed."""
    import jax

    from stoix_like.evaluation import levels

    is_keys = isinstance(items, np.ndarray) and items.dtype == np.uint32
    if saved.env.ceiling is None or not is_keys:
        return None
    return float(levels.ceilings(saved.env, jax.random.wrap_key_data(items)).mean())
