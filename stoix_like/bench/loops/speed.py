"""What a continuous loop costs beside its stages, and how soon it answers: its events, whoever asks, and a stop.

The loop runs as a user runs it, on connect four, in processes of its own; what is read are its manifests.
"""

from __future__ import annotations

import itertools
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoix_like.bench.loops.soak import wait_for
from stoix_like.bench.timing.measure import Measurement
from stoix_like.bench.timing.memory import resident_bytes
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.selfplay.files.folders import STAGE_NAMES

GAME, ITERATIONS, REPETITIONS, NUM_EVENTS = "connect_four_2p", 8, 5, 10_000
_LOOP = f"run_continuous_training -c {GAME} --games 4000 --cooldown 0".split()
#: The other two, for their memory.
_SINGLE = f"run_training_loop --board-type connect_four --selfplay-games 4000 --max-iterations {ITERATIONS + 1}".split()
_MASTER = f"master_loop --games {GAME} --selfplay-games 4000".split()
_TIMEOUT = 1800.0  # seconds
#: Writes so many events, then lets a consumer see all of them; prints the seconds of both.
_REPLAY = f"""
import sys, time
from pathlib import Path
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.events.kinds import IterationComplete
from stoix_like.selfplay.events.router import EventRouter, Subscription

log, seen = EventLog(Database(Path(sys.argv[1]))), []
made = [
    IterationComplete(game="g", iteration=number, run="r", time=0.0, promoted=False, seconds=1.0)
    for number in range({NUM_EVENTS})
]
began = time.perf_counter()
log.append(made)
written = time.perf_counter()
EventRouter(log, SILENT, [Subscription("all", seen.append, from_start=True)]).dispatch()
assert seen == made
print(written - began, time.perf_counter() - written)
"""


def loops_suite() -> Iterator[Measurement]:
    """The rows."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _loop_rows(Path(folder))
    for name, words in (("single", _SINGLE), ("master", _MASTER)):
        with tempfile.TemporaryDirectory() as folder:
            yield _resident_row(name, words, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run(
            [sys.executable, "-c", _REPLAY, folder], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    written, replayed = map(float, told.split())
    note = f"to a consumer that begins with the first; {written:.2f} s to write them"
    yield Measurement(f"loops/replay_{NUM_EVENTS}_events", replayed, "s", note=note)


def _resident_row(name: str, words: list[str], save_dir: Path) -> Measurement:
    """The memory of another loop, at the same place."""
    process = _start(*words, "--save-dir", str(save_dir))
    try:
        wait_for(process, save_dir, ITERATIONS, GAME)
        return _memory(name, process.pid)
    finally:
        process.terminate()
        process.wait(_TIMEOUT)


def _memory(name: str, pid: int) -> Measurement:
    note = f"resident, after {ITERATIONS} iterations of connect four"
    return Measurement(f"loops/memory/{name}", resident_bytes(pid) / 2**20, "MB", note=note)


def _loop_rows(save_dir: Path) -> Iterator[Measurement]:
    process = _start(*_LOOP, "--save-dir", str(save_dir))
    try:
        wait_for(process, save_dir, ITERATIONS, GAME)
        memory = _memory("continuous", process.pid)
        answers = [_seconds_of("launch_daemons", "--status", "--save-dir", str(save_dir)) for _ in range(REPETITIONS)]
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(_TIMEOUT)
        stopped = time.monotonic() - began
    finally:
        process.kill()
    found = [_manifests(save_dir, number) for number in range(2, ITERATIONS + 1)]  # the first one compiles
    yield from _cost_rows(found)
    yield memory
    note = f"of {REPETITIONS} calls while the loop runs, the start of Python included"
    yield Measurement("loops/status", statistics.median(answers), "s", note=note)
    yield Measurement(
        "loops/stop", stopped, "s", note="from SIGTERM to the end of the process, in one shard of 4,000 games"
    )


def _cost_rows(found: list[dict[str, Manifest]]) -> Iterator[Measurement]:
    """What of the time of iterations is no stage's, and how soon the next stage begins."""
    began = found[0]["selfplay"].recorded["began_at"]
    whole = _end(found[-1]["promote"]) - began
    inside = sum(float(one.recorded["seconds"]) for each in found for one in each.values())
    note = (
        f"of {len(found)} iterations, {whole / len(found):.1f} s each: events, store, checks, and the start of stages"
    )
    yield Measurement("loops/beside_stages", 1.0 - inside / whole, "of the time", note=note)
    gaps = [each["sync"].recorded["began_at"] - _end(each["selfplay"]) for each in found]
    note = f"from the end of self-play, whose event is written, to the next stage; the longest {max(gaps):.3f} s"
    yield Measurement("loops/next_stage", statistics.median(gaps), "s", note=note)
    between = [
        later["selfplay"].recorded["began_at"] - _end(one["promote"]) for one, later in itertools.pairwise(found)
    ]
    note = "from the end of an iteration to the next one's self-play"
    yield Measurement("loops/next_iteration", statistics.median(between), "s", note=note)


def _end(manifest: Manifest) -> float:
    return float(manifest.recorded["began_at"]) + float(manifest.recorded["seconds"])


def _manifests(save_dir: Path, number: int) -> dict[str, Manifest]:
    folder = save_dir / GAME / "iterations" / f"{number:04d}"
    return {name: one for name in STAGE_NAMES if (one := read_manifest(folder / name)) is not None}


def _start(script: str, *argv: str) -> subprocess.Popen[Any]:
    command = [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *argv]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _seconds_of(script: str, *argv: str) -> float:
    began = time.perf_counter()
    _start(script, *argv).wait(_TIMEOUT)
    return time.perf_counter() - began
