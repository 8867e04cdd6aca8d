"""Spans of what the host does between and around chunks: collected while they run, handed on when they are over.

What happens inside a chunk is one compiled program. A profile says how its time divides (`profile`), and so the parts
of an update are told as shares of what it took: estimates, and marked so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from stoix_like.runtime.console.text import Value
from stoix_like.runtime.telemetry.sink import Span
from stoix_like.runtime.training.profile import PhaseTimes


class Tracing:
    """The spans of one thread, by what they are inside of."""

    def __init__(self) -> None:
        self._inside: list[list[Span]] = [[]]

    @contextlib.contextmanager
    def span(self, name: str, **attributes: Value) -> Iterator[None]:
        """Times what happens inside, also where it fails."""
        began, start = time.time(), time.monotonic()
        self._inside.append([])
        try:
            yield
        finally:
            children = tuple(self._inside.pop())
            self.add(Span(name, began, time.monotonic() - start, attributes, children))

    def add(self, span: Span) -> None:
        """A span that was timed elsewhere, as part of the one that is open."""
        self._inside[-1].append(span)

    def take(self) -> list[Span]:
        """The spans that are in no other and over since the last call."""
        ended, self._inside[0] = self._inside[0], []
        return ended


def update_span(began: float, seconds: float, updates: int, last_update: int, times: PhaseTimes | None) -> Span:
    """A chunk of updates on the device, with its parts where a profile knows their shares.

    Args:
        began: seconds since the epoch.
        seconds: all the updates took.
        updates, last_update: how many, and the number of the last.
        times: of the profile, if there is one.
    """
    parts = () if times is None else _parts(began, seconds, times)
    return Span("update", began, seconds, {"updates": updates, "update": last_update}, parts)


def _parts(began: float, seconds: float, times: PhaseTimes) -> tuple[Span, ...]:
    """One after the other, as if the chunk were one update: rollout, search inside it, optimise."""
    rollout, search, optimise = (share * seconds for share in (times.playing, times.searching, times.optimising))
    inside = (Span("search", began, search, _ESTIMATED),) if search > 0.0 else ()
    return (
        Span("rollout", began, rollout, _ESTIMATED, inside),
        Span("optimise", began + rollout, optimise, _ESTIMATED),
    )


_ESTIMATED: dict[str, Value] = {"estimated": "from the shares of the run's profile"}
