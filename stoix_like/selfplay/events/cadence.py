"""When something was done last, and the weights of games: what outlives a master loop. Imports no JAX."""

from __future__ import annotations

from stoix_like.selfplay.events.clock import Clock
from stoix_like.selfplay.events.database import Database


class Cadence:
    """What is done from time to time. A clock that jumps back makes it due."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    def due_or_start(self, name: str, interval: float, *, at_first: bool = False) -> bool:
        """Whether it was last done so many seconds ago.

        What was never done is due `at_first`, or, if it is not, an interval from now on.
        """
        rows = self._database.rows("SELECT time FROM done WHERE name = ?", (name,))
        if not rows:
            if not at_first:
                self.done(name)
            return at_first
        since = self._clock.now() - float(rows[0][0])
        return since >= interval or since < 0.0

    def last(self, name: str) -> float | None:
        """When it was done last, in seconds since 1970; None if it never was."""
        rows = self._database.rows("SELECT time FROM done WHERE name = ?", (name,))
        return float(rows[0][0]) if rows else None

    def done(self, name: str, at: float | None = None) -> None:
        """Notes that it is done, or begun, now, or was at another time."""
        with self._database.transaction() as connection:
            time = self._clock.now() if at is None else at
            connection.execute("INSERT OR REPLACE INTO done VALUES (?, ?)", (name, time))

    def read_weights(self) -> dict[str, float]:
        """The weights that were written last."""
        return {game: float(weight) for game, weight in self._database.rows("SELECT game, weight FROM weights")}

    def write_weights(self, weights: dict[str, float]) -> None:
        """Replaces the weights."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM weights")
            connection.executemany("INSERT INTO weights VALUES (?, ?)", list(weights.items()))
