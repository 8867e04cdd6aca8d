"""Which share of a run's time its evaluations take, told once where it is large."""

from __future__ import annotations

import math

LARGE = 0.1  # of the time; more is told


class EvaluationTimeShare:
    """Counts what is trained between evaluations."""

    def __init__(self) -> None:
        self._seconds, self._updates = 0.0, 0
        self._is_told = False

    def train(self, updates: int, seconds: float) -> None:
        """Takes note of a chunk of updates."""
        self._seconds += seconds
        self._updates += updates

    def evaluate(self, seconds: float, *, is_last: bool) -> str | None:
        """A note after the first of several evaluations, if they are going to take much of the time."""
        training, updates = self._seconds, self._updates
        self._seconds, self._updates = 0.0, 0
        if self._is_told or is_last or training <= 0.0:
            return None
        self._is_told = True
        share = seconds / (seconds + training)
        if share <= LARGE:
            return None
        enough = math.ceil(updates * seconds / training * (1.0 / LARGE - 1.0))
        return f"evaluation takes {share:.0%} of the time; --eval-interval {enough} makes it {LARGE:.0%}"
