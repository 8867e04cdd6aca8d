"""Operations that a compiled program executes one after the other, counted from its text.

Small batches are bound by how many operations follow each other, not by their arithmetic: each waits for the one
before, and a GPU launches a kernel for nearly each. The number is that of the compiled program's instructions times
the trips of the loops around them, so it does not depend on the speed of the machine. A CPU's program has other fusions
than a GPU's, and loops that draw random bits where a GPU has one kernel.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from stoix_like.runtime.profiling.phase_times import COMPUTATION, INSTRUCTION, OTHER, Scopes

#: Instructions that execute nothing, and ends of operations that have been counted when they began.
_NOT_EXECUTED = frozenset(
    (
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "partition-id",
        "replica-id",
        "copy-done",
        "async-done",
        "async-update",
        "all-reduce-done",
        "all-gather-done",
        "collective-permute-done",
        "send-done",
        "recv-done",
    )
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_LOOP = re.compile(r"condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}|true_computation=(\S+), false_computation=([^\s,]+)")
_CALLED = re.compile(r"to_apply=%?([\w.\-]+)")


class Operations(NamedTuple):
    """What one execution of a program executes.

    Attributes:
        of_phases: operations by phase.
        unknown: loops whose trips the program does not tell; each is counted as one trip.
    """

    of_phases: dict[str, int]
    unknown: tuple[str, ...]


class _Instruction(NamedTuple):
    name: str
    opcode: str
    line: str


def count_operations(program_text: str, scopes: dict[str, Scopes], *, of_one_trip: bool = False) -> Operations:
    """The operations of an HLO module's text, by the phases of its instructions.

    A fusion is one operation, and so is a call of a library. Of a conditional the longest branch counts. With
    `of_one_trip` the program is a loop, such as that over updates, and one trip of it is counted.
    """
    computations, entry = _read(program_text)
    unknown: list[str] = []
    counts = _of_computation(computations, scopes, unknown, entry)
    outermost = {instruction.name for instruction in computations[entry]} if of_one_trip else set()
    return Operations(dict(counts), tuple(name for name in unknown if name not in outermost))


def _of_computation(
    computations: dict[str, list[_Instruction]], scopes: dict[str, Scopes], unknown: list[str], name: str
) -> collections.Counter[str]:
    of_called = functools.partial(_of_computation, computations, scopes, unknown)
    counts: collections.Counter[str] = collections.Counter()
    for instruction, opcode, line in computations.get(name, []):
        if opcode == "while" and (loop := _LOOP.search(line)):
            trips = _TRIPS.search(line)
            if trips is None:
                unknown.append(instruction)
            counts += _times(of_called(loop[1]) + of_called(loop[2]), int(trips[1]) if trips else 1)
        elif opcode == "conditional":
            branches: list[collections.Counter[str]] = [of_called(branch) for branch in _branches(line)]
            longest = max(branches, key=lambda branch: branch.total())
            counts += longest
        elif opcode == "call" and (called := _CALLED.search(line)):
            counts += of_called(called[1])
        elif opcode not in _NOT_EXECUTED:
            counts[scopes.get(instruction, Scopes(OTHER, False)).phase] += 1
    return counts


def _times(counts: collections.Counter[str], factor: int) -> collections.Counter[str]:
    return collections.Counter({phase: count * factor for phase, count in counts.items()})


def _branches(line: str) -> Iterator[str]:
    found = _BRANCHES.search(line)
    names = (found[1].split(",") if found[1] else [found[2], found[3]]) if found else []
    return (name.strip().removeprefix("%") for name in names)


def _read(program_text: str) -> tuple[dict[str, list[_Instruction]], str]:
    """(the instructions of each computation, the name of the one that is executed)."""
    computations: dict[str, list[_Instruction]] = collections.defaultdict(list)
    computation = entry = ""
    for line in program_text.splitlines():
        if begins := COMPUTATION.match(line):
            computation = begins[1]
            entry = computation if line.startswith("ENTRY") else entry
        elif found := INSTRUCTION.match(line):
            computations[computation].append(_Instruction(found[1], _opcode(line[found.end() :]), line))
    return computations, entry


def _opcode(text: str) -> str:
    """`add` of `f32[8]{0} add(...)`; a tuple's shape has parentheses and spaces of its own."""
    depth = 0
    for end, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == " " and depth == 0:
            return text[end + 1 :].partition("(")[0]
    return ""
