"""The lock of a folder that only one process may write."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from stoix_like.errors import LockedError, RunError


class RunLock:
    """An exclusive lock of a run folder, held until it is closed or the process ends. Raises RunError if it is taken.

    The kernel keeps the lock (flock), so a killed process leaves nothing to clean up.
    """

    def __init__(
        self, run_dir: Path, name: str = ".lock", otherwise: str = "start a run under another --run-name"
    ) -> None:
        self._file: IO[str] = (run_dir / name).open("a+")
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
