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
from stoix_like.runtime.training.stopping import StopRequest

_LOOK_SECONDS = 1.0
_LATE_SECONDS = 120.0  # beyond a deadline, after which the loop is unhealthy


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


class LoopStop(StopRequest):
    """Whether a loop shall end its stage: after a signal, a stop in the database, or a time-out.

    Threads look while the loop sets deadlines, so both hold a lock; a signal may come to the loop while it does.

    Attributes:
        timed_out: whether its time is over. The loop goes on after that, unless it is stopped as well.
    """

    def __init__(self) -> None:
        self.timed_out, self._is_stopped = False, False
        self._deadline: float | None = None
        self._lock = threading.RLock()
        super().__init__()

    @property
    def is_set(self) -> bool:
        """Whether the stage shall end."""
        return self._is_stopped or self.timed_out

    @is_set.setter
    def is_set(self, value: bool) -> None:
        self._is_stopped = value

    def receive(self, number: int) -> bool:
        """As a StopRequest does. A signal after a time-out is the first one."""
        with self._lock:
            self._deadline, self.timed_out = None, False
        return super().receive(number)

    def set_deadline(self, at: float | None) -> None:
        """Sets when the stages that run now have to be done, on the monotonic clock; None for never."""
        with self._lock:
            self._deadline = at

    @property
    def has_deadline(self) -> bool:
        """Whether there is one."""
        return self._deadline is not None

    def look(self, is_stopped: bool) -> None:
        """Ends the stage if the loop shall stop, or the time is over."""
        if is_stopped:
            self.is_set = True
        with self._lock:
            if self._is_beyond(0.0) and not self.is_set:
                self.timed_out = True

    @property
    def is_late(self) -> bool:
        """Whether a stage goes on long after its time is over: nothing in it has looked."""
        with self._lock:
            return self._is_beyond(_LATE_SECONDS)

    def _is_beyond(self, seconds: float) -> bool:
        """Whether the deadline was so long ago."""
        return self._deadline is not None and time.monotonic() > self._deadline + seconds

    def go_on(self) -> bool:
        """Whether it was a time-out alone, which is over now. A stop stays."""
        with self._lock:
            was_time_out, self._deadline, self.timed_out = self.timed_out, None, False
            return was_time_out and not self.is_set

    def wait(self, seconds: float, clock: Clock) -> None:
        """Waits so long, or until the loop shall end."""
        end = clock.monotonic() + seconds
        while not self.is_set and (left := end - clock.monotonic()) > 0.0:
            clock.sleep(min(left, seconds, _LOOK_SECONDS / 5.0))


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


class StopWatcher(Periodic):
    """Looks every second whether a loop shall end its stage. A look that fails is made again."""

    def __init__(self, stop: LoopStop, is_stopped: Callable[[], bool]) -> None:
        def look() -> None:
            found = False
            with contextlib.suppress(StoixError):
                found = is_stopped()
            stop.look(found)

        super().__init__("stop-watcher", _LOOK_SECONDS, look)
