"""Scores on the text worlds: PPO and SPO, three seeds each, beside the exact ceiling and random play."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stoix_like.bench.learning.scores import SHORT, Claim, Pair, baseline_row, claim_rows
from stoix_like.bench.learning.trainings import Training
from stoix_like.bench.timing.measure import Measurement
from stoix_like.config.sections.runs import PPOConfig
from stoix_like.evaluation.baselines import random_legal
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.sources import load_config


class Task(NamedTuple):
    """A world that is learned: the presets of both algorithms, with further flags, and its frozen levels.

    `brief` flags shorten PPO to the environment steps of SPO.
    """

    name: str
    preset: str
    level_set: str
    flags: tuple[str, ...] = ()
    brief: tuple[str, ...] = ()


#: Rooms that the best player needs up to 40 moves for.
LARGE = ("--kwargs", "{bank: sokoban_8x8_2, max_actions: 40}")
#: As many environment steps as `spo/sokoban`.
AS_SPO = ("--num-updates", "80")
TASKS = (
    Task("frozen_lake", "frozen_lake", "frozenlaketext-1024"),
    Task("frozen_lake_firm", "frozen_lake", "frozenlaketext-1024", ("--kwargs", "{intended_p: 1.0}")),
    Task("sudoku", "sudoku", "sudokutext-1024"),
    Task("sokoban", "sokoban", "sokobantext-1024", brief=AS_SPO),
    Task("sokoban_8x8_2", "sokoban", "sokobantext-256", LARGE, AS_SPO),
)


def text_worlds_suite() -> Iterator[Measurement]:
    """Each world: random play, then the last policies of PPO and SPO, alone and with a search, and how far SPO's are
    above PPO's."""
    for task in TASKS:
        yield _random_row(task)
        yield from claim_rows(tuple(_claims(task)), tuple(_pairs(task)))


def _claims(task: Task) -> Iterator[Claim]:
    for training in _trainings(task):
        row = f"{training.name}/{{}}"
        yield Claim(training, task.level_set, "solve_rate", row.format("network"), network=True)
        search = SHORT if training.preset.startswith("ppo/") else None  # SPO has its own
        yield Claim(training, task.level_set, "solve_rate", row.format("search"), search)


def _trainings(task: Task) -> Iterator[Training]:
    name = task.name.replace("_", "-")
    yield Training(f"ppo-{name}", f"ppo/{task.preset}", task.flags)
    if task.brief:
        yield Training(f"ppo-{name}-brief", f"ppo/{task.preset}", (*task.flags, *task.brief))
    yield Training(f"spo-{name}", f"spo/{task.preset}", task.flags)


def _pairs(task: Task) -> Iterator[Pair]:
    """SPO above PPO, and above a brief PPO as well."""
    *of_ppo, of_spo = _trainings(task)
    for ppo, name in zip(of_ppo, ("", "/at_equal_steps"), strict=False):
        for play in ("network", "search"):
            yield Pair(f"{of_spo.name}/{play}", f"{ppo.name}/{play}", name and f"{of_spo.name}/{play}{name}")


def _random_row(task: Task) -> Measurement:
    config = load_config(PPOConfig, "ppo", ["--config", f"ppo/{task.preset}", *task.flags], "").config
    env = build.make_env(config.environment)
    return baseline_row(f"random_legal/{task.name}", env, random_legal, task.level_set, "solve_rate")
