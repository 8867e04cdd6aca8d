"""Trainings of AlphaZero for a time on the clock: the run folders that `alphazero_learning` measures.

A run's number of updates is what the time is enough for, by the seconds that an update takes here, so that its learning
rates have fallen to 0 by the end; a deadline ends runs that other load has slowed down. A folder that exists is resumed
with its own settings, and left alone if its time or its updates are used up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax

from stoix_like.bench.alphazero.speed import preset
from stoix_like.bench.learning.trainings import RUNS, refuse_other_settings
from stoix_like.bench.timing.measure import time_interleaved
from stoix_like.config.checks.board_games import parse_game
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.runtime.results.series import read_started_run
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.find import read_config
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.training.callbacks import Callback, RunClock, StopTraining
from stoix_like.runtime.training.train import train

NUM_CHECKPOINTS = 8  # of a run, evenly over its updates: the points of its curve
SHARE_OF_TIME = 0.95  # that updates are planned for; compiling and checkpoints take the rest

#: Widths and depths of a network family, where the preset's are of another one: the board's are those of othello.
SIZES: dict[str, dict[str, Any]] = {"board": {"hidden_dim": 32, "num_layers": 3}}


def adapter_leaves(adapter: str | None) -> dict[str, Any]:
    """What a configuration with this network family has instead of the preset's leaves."""
    return {} if adapter is None else {"observation_adapter": adapter, **SIZES.get(adapter, {})}


class TimedTraining(NamedTuple):
    """A preset trained for some minutes.

    Attributes:
        game: of the preset; `square8:4` is the preset of square8 with four players.
        minutes: from the start of the run to its end, compiling included.
        adapter: the network family; None for the preset's own.
    """

    game: str
    minutes: float
    adapter: str | None = None

    @property
    def name(self) -> str:
        """The run folders are `runs/bench/<name>-s<seed>`."""
        return f"alphazero-{self.game.replace(':', '-')}-{self.adapter or 'preset'}-{self.minutes:g}min"


class Deadline(Callback):
    """Ends a run when its clock, earlier processes included, has reached so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def next_update(self, clock: RunClock) -> int:
        """Now, once the time is over."""
        is_over = clock.now().elapsed_seconds >= self._seconds
        return clock.update if is_over else clock.last_update + 1

    def run(self, state: Any, clock: RunClock) -> Any:
        """Ends the run."""
        if not clock.is_ending:
            raise StopTraining("out of time")
        return state


class TimedRun(NamedTuple):
    """A run that has had its time."""

    path: Path
    updates: int  # done
    planned: int
    steps: int
    seconds: float


def finished_run(training: TimedTraining, seed: int) -> TimedRun:
    """The run of a training and seed. It is started, or resumed if it has time left."""
    path = RUNS / f"{training.name}-s{seed}"
    seconds = 60.0 * training.minutes
    if not (path / "config.yaml").is_file():
        updates = updates_within(seconds, seconds_per_update(_config(training)))
        _train(_flags(training, seed, path, updates), seconds)
    else:
        _check_settings(training, seed, path)
        if not _has_ended(path, seconds):
            _train(["--resume", str(path)], seconds)
    return _described(path)


def _has_ended(path: Path, seconds: float) -> bool:
    found = _described(path)
    return found.updates >= found.planned or found.seconds >= seconds


def _described(path: Path) -> TimedRun:
    last, planned = read_started_run(path).last, read_config(path)["training_core"]["num_updates"]
    return TimedRun(path, last.get("update", 0), planned, last.get("timesteps", 0), last.get("elapsed_seconds", 0.0))


def _check_settings(training: TimedTraining, seed: int, path: Path) -> None:
    """Raises ConfigError if the run was trained with other settings than the training has now: presets change."""
    flags = _flags(training, seed, path, read_config(path)["training_core"]["num_updates"])
    expected = load_config(AlphaZeroConfig, "alphazero", flags, "alphazero/connect_four").config
    refuse_other_settings(path, expected, training.name)


def _config(training: TimedTraining) -> AlphaZeroConfig:
    name, _ = parse_game(training.game)
    return preset(name, task_id=training.game, **adapter_leaves(training.adapter))


def _flags(training: TimedTraining, seed: int, path: Path, updates: int) -> list[str]:
    name, _ = parse_game(training.game)
    flags = ["--config", f"alphazero/{name}", "--task-id", training.game]
    flags += ["--seed", str(seed), "--num-updates", str(updates)]
    flags += ["--save-dir", str(RUNS), "--run-name", path.name, "--no-save-replay"]
    flags += ["--save-interval", str(max(updates // NUM_CHECKPOINTS, 1)), "--keep-last-n", str(2 * NUM_CHECKPOINTS)]
    flags += ["--eval-interval", "0", "--opponent", "heuristic", "--anchors", "random"]  # the matches are played later
    flags += ["--num-eval-episodes", "8", "--num-eval-envs", "8"]
    for leaf, value in adapter_leaves(training.adapter).items():
        flags += [f"--{leaf.replace('_', '-')}", str(value)]
    return flags


def _train(flags: list[str], seconds: float) -> None:
    loaded = load_config(AlphaZeroConfig, "alphazero", [*flags, "--no-progress"], "alphazero/connect_four")
    train("alphazero", loaded, [Deadline(seconds)])


def updates_within(seconds: float, seconds_per_update: float) -> int:
    """How many updates a run of so many seconds is planned for: at least one."""
    return max(int(SHARE_OF_TIME * seconds / seconds_per_update), 1)


def seconds_per_update(config: AlphaZeroConfig) -> float:
    """The median of five updates after three that only fill the replay."""
    learner = build.build("alphazero", config).learner
    update = jax.jit(learner.update, donate_argnums=0)
    held = {"state": jax.jit(learner.init)(jax.random.key(0))}

    def run() -> Any:
        held["state"], metrics = update(held["state"])
        return metrics

    for _ in range(2):
        run()
    return time_interleaved({"update": run}, repetitions=5)["update"].seconds
