"""Elo: the logistic scale on which a difference of 400 means ten times the odds (Elo 1978)."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

POINTS_PER_DECADE = 400.0
SCALE = POINTS_PER_DECADE / np.log(10.0)  # Elo of a unit of strength, the natural logarithm of odds

Difference = TypeVar("Difference", float, np.ndarray)


def expected_score(difference: Difference) -> Difference:
    """The mean score of a player who is so many Elo stronger."""
    return 1.0 / (1.0 + 10.0 ** (-difference / POINTS_PER_DECADE))


def elo_difference(score: float) -> float:
    """The difference in Elo at which that score is expected; infinite of 0 and 1."""
    if 0.0 < score < 1.0:
        return POINTS_PER_DECADE * math.log10(score / (1.0 - score))
    return -math.inf if score <= 0.0 else math.inf
