"""The share of a run's time that its evaluations take; noted once if it is large."""

from __future__ import annotations

import math

LARGE = 0.1  # share of the time above which there is a note


class EvaluationTimeShare:
    """Compares the time of an evaluation with the training before it."""

    def __init__(self) -> None:
        self._seconds, self._updates = 0.0, 0
        self._is_noted = False

    def train(self, updates: int, seconds: float) -> None:
        """Adds a chunk of updates."""
        self._seconds += seconds
        self._updates += updates

    def evaluate(self, seconds: float, *, is_last: bool) -> str | None:
        """A note after the first evaluation if it took a large share and more follow, else None."""
        training, updates = self._seconds, self._updates
        self._seconds, self._updates = 0.0, 0
        if self._is_noted or is_last or training <= 0.0:
            return None
        self._is_noted = True
        share = seconds / (seconds + training)
        if share <= LARGE:
            return None
        enough = math.ceil(updates * seconds / training * (1.0 / LARGE - 1.0))
        return f"evaluation takes {share:.0%} of the time; --eval-interval {enough} makes it {LARGE:.0%}"
