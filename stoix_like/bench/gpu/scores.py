"""The seconds from the start of a training's process until its policy alone has a score, as a user waits for it."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.bench.gpu.cases import Case
from stoix_like.bench.timing.measure import Measurement
from stoix_like.errors import RunError
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.telemetry.jsonl import FILE_NAME, read_rows

_LOOK_SECONDS = 0.05  # between two looks at the metrics of a run
RUN_NAME = "run"


class Goal(NamedTuple):
    """The scores of a preset that are waited for.

    Attributes:
        metric: of an evaluation, such as `evaluator/solve_rate`.
        scores: in rising order.
        flags: further flags of the training.
    """

    preset: str
    metric: str
    scores: tuple[float, ...]
    flags: tuple[str, ...] = ()


def score_case(goal: Goal, start: str) -> Case:
    """A training until its last score. `start` is `first_start` without a compile cache, later `second_start`."""
    name = f"score/{goal.preset.replace('/', '_')}/{start}"
    return Case(name, lambda: functools.partial(score_rows, name, goal))


def score_rows(name: str, goal: Goal) -> Iterator[Measurement]:
    """A row for each score, when it is reached. Raises RunError if the training ends before the last."""
    left, best = list(goal.scores), float("-inf")
    with tempfile.TemporaryDirectory() as folder, _training(goal, folder) as process:
        began = time.monotonic()
        for row in _evaluations(process, Path(folder) / RUN_NAME / FILE_NAME):
            seconds = time.monotonic() - began
            best = max(best, row.get(goal.metric) or 0.0)
            while left and best >= left[0]:
                note = f"{row['timesteps']:,} steps, {row['update']} updates, {row['elapsed_seconds']:.1f} s of the run"
                metric = goal.metric.rpartition("/")[2]
                note = f"{metric} from the start of the process; {note}, evaluations and compiling included"
                yield Measurement(f"{name}/{left.pop(0):g}", seconds, "s", note=note)
            if not left:
                return
        code = process.wait()
    raise RunError(f"{goal.preset} ended with exit code {code} and at best {best:.3f}, not {left[0]:g}", "see its rows")


@contextlib.contextmanager
def _training(goal: Goal, folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """A training that ends with the block."""
    command = [sys.executable, str(ROOT / "scripts" / "train_ppo.py"), "--config", goal.preset, *goal.flags]
    command += ["--save-dir", folder, "--run-name", RUN_NAME, "--no-progress"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _evaluations(process: subprocess.Popen[bytes], path: Path) -> Iterator[dict[str, Any]]:
    """The rows of evaluations as they are written, until the process ends."""
    seen = 0
    while True:
        has_ended = process.poll() is not None  # asked first, so that its last rows are read
        rows = read_rows(path) if path.is_file() else []
        yield from (row for row in rows[seen:] if row["category"] == "EVALUATOR")
        seen = len(rows)
        if has_ended:
            return
        time.sleep(_LOOK_SECONDS)
