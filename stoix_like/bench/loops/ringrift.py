"""What the loop of self-play learns of RingRift in a time of play and learning: strength against engines, and ratings.

The loop runs as a user runs it, in a process of its own that is interrupted when its time is over. A loop that was
interrupted before goes on: its clock is beside its folder. Evaluation does not count as time of learning.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from stoix_like.bench.alphazero import matches as measured
from stoix_like.bench.alphazero.learning import RINGRIFT, RINGRIFT_OPENINGS, LearningOptions
from stoix_like.bench.alphazero.matches import TrainedRuns
from stoix_like.bench.learning.trainings import RUNS
from stoix_like.bench.loops.learning import LoopRun, decision_rows, finished_iterations, rating_row
from stoix_like.bench.timing.measure import Measurement
from stoix_like.config.checks.board_games import game_key, parse_game
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.runs.saved import load_run
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.storage.atomic import atomic_write_json

#: {simulations of the champion: engines that it plays}; 0 is its network alone.
MATCHES = {32: ("heuristic", "mcts-512", "random"), 0: ("heuristic",)}
_LOOK_SECONDS = 5.0


def ringrift_learning_suite(options: LearningOptions) -> Iterator[Measurement]:
    """The rows of every seed of each game; hex8 unless games of RingRift are given."""
    for game in [game for game in options.games if game in RINGRIFT] or ["hex8"]:
        loops = {seed: timed_loop(game, options.minutes, seed) for seed in options.seeds}
        for seed, loop in loops.items():
            name = f"loop/{game}/s{seed}"
            yield _time_row(loop, name)
            yield from decision_rows(loop, name)
            yield rating_row(loop, name)
        yield from strength_rows(f"loop/{game}", [loop.path for loop in loops.values()], options.openings)


def timed_loop(game: str, minutes: float, seed: int) -> LoopRun:
    """The loop of a seed when it has had its minutes without evaluation: run on for what is left of them."""
    save_dir = RUNS / f"loop-{game.replace(':', '-')}-{minutes:g}min-s{seed}"
    path = save_dir / game_key(*parse_game(game))
    name, num_players = parse_game(game)
    if time_of_learning(path) < 60.0 * minutes:
        script = str(ROOT / "scripts" / "run_training_loop.py")
        flags = ["--board-type", name, "--num-players", str(num_players), "--seed", str(seed)]
        flags += ["--save-dir", str(save_dir), "--max-iterations", "100000"]
        with subprocess.Popen([sys.executable, script, *flags], stdout=subprocess.DEVNULL) as process:
            _wait_until_time_is_over(process, path, 60.0 * minutes)
    return LoopRun(path, list(finished_iterations(path)))


def _wait_until_time_is_over(process: subprocess.Popen[bytes], path: Path, seconds: float) -> None:
    """Interrupts the loop when all of its processes together have had so many seconds without evaluation."""
    before, began = _wall_seconds(path), time.monotonic()
    while True:
        try:
            raise RuntimeError(f"the loop has ended with {process.wait(_LOOK_SECONDS)} before its time")
        except subprocess.TimeoutExpired:
            atomic_write_json(_clock_file(path), {"wall_seconds": before + time.monotonic() - began})
        if time_of_learning(path) >= seconds:
            process.send_signal(signal.SIGTERM)
            process.wait()
            return


def time_of_learning(path: Path) -> float:
    """Seconds that the processes of a loop have run, compilation included, but for those of finished evaluations."""
    found = [read_manifest(folder / "evaluate") for folder in sorted((path / "iterations").glob("*"))]
    return _wall_seconds(path) - sum(one.recorded["seconds"] for one in found if one is not None)


def _clock_file(path: Path) -> Path:
    return path.parent / "clock.json"


def _wall_seconds(path: Path) -> float:
    file = _clock_file(path)
    return float(json.loads(file.read_text(encoding="utf-8"))["wall_seconds"]) if file.is_file() else 0.0


def _time_row(loop: LoopRun, name: str) -> Measurement:
    games = sum(one["selfplay"].facts["games"] for one in loop.iterations)
    positions = sum(one["selfplay"].facts["positions"] for one in loop.iterations)
    spent = time_of_learning(loop.path)
    note = f"play and learning, compilation included; {games:,} games, {positions / spent:,.0f} positions/s"
    note += f"; evaluation took {(_wall_seconds(loop.path) - spent) / 60.0:.0f} min more"
    return Measurement(f"{name}/time", spent / 60.0, "min", note=note)


def strength_rows(prefix: str, folders: list[Path], most_openings: int) -> Iterator[Measurement]:
    """The champions of pipelines of one game against engines, over pairs of openings."""
    runs = [load_run(str(folder)) for folder in folders]
    trained = TrainedRuns(prefix, runs[0].env.game, runs)
    for simulations, engines in MATCHES.items():
        for engine in engines:
            yield measured.match_row(trained, simulations, engine, min(most_openings, RINGRIFT_OPENINGS))
