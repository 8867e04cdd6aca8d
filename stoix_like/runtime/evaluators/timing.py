"""How long chunks take, about two seconds so that the host can react in between, and which share evaluations take."""

from __future__ import annotations

import math

import numpy as np

SECONDS_PER_CHUNK = 2.0


class ChunkSizer:
    """Sizes chunks of about two seconds from the time of the last chunk.

    A chunk is at most twice as long as the last one: later updates may be slower, for example once a replay is full.
    """

    def __init__(self) -> None:
        self._seconds_per_update: float | None = None
        self._wanted = 1  # length wanted for the last chunk; the caller may have cut it

    def next_length(self, most: int) -> int:
        """Number of updates of the next chunk, between 1 and `most`."""
        if self._seconds_per_update is None:
            return 1
        self._wanted = int(np.clip(SECONDS_PER_CHUNK / self._seconds_per_update, 1, 2 * self._wanted))
        return min(most, self._wanted)

    def record(self, updates: int, seconds: float) -> None:
        """Records the duration of a chunk."""
        self._seconds_per_update = max(seconds, 1e-6) / updates


LARGE_SHARE = 0.1  # share of the time above which there is a note


def time_share_note(seconds: float, updates: int, training_seconds: float) -> str | None:
    """A note if an evaluation of `seconds` takes a large share of the time after so many updates, else None."""
    share = seconds / (seconds + training_seconds)
    if share <= LARGE_SHARE:
        return None
    enough = math.ceil(updates * seconds / training_seconds * (1.0 / LARGE_SHARE - 1.0))
    return f"evaluation takes {share:.0%} of the time; --eval-interval {enough} makes it {LARGE_SHARE:.0%}"
