"""How long one call of the device should take: about two seconds, so that the host can react in between."""

from __future__ import annotations

import numpy as np

SECONDS_PER_CHUNK = 2.0


class ChunkSizer:
    """How many updates make a chunk of about two seconds, learned from the last chunk.

    It grows at most twofold from one chunk to the next: what follows may be slower, as once a replay is full.
    """

    def __init__(self) -> None:
        self._seconds_per_update: float | None = None
        self._wanted = 1  # of the last chunk, which may have been cut short by what was due

    @property
    def is_known(self) -> bool:
        """Whether a chunk has been timed."""
        return self._seconds_per_update is not None

    def length(self, most: int) -> int:
        """Updates of the next chunk, between 1 and `most`."""
        if self._seconds_per_update is None:
            return 1
        self._wanted = int(np.clip(SECONDS_PER_CHUNK / self._seconds_per_update, 1, 2 * self._wanted))
        return min(most, self._wanted)

    def update(self, updates: int, seconds: float) -> None:
        """Takes in how long a chunk took."""
        self._seconds_per_update = max(seconds, 1e-6) / updates
