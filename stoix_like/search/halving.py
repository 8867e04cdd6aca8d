"""The schedule of Sequential Halving (Karnin et al. 2013, "Almost optimal exploration in multi-armed bandits")."""

from __future__ import annotations

import numpy as np


def considered_visits(num_considered: int, num_simulations: int) -> np.ndarray:
    """The schedule of Sequential Halving, [S] int32: simulation s goes to one of the actions with so many visits.

    Rounds in which each action of those that remain is visited once follow each other; in each of log2(m) phases there
    are as many rounds as an equal share of the simulations has room for, at least one. Then the better half remains,
    at least two actions. What remains is never stored: the worse half lags behind in visits.
    """
    if num_considered <= 1:
        return np.arange(num_simulations, dtype=np.int32)
    num_phases = (num_considered - 1).bit_length()  # log2, rounded up
    schedule = np.zeros((0,), np.int32)
    remaining, visits = num_considered, 0
    while len(schedule) < num_simulations:
        rounds = max(1, num_simulations // (num_phases * remaining))
        schedule = np.append(schedule, np.repeat(np.arange(visits, visits + rounds, dtype=np.int32), remaining))
        remaining, visits = max(2, remaining // 2), visits + rounds
    return schedule[:num_simulations]
