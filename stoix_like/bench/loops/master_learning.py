"""What a master loop makes of several games in a given time: decisions and ratings of each, and what it holds.

The loop runs as a user runs it, in a process of its own that is stopped when its time is over; what is read are its
manifests. A folder that exists is measured as it is.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoix_like.bench.alphazero.learning import LearningOptions
from stoix_like.bench.learning.trainings import RUNS
from stoix_like.bench.loops.learning import LoopRun, decision_rows, finished_iterations, rating_row
from stoix_like.bench.timing.measure import Measurement
from stoix_like.config.checks.board_games import game_key
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.console.text import interval_text

POINTS = 16  # candidates whose ratings are shown


def master_suite(options: LearningOptions) -> Iterator[Measurement]:
    """The rows of every seed and game."""
    for seed in options.seeds:
        save_dir = finished_master(options.games, options.minutes, seed)
        for game in options.games:
            name, path = f"master/{game}/s{seed}", save_dir / game_key(game, 2)
            yield from master_rows(LoopRun(path, list(finished_iterations(path))), name)


def finished_master(games: Sequence[str], minutes: float, seed: int) -> Path:
    """The folder of a master loop over these games: run now for so many minutes, or as it was left."""
    save_dir = RUNS / f"master-{'-'.join(games)}-{minutes:g}min-s{seed}"
    if not save_dir.is_dir():
        flags = ["--games", ",".join(f"{game}:2" for game in games), "--save-dir", str(save_dir), "--seed", str(seed)]
        command = [sys.executable, str(ROOT / "scripts" / "master_loop.py"), *flags]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                raise RuntimeError(f"the loop has ended with {process.wait(60.0 * minutes)} before its time")
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
                process.wait()
    return save_dir


def master_rows(loop: LoopRun, name: str) -> Iterator[Measurement]:
    """Decisions, ratings, and the scores of the last champion that was evaluated for the report."""
    if not loop.iterations:
        yield Measurement(f"{name}/iterations", 0.0, "iterations", note=f"{loop.path}")
        return
    if len(loop.iterations) > 1:
        yield from decision_rows(loop, name)
    yield rating_row(loop, name, POINTS)
    shadow = loop.path / "evaluations" / "shadow.json"
    if shadow.is_file():
        found = json.loads(shadow.read_text(encoding="utf-8"))
        for anchor, one in found["anchors"].items():
            note = f"the champion of iteration {found['iteration']}, {one['games']} games"
            note += f", {interval_text(one['low'], one['high'], '.3f')}"
            yield Measurement(f"{name}/against_{anchor}", one["score"], "score", note=note)
