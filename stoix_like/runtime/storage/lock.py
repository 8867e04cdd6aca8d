"""The lock of a folder that only one process may write."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from stoix_like.errors import LockedError, RunError, StorageError
from stoix_like.runtime.storage.os_errors import hint_of, words_of

_RETRY_SECONDS = 0.1
_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def waiting_lock(path: Path, seconds: float) -> Iterator[None]:
    """A lock on the file at `path`, which is created. It is waited for so long; then the block runs without it.

    So it does where the file system has no locks: the lock keeps programs that start together from a race.
    """
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):
            file = closing.enter_context(path.open("a+"))
            end = time.monotonic() + seconds
            while not _is_locked(file) and time.monotonic() < end:
                time.sleep(_RETRY_SECONDS)
        yield


def _is_locked(file: IO[str]) -> bool:
    """Whether the lock of the file is this process's now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class RunLock:
    """An exclusive lock of a run folder, held until it is closed or the process ends. Raises RunError if it is taken.

    The kernel keeps the lock (flock), so a killed process leaves nothing to clean up.
    """

    def __init__(
        self, run_dir: Path, name: str = ".lock", otherwise: str = "start a run under another --run-name"
    ) -> None:
        try:
            self._file: IO[str] = (run_dir / name).open("a+")
        except OSError as error:
            hint = "copy it to a disk that can be written" if error.errno in _NOT_WRITABLE else hint_of(error)
            raise StorageError(f"cannot write {run_dir}: {words_of(error)}", hint) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            what = f"cannot lock {run_dir}: {error.strerror or error}"  # a network file system mounted without locks
            hint = "write to a file system with locks (--save-dir), so that no second process can damage the run"
            if isinstance(error, BlockingIOError):
                what = f"another process is writing {run_dir}"
                hint = f"wait for it to end, or {otherwise}"
                raise LockedError(what, hint) from error
            raise RunError(what, hint) from error

    def close(self) -> None:
        self._file.close()
