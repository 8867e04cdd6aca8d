"""The log of events: each once, in the order of arrival, and how far each consumer has read it. Imports no JAX."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError
from stoix_like.selfplay.events.database import Database, reading
from stoix_like.selfplay.events.kinds import IterationComplete, PipelineEvent, event_from

_COLUMNS = "id, kind, fields"


class LoggedEvent(NamedTuple):
    """An event of the log, and its place in it."""

    position: int
    event: PipelineEvent


class WaitingEvents(NamedTuple):
    """Events that wait for a consumer beyond so many."""

    number: int
    position: int  # of the newest of them


class UnreadableEvent(CheckpointError):
    """An event of a kind, or with fields, that another version has written. Exit code 4."""

    def __init__(self, position: int, error: CheckpointError) -> None:
        super().__init__(error.what, error.hint)
        self.position = position


class EventLog:
    """The events of a folder of pipelines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, events: Iterable[PipelineEvent]) -> list[PipelineEvent]:
        """The events that the log did not have yet, which it has now: all of them, or none.

        One whose stage was done again, with another result, takes the place of the former and is delivered again.
        """
        new = []
        made = [(event, json.dumps(dataclasses.asdict(event))) for event in events]
        with self._database.transaction() as connection:
            for event, text in made:
                found = connection.execute("SELECT fields FROM events WHERE key = ?", (event.key,)).fetchone()
                if found is not None and _without_time(found[0]) == _without_time(text):
                    continue
                connection.execute("DELETE FROM events WHERE key = ?", (event.key,))
                row = event.key, event.kind, event.game, event.iteration, event.time, text
                connection.execute(
                    "INSERT INTO events (key, kind, game, iteration, time, fields) VALUES (?, ?, ?, ?, ?, ?)", row
                )
                new.append(event)
        return new

    def read(self, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
        """At most so many events behind a place, in their order, up to one that another version has written.

        Raises UnreadableEvent if that is the first.
        """
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM events WHERE id > ? ORDER BY id LIMIT ?",
            (after, limit),
        )
        found = list[LoggedEvent]()
        for row in rows:
            try:
                found.append(_logged(row))
            except UnreadableEvent:
                if not found:
                    raise
                break
        return found

    def next_of(self, kind: str, after: int) -> LoggedEvent | None:
        """The first event of a kind behind a place; None if there is none. Raises UnreadableEvent."""
        statement = f"SELECT {_COLUMNS} FROM events WHERE id > ? AND kind = ? ORDER BY id LIMIT 1"
        rows = self._database.rows(statement, (after, kind))
        return _logged(rows[0]) if rows else None

    def beyond(self, kind: str, after: int, most: int) -> WaitingEvents | None:
        """The events of a kind behind a place that are older than the newest `most`; None if there are none."""
        newest = "SELECT id FROM events WHERE id > ? AND kind = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
        statement = f"SELECT COUNT(*), MAX(id) FROM events WHERE id > ? AND kind = ? AND id <= ({newest})"
        ((count, position),) = self._database.rows(statement, (after, kind, after, kind, most))
        return WaitingEvents(count, position) if count else None

    def count(self, game: str, iteration: int, kind: str) -> int:
        """How many events of this kind an iteration has."""
        statement = "SELECT COUNT(*) FROM events WHERE game = ? AND iteration = ? AND kind = ?"
        return int(self._database.rows(statement, (game, iteration, kind))[0][0])

    def end(self) -> int:
        """The place of the last event that was ever written; 0 if there is none."""
        rows = self._database.rows("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        return int(rows[0][0]) if rows else 0

    def position(self, consumer: str) -> int | None:
        """The last event that a consumer has handled; None if it is unknown."""
        rows = self._database.rows("SELECT position FROM consumers WHERE name = ?", (consumer,))
        return int(rows[0][0]) if rows else None

    def advance(self, consumer: str, position: int) -> None:
        """Notes the last event that a consumer has handled. An earlier one replays what lies behind it."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO consumers VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET position = excluded.position",
                (consumer, position),
            )

    def forget(self, name: str, but: Collection[str]) -> None:
        """Forgets how far a consumer, and those called `name/…`, have read, but for some."""
        with self._database.transaction() as connection:
            for (consumer,) in connection.execute("SELECT name FROM consumers").fetchall():
                if consumer not in but and (consumer == name or consumer.startswith(f"{name}/")):
                    connection.execute("DELETE FROM consumers WHERE name = ?", (consumer,))

    def bury(self, consumer: str, position: int, error: str, time: float) -> None:
        """Notes that a consumer has failed on an event for good, and goes on behind it."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?)", (consumer, position, error, time)
            )
        self.advance(consumer, position)

    def remove_before(self, time: float) -> int:
        """Removes events older than that; returns how many there were.

        Those of each game's last finished iteration stay, and of later ones, by which is known what was told; and of
        those that are no game's, the last one. What consumers have failed on goes by its own age.
        """
        finished = f"other.game = events.game AND other.kind = '{IterationComplete.kind}'"
        last = f"SELECT MAX(iteration) FROM events AS other WHERE {finished}"
        newest = "SELECT MAX(id) FROM events WHERE game = ''"
        with self._database.transaction() as connection:
            found = connection.execute(
                f"DELETE FROM events WHERE time < ? AND (iteration < ({last}) OR (game = '' AND id < ({newest})))",
                (time,),
            )
            connection.execute("DELETE FROM dead_letters WHERE time < ?", (time,))
            return found.rowcount


def _without_time(text: str) -> dict[str, Any]:
    """The fields of an event that say what happened."""
    return {name: value for name, value in json.loads(text).items() if name != "time"}


def read_events(save_dir: str | Path, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
    """At most so many events of the loops in a folder behind a place, in their order; the folder is only read.

    The `position` of the last one is where to go on, while a loop runs and afterwards.

    Args:
        save_dir: of the loops.
        after: the position of an event; 0 for the beginning.
        limit: of events.

    Raises:
        CheckpointError: its database is damaged, or of a later version.
        RunError: it cannot be read.
    """
    with reading(Path(save_dir)) as connection:
        if connection is None:
            return []
        statement = f"SELECT {_COLUMNS} FROM events WHERE id > ? ORDER BY id LIMIT ?"
        return [_logged(row) for row in connection.execute(statement, (after, limit)).fetchall()]


def last_events(connection: sqlite3.Connection, limit: int) -> list[LoggedEvent]:
    """The newest events, the oldest of them first, without those that cannot be read."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM events ORDER BY id DESC LIMIT ?",
        (limit,),
    )
    found = list[LoggedEvent]()
    for row in rows.fetchall():
        with contextlib.suppress(UnreadableEvent):
            found.append(_logged(row))
    return found[::-1]


def _logged(row: Any) -> LoggedEvent:
    position, kind, fields = row
    try:
        return LoggedEvent(int(position), event_from(kind, json.loads(fields)))
    except CheckpointError as error:
        raise UnreadableEvent(int(position), error) from error
    except (ValueError, TypeError, AttributeError) as error:
        damaged = CheckpointError(f"event {position}, {kind}, cannot be read", "it is passed over")
        raise UnreadableEvent(int(position), damaged) from error
