"""Spans of the host's work: chunks, evaluations, checkpoints. They are passed to the sinks once they are complete.

A chunk is one compiled program, so its parts cannot be timed. They are estimated from the shares of a profile
(`profile`) and marked as estimates.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from stoix_like.runtime.console.text import Value
from stoix_like.runtime.profiling.phase_times import PhaseTimes
from stoix_like.runtime.telemetry.sink import Span


class Tracing:
    """Nested spans of one thread.

    Attributes:
        times: of the run's profile, from which the parts of a chunk are estimated; None: they are not.
    """

    def __init__(self) -> None:
        self.times: PhaseTimes | None = None
        self._inside: list[list[Span]] = [[]]

    @contextlib.contextmanager
    def span(self, name: str, **attributes: Value) -> Iterator[None]:
        """Times the block, also if it raises."""
        began, start = time.time(), time.monotonic()
        self._inside.append([])
        try:
            yield
        finally:
            children = tuple(self._inside.pop())
            self.add(Span(name, began, time.monotonic() - start, attributes, children))

    def add(self, span: Span) -> None:
        """Adds a completed span to the open one."""
        self._inside[-1].append(span)

    def take(self) -> list[Span]:
        """The outermost spans completed since the last call."""
        ended, self._inside[0] = self._inside[0], []
        return ended


def update_span(began: float, seconds: float, updates: int, last_update: int, times: PhaseTimes | None) -> Span:
    """The span of a chunk that began at an epoch time, with estimated parts if there are times of a profile."""
    parts = () if times is None else _parts(began, seconds, times)
    return Span("update", began, seconds, {"updates": updates, "update": last_update}, parts)


def _parts(began: float, seconds: float, times: PhaseTimes) -> tuple[Span, ...]:
    """Rollout (with search inside it), then optimise, as if the chunk were one update."""
    rollout, search, optimise = (share * seconds for share in (times.playing, times.searching, times.optimising))
    inside = (Span("search", began, search, _ESTIMATED),) if search > 0.0 else ()
    return (
        Span("rollout", began, rollout, _ESTIMATED, inside),
        Span("optimise", began + rollout, optimise, _ESTIMATED),
    )


_ESTIMATED: dict[str, Value] = {"estimated": "from the shares of the run's profile"}
