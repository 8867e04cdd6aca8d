"""Runs parts of a suite, each in a process of its own, under a limit of seconds each and one deadline of all.

A part is a process because XLA reads its flags when it starts, and because an error may end one part only. The process
prints a line of JSON as soon as it has a row, and one when a case has ended. Whatever of a case is missing is named on
stderr with the reason. No process of a part is left behind: it has a session of its own, whose processes are killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from stoix_like.bench.timing.measure import Measurement
from stoix_like.runtime.console import signals
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.console.messages import print_to_stderr

_LOOK_SECONDS = 0.1  # between two looks at whether a process has ended
_MOST_LETTERS = 200  # of a reason


class Process(NamedTuple):
    """What is run for a part.

    Attributes:
        name: of the part.
        cases: names of what it measures, in this order.
        command: the command line; its stdout is read as lines of `Report`.
        seconds: the most it may take.
        environment: variables that differ from those of this process.
    """

    name: str
    cases: Sequence[str]
    command: Sequence[str]
    seconds: float
    environment: Mapping[str, str] = {}


class Report(NamedTuple):
    """A line of a part's process: a row of a case, or its end if there is none.

    Attributes:
        problem: why the case has no more rows; empty if it has all of them.
    """

    case: str
    row: Measurement | None = None
    problem: str = ""

    def line(self) -> str:
        """The report as one line of JSON."""
        row = None if self.row is None else self.row._asdict()
        return json.dumps({"case": self.case, "row": row, "problem": self.problem})


def read_report(line: str) -> Report | None:
    """The report on a line; None for what a library prints."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.keys() != {"case", "row", "problem"}:
        return None
    row = found["row"]
    return Report(found["case"], None if row is None else Measurement(**row), found["problem"])


def run_processes(processes: Sequence[Process], deadline: float) -> Iterator[Measurement]:
    """The rows of all parts, each as soon as it is printed. `deadline` is a moment of `time.monotonic`, in seconds."""
    for process in processes:
        left = deadline - time.monotonic()
        if left <= 0.0:
            _name_left_out(process.cases, "the deadline of all parts came before")
        else:
            yield from _run(process, min(process.seconds, left))


def _run(part: Process, seconds: float) -> Iterator[Measurement]:
    missing = dict.fromkeys(part.cases)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors, _started(part, errors) as process:
        for line in _lines(process, time.monotonic() + seconds):
            if (report := read_report(line)) is None:
                continue
            if report.row is not None:
                yield report.row
                continue
            missing.pop(report.case, None)
            if report.problem:
                _name_left_out([report.case], report.problem)
        if missing:
            _name_left_out(missing, _why_ended(part, seconds, process.poll(), errors))


@contextlib.contextmanager
def _started(part: Process, errors: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """The process of a part, in a session whose processes end with the block or at a signal that ends this command."""
    started: list[subprocess.Popen[str]] = []

    def kill(_signal: int = 0) -> bool:
        for process in started:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: only ended ones are left
                os.killpg(process.pid, signal.SIGKILL)
        return True

    with signals.receiving(kill):
        try:
            started.append(_popen(part, errors))
            yield started[0]
        finally:
            kill()
            for process in started:
                process.wait()


def _popen(part: Process, errors: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        part.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, **part.environment},
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        cwd=ROOT,  # where the package is found if it is not installed
    )


def _lines(process: subprocess.Popen[str], until: float) -> Iterator[str]:
    """The lines of a process until it ends or the moment comes. A process that it has left behind is not waited for."""
    received: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process.stdout, received), daemon=True).start()
    while time.monotonic() < until:
        has_ended = process.poll() is not None  # asked first: a line that it printed before is still waited for
        try:
            yield received.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            if has_ended:
                return


def _read(stream: IO[str], received: queue.SimpleQueue[str]) -> None:
    with stream:
        for line in stream:
            received.put(line)


def _why_ended(part: Process, seconds: float, code: int | None, errors: IO[str]) -> str:
    """Why a part has not reported all of its cases: `code` is the exit code of its process, None if it still runs."""
    if code is None:
        is_deadline = seconds < part.seconds
        return "the deadline of all parts came" if is_deadline else f"{part.name} took longer than {part.seconds:g} s"
    ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    return f"the process of {part.name} {ended}{f': {lines[-1][:_MOST_LETTERS]}' if lines else ''}"


def _name_left_out(cases: Sequence[str] | Mapping[str, None], reason: str) -> None:
    for case in cases:
        print_to_stderr(f"left out: {case} ({reason})")
