"""Where an update's time goes: a trace of a few updates, summed by the phases named in `ops/phases.py`.

The trace says how long each instruction of the compiled program ran; the program's text says from which scope each
came. Instructions that XLA made itself, and what stands in no scope, are `other`.
"""

from __future__ import annotations

import collections
import contextlib
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

from stoix_like.ops.phases import PHASES, PREFIX
from stoix_like.runtime.console.text import Value

MOST_UPDATES = 2
OTHER = "other"
_TRACES = "*.xplane.pb"
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_SCOPE = re.compile(rf"{PREFIX}({'|'.join(PHASES)})\b")


class ProfileEvent(NamedTuple):
    """One run of one instruction, on one thread or stream."""

    instruction: str
    start_ns: float
    duration_ns: float


class Scopes(NamedTuple):
    """Where an instruction comes from: its innermost phase, and whether `optimise` or `search` is around it."""

    phase: str
    optimises: bool
    searches: bool = False


class PhaseTimes(NamedTuple):
    """What was measured of some updates.

    Attributes:
        updates: how many.
        seconds: wall-clock time of one update, tracing included.
        shares: of the time that instructions ran, on all threads, by phase; they sum to 1.
        optimising: the share inside any `optimise` scope, its gathers included.
        playing: the share inside other scopes.
        searching: what of it is inside any `search` scope.
    """

    updates: int
    seconds: float
    shares: dict[str, float]
    optimising: float
    playing: float
    searching: float


class Profile:
    """The one profile of a run, written into `folder`. `times` is None until it is taken, `problem` if it can be.

    Args:
        folder: of the trace, some ten megabytes.
        is_kept: whether it stays there once the times are read.
    """

    def __init__(self, folder: Path, *, is_kept: bool = True) -> None:
        self.folder = folder
        self._is_kept = is_kept
        self.times: PhaseTimes | None = None
        self.problem: str | None = None
        self._module = ""
        self._scopes: dict[str, Scopes] = {}

    @property
    def is_over(self) -> bool:
        """Whether it was taken, or cannot be."""
        return self.times is not None or self.problem is not None

    def learn(self, program_text: str) -> None:
        """Takes in what the instructions of the program stand for: `Compiled.as_text()`."""
        self._module = module_name(program_text)
        self._scopes = scopes_of(program_text)

    @contextlib.contextmanager
    def recording(self, updates: int) -> Iterator[None]:
        """Traces what runs inside, which must wait for its results; afterwards there are `times`, or a `problem`.

        A training does not end because it cannot be profiled.
        """
        there = set(self.folder.rglob(_TRACES))
        try:
            jax.profiler.start_trace(str(self.folder))
        except RuntimeError as error:  # one profiler at a time, and on GPUs the driver may forbid it
            self.problem = str(error)
            yield
            return
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            self.problem = self._stop()
        new = sorted(set(self.folder.rglob(_TRACES)) - there)
        if self.problem is None:
            self._read(new, updates, seconds / updates)
        if not self._is_kept:
            self._remove(new)

    def _stop(self) -> str | None:
        try:
            jax.profiler.stop_trace()
        except (RuntimeError, OSError) as error:
            return str(error)
        return None

    def _read(self, traces: list[Path], updates: int, seconds: float) -> None:
        found = self_times(_events(traces[-1], self._module)) if traces else {}
        if found:
            self.times = phase_times(found, self._scopes, updates, seconds)
        else:
            self.problem = "the trace holds no instruction of the update"

    def _remove(self, traces: list[Path]) -> None:
        """The traces, with what the profiler has put beside them; what another start has kept stays."""
        for trace in traces:
            shutil.rmtree(trace.parent, ignore_errors=True)
        for folder in [*sorted(self.folder.rglob("*"), reverse=True), self.folder]:
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()

    def values(self) -> dict[str, Value]:
        """What a MISC row says of it, once it is taken: each share of one update's wall-clock time, in milliseconds."""
        times = self._taken()
        milliseconds = times.seconds * 1e3
        values: dict[str, Value] = {"misc/event": "profiled"}
        values |= {"misc/path": self.folder.name} if self._is_kept else {}
        values |= {f"misc/{name}_ms": share * milliseconds for name, share in times.shares.items()}
        values["misc/rollout_duration_ms"] = times.playing * milliseconds
        if times.searching > 0.0:
            values["misc/search_duration_ms"] = times.searching * milliseconds
        values["misc/optimization_duration_ms"] = times.optimising * milliseconds
        return values

    def _taken(self) -> PhaseTimes:
        if self.times is None:
            raise RuntimeError("the profile is read before it is taken")
        return self.times

    def table(self) -> list[str]:
        """Lines for a person: the phases from the longest to the shortest."""
        times = self._taken()
        what = f"{times.updates} updates, {times.seconds * 1e3:,.1f} ms each" if times.updates > 1 else "one update"
        head = f"profile of {what} · {self.folder}"
        rows = sorted((row for row in times.shares.items() if row[1] > 0.0), key=lambda row: -row[1])
        body = [f"  {name:<10}{share * times.seconds * 1e3:>12,.2f} ms{share:>7.1%}" for name, share in rows]
        return [head, *body, "open the .trace.json.gz in ui.perfetto.dev, or the folder in TensorBoard (XProf)"]


def scopes_of(program_text: str) -> dict[str, Scopes]:
    """The scopes of each instruction of an HLO module's text.

    A fusion without a name of its own takes the commonest of what is fused.
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

    def settled(name: str, scopes: Scopes) -> Scopes:
        parts = [part for part in inside[called.get(name, "")] if part.phase != OTHER]
        return collections.Counter(parts).most_common(1)[0][0] if scopes.phase == OTHER and parts else scopes

    return {name: settled(name, scopes) for name, scopes in own.items()}


def _read_scopes(op_name: str) -> Scopes:
    phases = _SCOPE.findall(op_name)
    optimises = "optimise" in phases
    return Scopes(phases[-1] if phases else OTHER, optimises, not optimises and "search" in phases)


def module_name(program_text: str) -> str:
    """`jit_chunk` of a text that begins with `HloModule jit_chunk, ...`."""
    return program_text.removeprefix("HloModule ").partition(",")[0]


def self_times(lines: Iterable[list[ProfileEvent]]) -> dict[str, float]:
    """Nanoseconds that each instruction ran itself, without those it ran inside: a loop's body is not the loop.

    Args:
        lines: the events of each thread or stream; on one line they nest or follow each other.
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


def phase_times(found: dict[str, float], scopes: dict[str, Scopes], updates: int, seconds: float) -> PhaseTimes:
    """The shares of instructions' own times, by phase and part."""
    whole = sum(found.values())
    shares = dict.fromkeys((*PHASES, OTHER), 0.0)
    optimising = playing = searching = 0.0
    for name, nanoseconds in found.items():
        phase, optimises, searches = scopes.get(name, Scopes(OTHER, False))
        shares[phase] += nanoseconds / whole
        optimising += nanoseconds / whole if optimises else 0.0
        playing += nanoseconds / whole if phase != OTHER and not optimises else 0.0
        searching += nanoseconds / whole if searches else 0.0
    return PhaseTimes(updates, seconds, shares, optimising, playing, searching)


def _events(trace: Path, module: str) -> list[list[ProfileEvent]]:
    planes = list(jax.profiler.ProfileData.from_file(str(trace)).planes)
    on_device = _of_planes([plane for plane in planes if plane.name.startswith("/device:")], module)
    return on_device or _of_planes(planes, module)


def _of_planes(planes: list[Any], module: str) -> list[list[ProfileEvent]]:
    return [events for plane in planes for line in plane.lines if (events := _of_line(line, module))]


def _of_line(line: Any, module: str) -> list[ProfileEvent]:
    found = []
    for event in line.events:
        stats = dict(event.stats)
        if "hlo_op" in stats and str(stats.get("hlo_module", "")).startswith(module):
            found.append(ProfileEvent(stats["hlo_op"], event.start_ns, event.duration_ns))
    return found
