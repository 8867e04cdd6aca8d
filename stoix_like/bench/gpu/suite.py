"""The suite `gpu`: everything that is to be measured while a GPU is there, in nine minutes, in processes of its own."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator

import jax

from stoix_like.bench.gpu.parts import Part, parts
from stoix_like.bench.gpu.processes import Process, run_processes
from stoix_like.bench.timing.measure import Measurement, Timing, significant_ratio

#: Of nine minutes; the rest is for the start of the command.
SECONDS = 520.0
_BUFFERS = "command_buffers/"


def gpu_suite() -> Iterator[Measurement]:
    """The rows of all parts that the time is enough for. On a CPU they are tiny."""
    deadline, platform = time.monotonic() + SECONDS, jax.default_backend()
    found: dict[str, Measurement] = {}
    with tempfile.TemporaryDirectory() as folder:
        processes = [process_of(part, platform, folder) for part in parts(platform == "cpu")]
        for row in run_processes(processes, deadline):
            found[row.name.removeprefix("scale/")] = row
            yield beside_default(row, found)


def process_of(part: Part, platform: str, folder: str) -> Process:
    """How a part is run. Trainings have a compile cache of their own in the folder, which is empty at first."""
    command = [sys.executable, "-m", "stoix_like.bench.gpu.child", part.name, "--device-type", platform]
    command += ["--tiny"] if platform == "cpu" else []
    cache = os.path.join(folder, "trainings" if part.starts_runs else "updates")
    environment = {"JAX_COMPILATION_CACHE_DIR": cache}
    if platform == "cpu":
        environment["JAX_PLATFORMS"] = platform  # of trainings, which are given no device
    if part.xla_flags:
        environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {part.xla_flags}".strip()
    return Process(part.name, [case.name for case in part.cases], command, part.seconds, environment)


def beside_default(row: Measurement, found: dict[str, Measurement]) -> Measurement:
    """A row of other command buffers with that of the default, measured in another process, as reference."""
    default = found.get(row.name.removeprefix(_BUFFERS).partition("/")[2]) if row.name.startswith(_BUFFERS) else None
    if default is None:
        return row
    ours, theirs = (Timing(1.0 / each.value, each.spread or 0.0) for each in (row, default))
    note = f"reference: the default, in another process; {row.note}"
    return row._replace(reference=default.value, ratio=significant_ratio(ours, theirs), note=note)
