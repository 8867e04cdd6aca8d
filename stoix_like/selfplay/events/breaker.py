"""Circuit breakers: after some failures a stage of a game is left alone for a while, then tried once. Imports no JAX.

`state` is a function of what is stored and of the time; only `acquire` takes the one permit of a half-open breaker.
Times are those of the wall clock, so that a breaker outlives its process; a clock that jumps back delays a trial by at
most the pause itself. The permit is of this process alone: whoever dies in a trial leaves none behind.
"""

from __future__ import annotations

import time
from typing import Any, Literal, NamedTuple

from stoix_like.selfplay.events.database import Database

LONGEST_PAUSE = 3600.0  # seconds

State = Literal["closed", "open", "half_open"]


class BreakerRule(NamedTuple):
    """When a breaker opens, and for how long."""

    max_failures: int = 3  # in a row
    pause: float = 300.0  # seconds; twice as long each time that a trial fails, up to an hour


class Breaker(NamedTuple):
    """What is stored of a breaker.

    Attributes:
        failures: in a row.
        opened: how often it has opened since the last success.
        opened_at: when it did so last, in seconds since 1970.
        pause: for how long, in seconds.
        error: of the last failure.
    """

    failures: int = 0
    opened: int = 0
    opened_at: float = 0.0
    pause: float = 0.0
    error: str = ""


def state(breaker: Breaker, now: float) -> State:
    """closed: go on; open: leave it alone; half_open: one trial may be made."""
    if breaker.opened == 0:
        return "closed"
    pause = breaker.pause
    is_over = now >= breaker.opened_at + pause or now < breaker.opened_at - pause
    return "half_open" if is_over else "open"


def retry_at(breaker: Breaker) -> float | None:
    """When an open breaker allows a trial; None if it is closed."""
    return None if breaker.opened == 0 else breaker.opened_at + breaker.pause


def after_failure(breaker: Breaker, rule: BreakerRule, now: float, error: str) -> Breaker:
    """The breaker after a failure: a failed trial opens it again at once, for twice as long."""
    failures = breaker.failures + 1
    if breaker.opened == 0 and failures < rule.max_failures:
        return Breaker(failures, error=error)
    pause = min(rule.pause * 2.0 ** min(breaker.opened, 30), max(LONGEST_PAUSE, rule.pause))
    return Breaker(failures, breaker.opened + 1, now, pause, error=error)


def time_text(at: float) -> str:
    """A time of day, for people."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def open_text(breaker: Breaker) -> str:
    """Why nothing is tried, and until when."""
    at = retry_at(breaker)
    return f"its breaker is open{'' if at is None else f' until {time_text(at)}'}: {breaker.error}"


class Breakers:
    """The breakers of a folder of pipelines, one for each game and stage."""

    def __init__(self, database: Database, rule: BreakerRule) -> None:
        self._database, self._rule = database, rule
        self._trials: set[tuple[str, str]] = set()  # (game, stage) of permits that are taken
        self._at_once: set[tuple[str, str]] = set()  # that are tried before their pause is over
        self._unwritten: dict[tuple[str, str], Breaker] = {}  # what could not be stored: it counts in this process

    def read(self, game: str, stage: str) -> Breaker:
        """What is stored, or could not be."""
        if (unwritten := self._unwritten.get((game, stage))) is not None:
            return unwritten
        return read_all(self._database.rows(SELECT)).get((game, stage), Breaker())

    def state(self, game: str, stage: str, now: float) -> State:
        """The state, which asking does not change."""
        return state(self.read(game, stage), now)

    def try_at_once(self) -> int:
        """Lets each open breaker make a trial before its pause is over; returns how many there are.

        Whoever starts a loop by hand may have mended the cause.
        """
        self._at_once = {key for key, one in read_all(self._database.rows(SELECT)).items() if one.opened > 0}
        return len(self._at_once)

    def acquire(self, game: str, stage: str, now: float) -> bool:
        """Whether the stage may be run now. Of a half-open breaker this takes the one permit."""
        found = "half_open" if (game, stage) in self._at_once else self.state(game, stage, now)
        if found == "half_open" and (game, stage) not in self._trials:
            self._at_once.discard((game, stage))
            self._trials.add((game, stage))
            return True
        return found == "closed"

    def succeed(self, game: str, stage: str) -> None:
        """Closes the breaker."""
        self.release(game, stage)
        if (game, stage) in self._unwritten or self.read(game, stage) != Breaker():
            self._write(game, stage, Breaker())

    def fail(self, game: str, stage: str, now: float, error: str) -> Breaker:
        """The breaker after a failure. If it cannot be written, which raises RunError, it counts in this process."""
        self.release(game, stage)
        breaker = after_failure(self.read(game, stage), self._rule, now, error)
        self._write(game, stage, breaker)
        return breaker

    def release(self, game: str, stage: str) -> None:
        """Gives the permit back: the trial is over, or was interrupted."""
        self._trials.discard((game, stage))

    def _write(self, game: str, stage: str, breaker: Breaker) -> None:
        self._unwritten[game, stage] = breaker
        with self._database.transaction() as connection:
            connection.execute(
                f"INSERT OR REPLACE INTO breakers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", (game, stage, *breaker)
            )
        del self._unwritten[game, stage]


_COLUMNS = "game, stage, failures, opened, opened_at, pause, error"
SELECT = f"SELECT {_COLUMNS} FROM breakers"


def read_all(rows: list[tuple[Any, ...]]) -> dict[tuple[str, str], Breaker]:
    """{(game, stage): breaker} of the rows of `SELECT`."""
    return {(game, stage): Breaker(*fields) for game, stage, *fields in rows}
