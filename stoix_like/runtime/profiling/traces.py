"""A profiler's trace: which instruction was executed when, and for how long."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax

_RECORDED = "command_buffer"  # begins the name of a command buffer


class ProfileEvent(NamedTuple):
    """One execution of one instruction, on one thread or stream; `command_buffer_1/kernel` if it was recorded."""

    instruction: str
    start_ns: float
    duration_ns: float


def self_times(lines: Iterable[list[ProfileEvent]]) -> dict[str, float]:
    """Nanoseconds of each instruction, without those of instructions nested in it, such as the body of a loop.

    A line has the events of a thread or stream, which are nested or follow each other.
    """
    total: dict[str, float] = collections.defaultdict(float)
    for events in lines:
        open_events: list[ProfileEvent] = []
        for event in sorted(events, key=lambda e: (e.start_ns, -e.duration_ns)):
            while open_events and event.start_ns >= open_events[-1].start_ns + open_events[-1].duration_ns:
                open_events.pop()
            if open_events:
                total[open_events[-1].instruction] -= event.duration_ns
            total[event.instruction] += event.duration_ns
            open_events.append(event)
    return dict(total)


def read_events(trace: Path, module: str) -> list[list[ProfileEvent]]:
    """The events of a module's instructions, a list for each thread or stream; of the device, if it has any."""
    planes = list(jax.profiler.ProfileData.from_file(str(trace)).planes)
    on_device = _of_planes([plane for plane in planes if plane.name.startswith("/device:")], module)
    return on_device or _of_planes(planes, module)


def _of_planes(planes: list[Any], module: str) -> list[list[ProfileEvent]]:
    return [events for plane in planes for line in plane.lines if (events := _of_line(line, module))]


def _of_line(line: Any, module: str) -> list[ProfileEvent]:
    events = []
    for event in line.events:
        stats = dict(event.stats)
        if "hlo_op" in stats and str(stats.get("hlo_module", "")).startswith(module):
            instruction = stats["hlo_op"]
            if instruction.startswith(_RECORDED):
                instruction += f"/{event.name}"
            events.append(ProfileEvent(instruction, event.start_ns, event.duration_ns))
    return events
