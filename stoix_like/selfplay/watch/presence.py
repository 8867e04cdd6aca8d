"""Which loops are running: a lock that says so, a heartbeat, and stops that stick. Imports no JAX.

The lock is taken once and kept; whoever only asks never takes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from stoix_like.errors import RunError, StoixError
from stoix_like.runtime.console.spelling import command_line
from stoix_like.selfplay.events.clock import Moment, Periodic, moment
from stoix_like.selfplay.events.database import Database

MASTER, CONTINUOUS, SUPERVISOR = "master", "continuous", "supervisor"  # names of loops
HEARTBEAT_SECONDS = 5.0
#: Set in the environment of a loop that a supervisor has started, to its process id; to 1 by a service manager.
SUPERVISED, _SERVICE_MANAGER = "STOIX_LIKE_SUPERVISED", "1"
_IS_MAC = sys.platform == "darwin"
_FLOCK = "qqihh" if _IS_MAC else "hhqqi"  # struct flock: type, whence, start, length, process; there in another order
_TYPE = 3 if _IS_MAC else 0  # the place of its type
#: Linux binds the lock to the open file; elsewhere it belongs to the process, which opens the file only once.
_SET, _GET = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK), getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)


def label(name: str) -> str:
    """What a loop, or a supervisor, is called, such as `continuous loop`."""
    supervised = name.removeprefix(f"{SUPERVISOR}-")
    return f"{name} loop" if supervised == name else f"supervisor of the {supervised} loop"


class Holder(NamedTuple):
    """Who holds a lock, and since when, in seconds since 1970; None where the file does not say."""

    pid: int | None = None
    host: str | None = None
    began: float | None = None
    boot: str = ""  # as in `Moment`
    monotonic: float = 0.0

    @property
    def since(self) -> Moment | None:
        """When it was taken."""
        return None if self.began is None else Moment(self.began, self.boot, self.monotonic)


class PresenceLock:
    """A lock of a folder by which a loop is known to run, `<save_dir>/master.lock`. Held until it is closed.

    The file says who holds it.

    The kernel keeps it (an open file description's record lock), so a killed process leaves nothing behind. Raises
    RunError if another process holds it, or the folder cannot be written.
    """

    def __init__(self, save_dir: Path, name: str) -> None:
        try:
            save_dir.mkdir(parents=True, exist_ok=True)
            self._file = (save_dir / f"{name}.lock").open("a+b")
        except OSError as error:
            raise RunError(f"cannot write {save_dir}: {error.strerror}", "use another --save-dir") from error
        try:
            fcntl.fcntl(self._file, _SET, _whole_file(fcntl.F_WRLCK))
        except OSError as error:
            self._file.close()
            if isinstance(error, (BlockingIOError, PermissionError)):
                what = f"another {label(name)} is running in {save_dir}"
                end = command_line(
                    "launch-daemons", "--stop", name.removeprefix(f"{SUPERVISOR}-"), "--save-dir", str(save_dir)
                )
                raise RunError(what, f"wait for it to end, stop it with {end}, or use another --save-dir") from error
            what = f"cannot lock {save_dir}: {error.strerror or error}"
            raise RunError(what, "use a --save-dir on a file system with locks") from error
        with contextlib.suppress(OSError):  # the disk is full
            self._file.truncate(0)
            self._file.write(json.dumps(Holder(os.getpid(), platform.node(), *moment())._asdict()).encode())
            self._file.flush()

    def close(self) -> None:
        """Gives the lock back."""
        with contextlib.suppress(OSError):  # what a full disk did not take
            self._file.close()


def holder(save_dir: Path, name: str) -> Holder | None:
    """Who runs a loop of this name in a folder; None if nobody does. Asks for its lock and never takes it."""
    try:
        with (save_dir / f"{name}.lock").open("rb") as file:
            found = fcntl.fcntl(file, _GET, _whole_file(fcntl.F_RDLCK))
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if struct.unpack(_FLOCK, found[: struct.calcsize(_FLOCK)])[_TYPE] == fcntl.F_UNLCK:
        return None
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError):  # it is just being written
        return Holder()


def is_present(save_dir: Path, name: str) -> bool:
    """Whether a loop of this name runs in a folder. Asks for its lock and never takes it."""
    return holder(save_dir, name) is not None


def _whole_file(kind: int) -> bytes:
    fields = (0, 0, 0, kind, os.SEEK_SET) if _IS_MAC else (kind, os.SEEK_SET, 0, 0, 0)
    return struct.pack(f"{_FLOCK}0q", *fields)


def is_unified_loop_running(save_dir: str | Path = "runs") -> bool:
    """Whether a master loop runs in a folder of pipelines, in whatever process. Its lock is asked for, never taken."""
    return is_present(Path(save_dir), MASTER)


class Heartbeat(Periodic):
    """Writes what a loop is doing into the database, every few seconds, at once and at the end.

    Args:
        database: of the folder.
        name: of the loop.
        status: returns what is written, as plain JSON.
    """

    def __init__(self, database: Database, name: str, status: Callable[[], dict[str, Any]]) -> None:
        super().__init__("heartbeat", HEARTBEAT_SECONDS, self.beat)
        self._database, self._name, self._status, self._began = database, name, status, time.time()

    def __enter__(self) -> Self:
        self.beat()
        return super().__enter__()

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        with contextlib.suppress(StoixError):  # the disk is full; readers see that the lock is free
            self.beat()

    def beat(self) -> None:
        """Writes now. Raises RunError if that fails."""
        now = moment()
        who = self._name, os.getpid(), platform.node(), self._began
        row = *who, now.wall, json.dumps(self._status()), now.boot, now.monotonic
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO heartbeats VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def request_stop(database: Database, name: str) -> None:
    """Notes that a loop shall end, and shall not be started again by a supervisor."""
    with database.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO stops VALUES (?, ?)", (name, time.time()))


def clear_stop(database: Database, name: str) -> bool:
    """Whether a loop was to be stopped; it no longer is."""
    with database.transaction() as connection:
        return connection.execute("DELETE FROM stops WHERE name = ?", (name,)).rowcount > 0


def is_by_hand() -> bool:
    """Whether a person has started this process, and neither a supervisor nor a service manager."""
    return os.environ.get(SUPERVISED) is None


def is_supervised() -> bool:
    """Whether a supervisor of ours has started this process."""
    return os.environ.get(SUPERVISED, _SERVICE_MANAGER) != _SERVICE_MANAGER


def is_stopped(database: Database, name: str) -> bool:
    """Whether a loop shall be stopped."""
    return bool(database.rows("SELECT 1 FROM stops WHERE name = ?", (name,)))


def is_orphan() -> bool:
    """Whether the supervisor that has started this process is gone, however early it went."""
    supervisor = os.environ.get(SUPERVISED, "")
    return supervisor.isdecimal() and supervisor not in (_SERVICE_MANAGER, str(os.getppid()))


@contextlib.contextmanager
def present(save_dir: Path, name: str) -> Iterator[None]:
    """The presence of a loop, for a block. Raises RunError if another process has it."""
    lock = PresenceLock(save_dir, name)
    try:
        yield
    finally:
        lock.close()
