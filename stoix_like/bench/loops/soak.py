"""Hundreds of tiny iterations of the continuous loop, which is killed at random: what is left on disk, and in memory.

The loop runs in processes of its own. It is killed without warning until the kills are used up; then the last process
makes the rest, and enough more for its memory and file descriptors to be watched.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.bench.timing.measure import Measurement
from stoix_like.bench.timing.memory import resident_bytes
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.files.folders import STAGE_NAMES

GAME = "tic_tac_toe_2p"
#: Flags of a game whose iteration takes a second, with the network of its preset, whose checkpoints have 57 leaves.
TINY = (
    "--num-envs 4 --rollout-length 4 --num-simulations 2 --batch-size 16"
    " --replay-buffer-size 256 --random-plies 2 --shard-games 5 --window-positions 64 --validation-share 0.25"
    " --match-opening-plies 2 --match-anchors random --anchor-pairs 2 --most-pairs 4 --pairs-per-look 2"
    " --promotion-elo-0 -200 --promotion-elo-1 1 --promotion-alpha 0.49 --promotion-beta 0.49 --min-samples 0"
)
LOOP = f"-c tic_tac_toe:2 --games 10 --cooldown 0 {TINY}".split()
_LONGEST_LIFE = 20.0  # seconds from the first progress of a process to its kill
_LOOK_SECONDS = 0.2
_WARM, _WATCHED = 120, 120  # iterations of the last process before its memory is watched, and then
_TIMEOUT = 1800.0  # seconds without an iteration


class SoakResult(NamedTuple):
    """What a soak has left.

    Attributes:
        iterations: finished.
        kills: that were made.
        seconds: of all of it.
        problems: what is not as it should be; empty if all is well.
        memory: megabytes that the last process held, by iteration.
        descriptors: files that it had open.
    """

    iterations: int
    kills: int
    seconds: float
    problems: list[str]
    memory: list[float]
    descriptors: list[int]


def soak(save_dir: Path, iterations: int, kills: int, seed: int = 0) -> SoakResult:
    """Runs at least so many iterations with so many kills.

    Args:
        save_dir: the folder of pipelines, empty.
        iterations: to finish.
        kills: at random moments, evenly over half of the iterations.
        seed: of the moments.
    """
    draws, began, done = random.Random(seed), time.monotonic(), dict[Path, int]()
    problems, memory, descriptors = list[str](), list[float](), list[int]()
    made = 0
    while made < kills:
        goal = round(0.5 * iterations * (made + 1) / kills)
        with _loop(save_dir) as process:
            wait_for(process, save_dir, goal)
            time.sleep(draws.random() * min(_LONGEST_LIFE, 1.0 + num_finished(save_dir) / 10.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
        made += 1
        problems += _changed(save_dir, done)
    with _loop(save_dir) as process:
        first = num_finished(save_dir) + _WARM
        while (seen := num_finished(save_dir)) < max(iterations, first + _WATCHED):
            wait_for(process, save_dir, seen + 1)
            if seen >= first:
                memory.append(resident_bytes(process.pid) / 2**20)
                descriptors.append(len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
        process.send_signal(signal.SIGTERM)
        process.wait()
    problems += _changed(save_dir, done) + list(inconsistencies(save_dir))
    return SoakResult(num_finished(save_dir), made, time.monotonic() - began, problems, memory, descriptors)


@contextlib.contextmanager
def _loop(save_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(ROOT / "scripts" / "run_continuous_training.py"), *LOOP, "--save-dir", str(save_dir)]
    with (
        (save_dir / "output.txt").open("ab") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[Any], save_dir: Path, goal: int, game: str = GAME) -> None:
    """Waits for so many finished iterations. Raises RuntimeError if the process ends before, or makes none."""
    end = time.monotonic() + _TIMEOUT
    while num_finished(save_dir, game) < goal:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the loop has ended with {process.returncode}, or makes no iteration")
        time.sleep(_LOOK_SECONDS)


def num_finished(save_dir: Path, game: str = GAME) -> int:
    """Iterations whose last stage is done."""
    return len(list((save_dir / game / "iterations").glob("*/promote/manifest.json")))


def _changed(save_dir: Path, done: dict[Path, int]) -> list[str]:
    """Stages that were done before and are done anew, or have lost their manifest. Notes those that are done now."""
    found = {path: path.stat().st_mtime_ns for path in (save_dir / GAME).glob("iterations/*/*/manifest.json")}
    changed = [f"{path} was written again" for path, at in done.items() if found.get(path, 0) != at]
    done.update(found)
    return changed


def inconsistencies(save_dir: Path) -> Iterator[str]:
    """What of manifests, events, locks and processes does not fit together after the loop has ended."""
    root = save_dir / GAME
    numbers = sorted(int(path.name) for path in (root / "iterations").iterdir() if int(path.name) > 0)
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"iterations {numbers[0]} to {numbers[-1]} are {len(numbers)}"
    for number in numbers[:-1]:
        for stage in STAGE_NAMES:
            if read_manifest(root / "iterations" / f"{number:04d}" / stage) is None:
                yield f"iteration {number} lacks the stage {stage}"
    with contextlib.closing(sqlite3.connect(save_dir / "events.sqlite")) as connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM events")]
        (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
    if answer != "ok":
        yield f"events.sqlite: {answer}"
    for number in numbers[:-1]:
        if (count := keys.count(f"{GAME}/{number}/promote/ITERATION_COMPLETE/1")) != 1:
            yield f"iteration {number} was told {count} times"
    if failed := [key for key in keys if "FAILED" in key]:
        yield f"{len(failed)} stages have failed, such as {failed[0]}"
    yield from _leaked(save_dir)


def _leaked(save_dir: Path) -> Iterator[str]:
    """Processes that still name the folder, and a status that says that a loop runs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(save_dir) in (words := path.read_bytes().decode(errors="replace").replace("\0", " ")):
                yield f"a process is left: {words}"
    command = [sys.executable, str(ROOT / "scripts" / "launch_daemons.py"), "--status", "--json", "--save-dir"]
    found = json.loads(subprocess.run([*command, str(save_dir)], check=False, capture_output=True, text=True).stdout)
    yield from (f"the {loop['name']} loop is {loop['state']}" for loop in found["loops"] if loop["state"] != "stopped")


def growth(memory: list[float]) -> float:
    """The slope of the least-squares line through these megabytes, one an iteration, in kilobytes an iteration."""
    return statistics.linear_regression(range(len(memory)), memory).slope * 1024.0


def soak_suite(iterations: int = 200, kills: int = 50) -> Iterator[Measurement]:
    """The rows of a soak."""
    with tempfile.TemporaryDirectory() as folder:
        result = soak(Path(folder), iterations, kills)
    note = "; ".join(result.problems) or "every stage done once, every iteration told once, no process left"
    name = f"loop_soak/{iterations}_iterations_{kills}_kills"
    yield Measurement(f"{name}/problems", float(len(result.problems)), "problems", note=note)
    seconds = result.seconds / result.iterations
    yield Measurement(f"{name}/iteration", seconds, "s", note=f"{result.iterations} iterations, starts included")
    half = len(result.memory) // 2
    early, late = (statistics.median(part) for part in (result.memory[:half], result.memory[half:]))
    note = f"median of the later half of its iterations; {early:.1f} MB in the earlier half"
    yield Measurement(f"{name}/memory", late, "MB", note=note)
    note = f"slope of a line through its memory after each of its last {len(result.memory)} iterations"
    yield Measurement(f"{name}/memory_growth", growth(result.memory), "kB an iteration", note=note)
    early, late = (min(part) for part in (result.descriptors[:half], result.descriptors[half:]))
    note = f"least that were open after one of the later half of its iterations; {early} in the earlier half"
    yield Measurement(f"{name}/descriptors", float(late), "files", note=note)
