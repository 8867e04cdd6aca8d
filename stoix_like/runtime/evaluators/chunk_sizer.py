"""The length of one call of the device: about two seconds, so that the host can react in between."""

from __future__ import annotations

import numpy as np

SECONDS_PER_CHUNK = 2.0


class ChunkSizer:
    """Sizes chunks of about two seconds from the time of the last chunk.

    A chunk is at most twice as long as the last one: later updates may be slower, for example once a replay is full.
    """

    def __init__(self) -> None:
        self._seconds_per_update: float | None = None
        self._wanted = 1  # length wanted for the last chunk; the caller may have cut it

    @property
    def is_known(self) -> bool:
        """Whether a chunk has been timed."""
        return self._seconds_per_update is not None

    def length(self, most: int) -> int:
        """Number of updates of the next chunk, between 1 and `most`."""
        if self._seconds_per_update is None:
            return 1
        self._wanted = int(np.clip(SECONDS_PER_CHUNK / self._seconds_per_update, 1, 2 * self._wanted))
        return min(most, self._wanted)

    def update(self, updates: int, seconds: float) -> None:
        """Records the duration of a chunk."""
        self._seconds_per_update = max(seconds, 1e-6) / updates
