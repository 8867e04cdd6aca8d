"""`events.sqlite` in the folder of all pipelines: events, breakers, stops and heartbeats. Imports no JAX.

Only what cannot be read from manifests is kept here. One connection writes in a process, under a lock, so that threads
may share it; readers of other processes see whole transactions (write-ahead log).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.storage.os_errors import hint_of, words_of

FILE = "events.sqlite"
_BUSY_SECONDS, _RETRY_SECONDS = 30.0, 0.05
#: {words of SQLite: what helps}.
_HINTS = {
    "locked": "another process holds it, such as a backup: wait for it to end",
    "full": "free some space, or use another --save-dir",
    "readonly": "change its permissions, or use another --save-dir",
    "unable to open": "change its permissions, or use another --save-dir",
}
_OTHERWISE = "see that its disk works, or use another --save-dir"

#: Statements that lead from each version of the schema to the next; `user_version` counts those that are done.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,"
        " game TEXT NOT NULL, iteration INTEGER NOT NULL, time REAL NOT NULL, fields TEXT NOT NULL)",
        "CREATE INDEX events_by_game ON events (game, iteration)",
        "CREATE TABLE consumers (name TEXT PRIMARY KEY, position INTEGER NOT NULL)",
        "CREATE TABLE dead_letters (consumer TEXT NOT NULL, event INTEGER NOT NULL, error TEXT NOT NULL,"
        " time REAL NOT NULL, PRIMARY KEY (consumer, event))",
        "CREATE TABLE breakers (game TEXT NOT NULL, stage TEXT NOT NULL, failures INTEGER NOT NULL,"
        " opened INTEGER NOT NULL, opened_at REAL NOT NULL, pause REAL NOT NULL, has_permit INTEGER NOT NULL,"
        " error TEXT NOT NULL, PRIMARY KEY (game, stage))",
        "CREATE TABLE stops (name TEXT PRIMARY KEY, time REAL NOT NULL)",
        "CREATE TABLE heartbeats (name TEXT PRIMARY KEY, pid INTEGER NOT NULL, host TEXT NOT NULL,"
        " began REAL NOT NULL, time REAL NOT NULL, status TEXT NOT NULL)",
        "CREATE TABLE done (name TEXT PRIMARY KEY, time REAL NOT NULL)",
        "CREATE TABLE weights (game TEXT PRIMARY KEY, weight REAL NOT NULL)",
    ),
    (  # without has_permit
        "ALTER TABLE breakers RENAME TO old_breakers",
        "CREATE TABLE breakers (game TEXT NOT NULL, stage TEXT NOT NULL, failures INTEGER NOT NULL,"
        " opened INTEGER NOT NULL, opened_at REAL NOT NULL, pause REAL NOT NULL, error TEXT NOT NULL,"
        " PRIMARY KEY (game, stage))",
        "INSERT INTO breakers SELECT game, stage, failures, opened, opened_at, pause, error FROM old_breakers",
        "DROP TABLE old_breakers",
    ),
    (  # when a heart beat, by a clock that cannot be set: see `clock.Moment`
        "ALTER TABLE heartbeats ADD COLUMN boot TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE heartbeats ADD COLUMN monotonic REAL NOT NULL DEFAULT 0",
    ),
)


class Database:
    """A connection that writes. The file and its tables are made if they are missing.

    Raises:
        CheckpointError: the file is no database, or of a later version.
        RunError: it cannot be opened or made.
    """

    def __init__(self, save_dir: Path) -> None:
        self.path = save_dir / FILE
        self._lock = threading.RLock()
        self._open()

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._use_write_ahead_log()
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._migrate()
            self._file = _identity(self.path)
        except (sqlite3.Error, OSError) as error:
            raise database_error(self.path, error) from error

    def _use_write_ahead_log(self) -> None:
        """Tries it for a while: SQLite does not wait for another process that has just made the file."""
        end = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(_RETRY_SECONDS)

    @property
    def is_moved(self) -> bool:
        """Whether the file was moved away or removed, so that what is written is read by nobody."""
        try:
            return _identity(self.path) != self._file
        except FileNotFoundError:
            return True
        except OSError:  # the folder cannot be read just now, which says nothing of the file
            return False

    def reopen_if_moved(self) -> None:
        """Makes a new file, or opens the one that took its place. Raises as the constructor."""
        with self._lock:
            if self.is_moved:
                self._connection.close()
                self._open()

    def _migrate(self) -> None:
        with self.transaction() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            check_version(self.path, version)
            for statements in MIGRATIONS[version:]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All statements of the block, or none. Raises RunError if the disk is full or another process holds it."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):  # if the disk is full, SQLite has done so by itself
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise database_error(self.path, error) from error
                raise

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a query."""
        with self._lock:
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise database_error(self.path, error) from error

    def close(self) -> None:
        """Ends the connection, and moves what is in the write-ahead log into the file."""
        with self._lock:
            self._connection.close()


def _identity(path: Path) -> tuple[int, int]:
    """What stays the same while a file is the same."""
    found = path.stat()
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def reading(save_dir: Path) -> Iterator[sqlite3.Connection | None]:
    """A connection that only reads; None if there is no database. Raises CheckpointError if it is none of ours."""
    path = save_dir / FILE
    if not path.is_file():
        yield None
        return
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
        with contextlib.closing(connection):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            check_version(path, version)
            yield connection if version else None
    except sqlite3.Error as error:
        raise database_error(path, error) from error


def check_version(path: Path, version: int) -> None:
    """Raises CheckpointError if the schema is of a later version of stoix_like."""
    if version > len(MIGRATIONS):
        what = f"{path} has version {version}, and this one reads up to {len(MIGRATIONS)}"
        raise CheckpointError(what, "use the newer version of stoix_like, or another --save-dir")


def database_error(path: Path, error: Exception) -> CheckpointError | RunError:
    """What a failure of SQLite or of the disk is for a user."""
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        hint = "move it away: events are derived from the manifests again"
        return CheckpointError(f"{path} cannot be read: {error}", hint)
    if isinstance(error, OSError):
        return RunError(f"{path} cannot be used: {words_of(error)}", hint_of(error))
    reason = str(error)
    hints = [hint for text, hint in _HINTS.items() if text in reason]
    return RunError(f"{path} cannot be used: {reason}", hints[0] if hints else _OTHERWISE)
