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
from typing import NamedTuple

from stoix_like.ops.phases import PHASES, PREFIX

OTHER = "other"
#: The first line of a computation in the text of a program, and that of an instruction; each with its name.
COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_SCOPE = re.compile(rf"{PREFIX}({'|'.join(PHASES)})\b")


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
        if begins := COMPUTATION.match(line):
            computation = begins[1]
        elif instruction := INSTRUCTION.match(line):
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
