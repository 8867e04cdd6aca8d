"""The time of an update by phase, from a profiler's trace: a trace is summed by the phases named in `ops/phases.py`.

The trace has the duration of each instruction of the compiled program; the program's text has the scope of each.
Instructions that XLA generated, and those outside any scope, are `other`.

XLA records most kernels of a GPU into command buffers (CUDA graphs). Their events have the buffer for an instruction,
and are told apart by the kernel's name, which is that of an instruction, its dots written as underscores.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from stoix_like.ops.phases import PHASES, PREFIX

OTHER = "other"
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_RECORDED = "command_buffer"  # begins the name of a command buffer
_SCOPE = re.compile(rf"{PREFIX}({'|'.join(PHASES)})\b")


class ProfileEvent(NamedTuple):
    """One execution of one instruction, on one thread or stream; `command_buffer_1/kernel` if it was recorded."""

    instruction: str
    start_ns: float
    duration_ns: float


class Scopes(NamedTuple):
    """The scopes of an instruction: the innermost phase, and whether it is inside `optimise` or `search`."""

    phase: str
    optimises: bool
    searches: bool = False


class PhaseTimes(NamedTuple):
    """Measured shares of the phases."""

    updates: int  # in the trace
    seconds: float  # wall-clock time of one update, including the tracing
    shares: dict[str, float]  # of the execution time of all threads, by phase; they sum to 1
    optimising: float  # share inside any `optimise` scope, including its gathers
    playing: float  # share inside other scopes
    searching: float  # the part of `playing` inside any `search` scope


def scopes_of(program_text: str) -> dict[str, Scopes]:
    """The scopes of each instruction of an HLO module's text.

    A fusion without its own op_name gets the most common scopes of its instructions.
    """
    own: dict[str, Scopes] = {}
    inside: dict[str, list[Scopes]] = collections.defaultdict(list)
    called: dict[str, str] = {}
    computation = ""
    for line in program_text.splitlines():
        if begins := _COMPUTATION.match(line):
            computation = begins[1]
        elif instruction := _INSTRUCTION.match(line):
            name = instruction[1]
            op_name = _OP_NAME.search(line)
            own[name] = _read_scopes(op_name[1] if op_name else "")
            inside[computation].append(own[name])
            if calls := _CALLED.search(line):
                called[name] = calls[1]

    def resolve(name: str, scopes: Scopes) -> Scopes:
        parts = [part for part in inside[called.get(name, "")] if part.phase != OTHER]
        return collections.Counter(parts).most_common(1)[0][0] if scopes.phase == OTHER and parts else scopes

    return {name: resolve(name, scopes) for name, scopes in own.items()}


def _read_scopes(op_name: str) -> Scopes:
    phases = _SCOPE.findall(op_name)
    optimises = "optimise" in phases
    return Scopes(phases[-1] if phases else OTHER, optimises, not optimises and "search" in phases)


def scopes_of_events(instructions: Iterable[str], scopes: dict[str, Scopes]) -> dict[str, Scopes]:
    """The scopes of events by their instructions, also of those that were recorded into command buffers.

    A kernel of a library is named after no instruction: it has the most common scopes of its command buffer.
    """
    kernels = {re.sub(r"\W", "_", name): found for name, found in scopes.items()}
    result: dict[str, Scopes] = {}
    inside: dict[str, collections.Counter[Scopes]] = collections.defaultdict(collections.Counter)
    unnamed = []
    for instruction in instructions:
        buffer, _, kernel = instruction.rpartition("/")
        found = kernels.get(kernel) if buffer else scopes.get(instruction)
        result[instruction] = found or Scopes(OTHER, False)
        if found is not None and found.phase != OTHER:
            inside[buffer][found] += 1
        elif buffer:
            unnamed.append((instruction, buffer))
    for instruction, buffer in unnamed:
        if inside[buffer]:
            result[instruction] = inside[buffer].most_common(1)[0][0]
    return result


def module_name(program_text: str) -> str:
    """`jit_chunk` of a text that begins with `HloModule jit_chunk, ...`."""
    return program_text.removeprefix("HloModule ").partition(",")[0]


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


def phase_times(times: dict[str, float], scopes: dict[str, Scopes], updates: int, seconds: float) -> PhaseTimes:
    """The shares of the instructions' self times, by phase and part."""
    whole = sum(times.values())
    shares = dict.fromkeys((*PHASES, OTHER), 0.0)
    optimising = playing = searching = 0.0
    for name, nanoseconds in times.items():
        phase, optimises, searches = scopes.get(name, Scopes(OTHER, False))
        shares[phase] += nanoseconds / whole
        optimising += nanoseconds / whole if optimises else 0.0
        playing += nanoseconds / whole if phase != OTHER and not optimises else 0.0
        searching += nanoseconds / whole if searches else 0.0
    return PhaseTimes(updates, seconds, shares, optimising, playing, searching)


def read_events(trace: Path, module: str) -> list[list[ProfileEvent]]:
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
