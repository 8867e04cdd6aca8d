"""What the loop of self-play reaches beside online training in the same time: ratings, decisions, and its overhead.

The loop runs as a user runs it, in a process of its own that is interrupted when its time is over; what is read are its
manifests. A folder that exists is measured as it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.algorithms import tasks
from stoix_like.bench.alphazero import matches as measured
from stoix_like.bench.alphazero.learning import LearningOptions
from stoix_like.bench.alphazero.matches import TrainedRuns
from stoix_like.bench.alphazero.speed import preset
from stoix_like.bench.alphazero.trainings import TimedTraining, finished_run, seconds_per_update
from stoix_like.bench.learning.trainings import RUNS
from stoix_like.bench.timing.measure import Measurement
from stoix_like.config.checks.board_games import game_key
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.evaluation.contests import matches
from stoix_like.runtime.arena.contestants import run_player
from stoix_like.runtime.arena.match import MatchRunner
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.console.text import interval_text
from stoix_like.runtime.runs.saved import load_run
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.selfplay.files.folders import STAGE_NAMES

GAME = "connect_four"
POINTS = 8  # candidates whose moves are compared with solved positions, evenly over the iterations
OVERHEAD_ROUNDS = 3
_TIMES = re.compile(r"^iteration (\d+) +([\d.]+) s,", re.MULTILINE)
SOLVED = ((16, 17, 18, 19, 20), 60)


class LoopRun(NamedTuple):
    """A pipeline that has had its time."""

    path: Path  # of the game's folder
    iterations: list[dict[str, Manifest]]  # the finished ones


def finished_loop(minutes: float, seed: int) -> LoopRun:
    """The loop of a seed: run now for so many minutes, or as it was left."""
    save_dir = RUNS / f"loop-{GAME}-{minutes:g}min-s{seed}"
    path = save_dir / game_key(GAME, 2)
    if not path.is_dir():
        script = ROOT / "scripts" / "run_training_loop.py"
        flags = ["--board-type", GAME, "--save-dir", str(save_dir), "--seed", str(seed), "--max-iterations", "100000"]
        with subprocess.Popen([sys.executable, str(script), *flags], stdout=subprocess.DEVNULL) as process:
            try:
                process.wait(60.0 * minutes)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                process.wait()
    return LoopRun(path, list(finished_iterations(path)))


def finished_iterations(path: Path) -> Iterator[dict[str, Manifest]]:
    """{stage: manifest} of each iteration of a pipeline that is finished."""
    for folder in sorted((path / "iterations").iterdir()):
        found = {name: read_manifest(folder / name) for name in STAGE_NAMES}
        if all(manifest is not None for manifest in found.values()):
            yield {name: manifest for name, manifest in found.items() if manifest is not None}


def loop_suite(options: LearningOptions) -> Iterator[Measurement]:
    """The rows of every seed."""
    solved = measured.solved_positions(*SOLVED)
    for seed in options.seeds:
        loop = finished_loop(options.minutes, seed)
        yield from decision_rows(loop, f"loop/{GAME}/s{seed}")
        yield _overhead_row(loop, f"loop/{GAME}/s{seed}", seed)
        yield rating_row(loop, f"loop/{GAME}/s{seed}")
        yield from _kept_value_rows(loop, f"loop/{GAME}/s{seed}", solved)
        yield from _match_rows(loop, f"loop/{GAME}/s{seed}", options.minutes, seed)


def decision_rows(loop: LoopRun, name: str) -> Iterator[Measurement]:
    """Decisions, positions, and seconds by stage without the first iteration, in which programs are compiled."""
    seconds = {stage: sum(one[stage].recorded["seconds"] for one in loop.iterations[1:]) for stage in STAGE_NAMES}
    positions = sum(one["selfplay"].facts["positions"] for one in loop.iterations)
    verdicts = [one["promote"].facts["verdict"] for one in loop.iterations]
    counts = ", ".join(f"{verdict} {verdicts.count(verdict)}" for verdict in ("promote", "reject", "inconclusive"))
    games = sum(one["evaluate"].facts["games"] for one in loop.iterations)
    note = f"{counts}; {games:,} games of evaluations; {positions:,} positions; {loop.path}"
    yield Measurement(f"{name}/iterations", float(len(loop.iterations)), "iterations", note=note)
    whole = sum(seconds.values())
    each = ", ".join(f"{stage} {value / len(loop.iterations[1:]):.2f}" for stage, value in seconds.items())
    share = seconds["evaluate"] / whole
    yield Measurement(f"{name}/evaluation_share", share, "of the time", note=f"seconds an iteration: {each}")


def _overhead_row(loop: LoopRun, name: str, seed: int) -> Measurement:
    """The time of positions in the loop, without evaluation, beside online training, in turn on the same cores.

    The loop goes on in a copy of its folder, with a network whose games have their final length.
    """
    config, ratios, rates = preset(GAME), list[float](), list[float]()
    with tempfile.TemporaryDirectory(dir=loop.path.parent) as folder:
        copy = Path(folder) / loop.path.name
        shutil.copytree(loop.path, copy, copy_function=_link_or_copy)
        for _ in range(OVERHEAD_ROUNDS):
            before = seconds_per_update(config)
            own = seconds_per_position(copy, _run_more(Path(folder), seed))
            online = (before + seconds_per_update(config)) / 2.0 / steps_per_update(config)
            ratios.append(own / online)
            rates.append(1.0 / own)
    ratios.sort()
    note = f"median of {len(ratios)} rounds, {ratios[0] - 1:.3f} to {ratios[-1] - 1:.3f};"
    note += f" {statistics.median(rates):,.0f} positions/s without evaluation and compilation"
    return Measurement(f"{name}/overhead", statistics.median(ratios) - 1.0, "of online", note=note)


def _link_or_copy(source: str, target: str) -> None:
    """Links what is never written again, and copies the rest."""
    (os.link if source.endswith(".npz") else shutil.copyfile)(source, target)


def _run_more(save_dir: Path, seed: int) -> str:
    """What the loop says of four more iterations, with its own settings, but without evaluation."""
    script = ROOT / "scripts" / "run_training_loop.py"
    flags = ["--board-type", GAME, "--save-dir", str(save_dir), "--seed", str(seed), "--resume", "--new-iteration"]
    command = [sys.executable, str(script), *flags, "--skip-evaluation", "--max-iterations", "4"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def seconds_per_position(path: Path, said: str) -> float:
    """Of the iterations that the loop has told of, but for the first, which compiles: all of their time."""
    told = [(int(number), float(seconds)) for number, seconds in _TIMES.findall(said)][1:]
    played = [read_manifest(path / "iterations" / f"{number:04d}" / "selfplay") for number, _ in told]
    return sum(seconds for _, seconds in told) / sum(one.facts["positions"] for one in played if one is not None)


def rating_row(loop: LoopRun, name: str, most: int = 1000) -> Measurement:
    """The rating of the last champion, and those of candidates on the way: at most so many, evenly over iterations."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lineage.json"
        script = ROOT / "scripts" / "ratings.py"
        command = [sys.executable, str(script), "--lineage", str(loop.path), "--json", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found: list[dict[str, Any]] = [one for one in json.loads(file.read_text()) if one["rating"] is not None]
    champion = next(one for one in found if one["status"] == "champion")
    marks = {"champion": "*", "former champion": "*"}
    shown = [found[index] for index in sorted({round(index) for index in np.linspace(0, len(found) - 1, most)})]
    curve = ", ".join(f"{one['iteration']}{marks.get(one['status'], '')} {one['rating']:.0f}" for one in shown)
    note = f"iteration {champion['iteration']}, {interval_text(champion['low'], champion['high'], '.0f')}"
    note += f"; by iteration, * became champion: {curve}"
    return Measurement(f"{name}/rating", champion["rating"], "Elo", note=note)


def _kept_value_rows(loop: LoopRun, name: str, solved: Any) -> Iterator[Measurement]:
    """The share of moves that keep the value of solved positions, of candidates on the way."""
    last = len(loop.iterations)
    numbers = sorted({max(round(last * (index + 1) / POINTS), 1) for index in range(POINTS)})
    runs = [load_run(str(loop.path / "iterations" / f"{number:04d}" / "train")) for number in numbers]
    for simulations in (0, 32):
        rows = [
            measured.kept_value_row(TrainedRuns("", runs[0].env.game, [run]), simulations, solved, "16_to_20")
            for run in runs
        ]
        curve = ", ".join(f"{number} {row.value:.3f}" for number, row in zip(numbers, rows, strict=True))
        who = f"{simulations}_sims" if simulations else "network"
        yield Measurement(f"{name}/kept_value/{who}", rows[-1].value, "moves", note=f"by iteration: {curve}")


def _match_rows(loop: LoopRun, name: str, minutes: float, seed: int) -> Iterator[Measurement]:
    """The last champion against the run that online training made in the same time."""
    online = finished_run(TimedTraining(GAME, minutes), seed)
    first, second = load_run(str(loop.path)), load_run(str(online.path), "latest")
    book = tasks.book(first.env.game, None, 568)
    for simulations in (0, 32):
        player = MatchRunner(first.env.game, run_player(first, simulations), run_player(second, simulations), book)
        one, other = (run.network_params(run.seed_params(0)) for run in (first, second))
        found = matches.summarize(player.play(one, other, jax.random.key(0)))
        spread = (found.score.high - found.score.low) / 2 / found.score.point
        who = f"{simulations}_sims" if simulations else "network"
        note = f"{found.num_games} games, {found.wins}-{found.draws}-{found.losses}; {online.path}"
        yield Measurement(f"{name}/against_online/{who}", found.score.point, "score", spread, note=note)
