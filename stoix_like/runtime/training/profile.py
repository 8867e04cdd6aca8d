"""The time of an update by phase: a trace of a few updates, summed by the phases named in `ops/phases.py`.

The trace has the duration of each instruction of the compiled program; the program's text has the scope of each.
Instructions that XLA generated, and those outside any scope, are `other`.
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
    """One execution of one instruction, on one thread or stream."""

    instruction: str
    start_ns: float
    duration_ns: float


class Scopes(NamedTuple):
    """The scopes of an instruction: the innermost phase, and whether it is inside `optimise` or `search`."""

    phase: str
    optimises: bool
    searches: bool = False


class PhaseTimes(NamedTuple):
    """Measured shares of the phases.

    Attributes:
        updates: number of updates in the trace.
        seconds: wall-clock time of one update, including the tracing.
        shares: of the execution time of all threads, by phase; they sum to 1.
        optimising: share inside any `optimise` scope, including its gathers.
        playing: share inside other scopes.
        searching: the part of `playing` inside any `search` scope.
    """

    updates: int
    seconds: float
    shares: dict[str, float]
    optimising: float
    playing: float
    searching: float


class Profile:
    """The profile of a run, taken once. `times` is None until then; `problem` is set if it fails.

    Args:
        folder: of the trace, about ten megabytes.
        is_kept: whether the trace stays there after its times are read.
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
        """Whether the profile was taken or has failed."""
        return self.times is not None or self.problem is not None

    def set_program(self, program_text: str) -> None:
        """Sets the program whose instructions are traced, as `Compiled.as_text()`."""
        self._module = module_name(program_text)
        self._scopes = scopes_of(program_text)

    @contextlib.contextmanager
    def recording(self, updates: int) -> Iterator[None]:
        """Traces the block and sets `times`, or `problem`. The block must wait for its results.

        A failed profile does not stop the training.
        """
        before = set(self.folder.rglob(_TRACES))
        try:
            jax.profiler.start_trace(str(self.folder))
        except RuntimeError as error:  # another profiler is active, or the GPU driver forbids it
            self.problem = str(error)
            yield
            return
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            self.problem = self._stop()
        new = sorted(set(self.folder.rglob(_TRACES)) - before)
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
        nanoseconds = self_times(_events(traces[-1], self._module)) if traces else {}
        if nanoseconds:
            self.times = phase_times(nanoseconds, self._scopes, updates, seconds)
        else:
            self.problem = "the trace holds no instruction of the update"

    def _remove(self, traces: list[Path]) -> None:
        """Removes the traces and the profiler's other files, but not those of earlier starts."""
        for trace in traces:
            shutil.rmtree(trace.parent, ignore_errors=True)
        for folder in [*sorted(self.folder.rglob("*"), reverse=True), self.folder]:
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()

    def values(self) -> dict[str, Value]:
        """Values of the MISC row: the share of each phase in one update's wall-clock time, in milliseconds."""
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
            raise RuntimeError("the profile has not been taken yet")
        return self.times

    def table(self) -> list[str]:
        """Lines for the terminal: the phases, longest first."""
        times = self._taken()
        what = f"{times.updates} updates, {times.seconds * 1e3:,.1f} ms each" if times.updates > 1 else "one update"
        head = f"profile of {what} · {self.folder}"
        rows = sorted((row for row in times.shares.items() if row[1] > 0.0), key=lambda row: -row[1])
        body = [f"  {name:<10}{share * times.seconds * 1e3:>12,.2f} ms{share:>7.1%}" for name, share in rows]
        return [head, *body, "open the .trace.json.gz in ui.perfetto.dev, or the folder in TensorBoard (XProf)"]


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


def module_name(program_text: str) -> str:
    """`jit_chunk` of a text that begins with `HloModule jit_chunk, ...`."""
    return program_text.removeprefix("HloModule ").partition(",")[0]


def self_times(lines: Iterable[list[ProfileEvent]]) -> dict[str, float]:
    """Nanoseconds of each instruction, without those of instructions nested in it, such as the body of a loop.

    Args:
        lines: the events of each thread or stream; events of one line are nested or follow each other.
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


def _events(trace: Path, module: str) -> list[list[ProfileEvent]]:
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
            events.append(ProfileEvent(stats["hlo_op"], event.start_ns, event.duration_ns))
    return events
