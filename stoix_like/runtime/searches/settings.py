"""The names of the methods that `compare_search.py` compares, and the settings of a comparison."""

from __future__ import annotations

from typing import NamedTuple

from stoix_like.runtime.console.arguments import LARGEST_SEED

#: {method: description}; see `methods.py`.
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
LEARNED = "dual"  # the value of --temperature for the learned one


class ComparisonSettings(NamedTuple):
    """The methods and budgets of a comparison, and how they are played."""

    methods: tuple[str, ...] = tuple(METHODS)
    budgets: tuple[int, ...] = (16, 64, 256, 1024)  # model steps per decision, ascending
    temperature: float | None = 0.005  # of smc, reward units; None: the one that an SPO run has learned
    num_envs: int | None = None  # levels played at a time; None: 128, and fewer if there are many particles
    seed: int = LARGEST_SEED  # of sampling
