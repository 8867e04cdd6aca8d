"""What ends the stages of a loop: a signal, a stop in the database, or a time-out. Imports no JAX."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from stoix_like.errors import StoixError
from stoix_like.runtime.training.stopping import StopRequest
from stoix_like.selfplay.events.clock import Clock, Periodic

_LOOK_SECONDS = 1.0
_LATE_SECONDS = 120.0  # beyond a deadline, after which the loop is unhealthy


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


class StopWatcher(Periodic):
    """Looks every second whether a loop shall end its stage. A look that fails is made again."""

    def __init__(self, stop: LoopStop, is_stopped: Callable[[], bool]) -> None:
        def look() -> None:
            found = False
            with contextlib.suppress(StoixError):
                found = is_stopped()
            stop.look(found)

        super().__init__("stop-watcher", _LOOK_SECONDS, look)
