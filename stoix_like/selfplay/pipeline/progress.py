"""How far a stage is: one line that names the stage, what is done, its rate, and the remaining time."""

from __future__ import annotations

import sys
import time

from stoix_like.runtime.console.messages import HEARTBEAT_SECONDS, Heartbeat
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.training.stopping import Interrupted, StopRequest

_SECONDS_ON_A_TERMINAL = 1.0


class Progress:
    """Counts what a stage has done, and reports it: every ten seconds, on a terminal every second.

    Args:
        reporter: receives the lines.
        stop: set by a signal.
        stage: in front of each.
        unit: of what is counted, such as games.
        total: of them.
        done: from earlier processes; they do not count for the rate.
    """

    def __init__(self, reporter: Reporter, stop: StopRequest, stage: str, unit: str, total: int, done: int = 0) -> None:
        self._stop, self._stage, self._unit, self._total = stop, stage, unit, total
        self.done, self._before = done, done
        self._first: tuple[int, float] | None = None  # done, and when, at the first progress: compiled, from there on
        seconds = _SECONDS_ON_A_TERMINAL if sys.stderr.isatty() else HEARTBEAT_SECONDS
        self._heartbeat = Heartbeat(reporter.progress, seconds)

    def update(self, done: int) -> None:
        """`show`. Raises Interrupted if the stage shall stop."""
        self.show(done)
        if self._stop.is_set:
            raise Interrupted(self._stage)

    def keep(self, count: int) -> None:
        """Counts what an earlier process has done, apart from the rate. Raises Interrupted if the stage shall stop."""
        self._before += count
        if self._first is not None:
            self._first = self._first[0] + count, self._first[1]
        self.update(self.done + count)

    def show(self, done: int) -> None:
        """Sets how much is done, and reports it if enough time has passed."""
        self.done = done
        if self._first is None and done > self._before:
            self._first = done, time.monotonic()
        self._heartbeat(self.line())

    def line(self) -> str:
        """`selfplay: 320 of 1,000 games · 640 games/s · 0:00:01 left`; without rate and time until they are known."""
        text = f"{self._stage}: {self.done:,} of {self._total:,} {self._unit}"
        if self._first is None or self.done <= self._first[0]:
            return text
        rate = (self.done - self._first[0]) / max(time.monotonic() - self._first[1], 1e-9)
        left = round((self._total - self.done) / rate)
        return f"{text} · {rate:,.0f} {self._unit}/s · {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
