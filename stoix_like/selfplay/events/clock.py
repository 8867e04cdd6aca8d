"""Time as loops see it, which tests replace, and what ends their stages. Imports no JAX."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from stoix_like.errors import StoixError


class Moment(NamedTuple):
    """A time, by the wall clock, which may be set, and by that of a machine since it was started, which may not.

    Attributes:
        wall: seconds since 1970.
        boot: which start of which machine `monotonic` counts from; empty if that is unknown.
        monotonic: seconds.
    """

    wall: float
    boot: str = ""
    monotonic: float = 0.0

    def since(self, earlier: Moment) -> float:
        """Seconds from an earlier moment to this one. The wall clock counts only between hosts or boots.

        Negative if it was set back between them, or the other one is later.
        """
        is_same_boot = self.boot != "" and self.boot == earlier.boot
        return self.monotonic - earlier.monotonic if is_same_boot else self.wall - earlier.wall


def moment() -> Moment:
    """Now."""
    return Moment(time.time(), _boot(), time.monotonic())


@functools.cache
def _boot() -> str:
    """What the kernel calls its present start, on Linux."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class Clock(NamedTuple):
    """Where the time comes from."""

    now: Callable[[], float] = time.time  # seconds since 1970, for what is stored; it may jump
    monotonic: Callable[[], float] = time.monotonic  # seconds, for waiting and durations
    sleep: Callable[[float], None] = time.sleep


class Periodic:
    """A thread that does something every few seconds, for a block. What has failed is done again the next time.

    Args:
        name: of the thread.
        seconds: between two times.
        work: what it does.
        at_end: whether it is done once more when the block ends.
    """

    def __init__(self, name: str, seconds: float, work: Callable[[], object], *, at_end: bool = False) -> None:
        self._seconds, self._work, self._at_end = seconds, work, at_end
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.join()

    def start(self) -> None:
        """Begins to wait for the first time."""
        self._thread.start()

    def end(self) -> None:
        """Lets it end after what it is doing."""
        self._ended.set()

    def join(self, seconds: float | None = None) -> bool:
        """Whether it has ended, after at most so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._do()
        if self._at_end:
            self._do()

    def _do(self) -> None:
        with contextlib.suppress(StoixError):  # the database is busy, or the disk is full
            self._work()
