"""What `compare_search.py` takes: the methods by name, the settings of a comparison, and the flags that give them."""

from __future__ import annotations

from typing import NamedTuple

from stoix_like.runtime.console.arguments import (
    LARGEST_SEED,
)

#: {method: what it is}; more in `methods.py`.
METHODS = {
    "greedy": "the most probable actions",
    "sampled": "sampled actions",
    "best_of": "the best of as many whole sampled episodes as the budget",
    "smc": "4 steps deep, independent first actions, resampled every second step, valued by the critic",
    "distinct": "the most probable first actions, each followed greedily to the end of the episode",
    "plan": "the same followed by sampled actions, keeping to the best path found so far",
    "own": "the run's own search, of an SPO run, at its own size",
}
DEFAULT_LEVELS = 256
DEFAULT_NUM_ENVS = 128
LEARNED = "dual"


class ComparisonSettings(NamedTuple):
    """What is compared and how it is played."""

    methods: tuple[str, ...] = tuple(METHODS)
    budgets: tuple[int, ...] = (16, 64, 256, 1024)  # model steps per decision, ascending
    temperature: float | None = 0.005  # of smc, reward units; None: the one an SPO run has learned
    num_envs: int | None = None  # levels played at a time; None: 128, and fewer where there are many particles
    seed: int = LARGEST_SEED  # of sampling
