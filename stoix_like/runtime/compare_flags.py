"""What `compare_search.py` takes: the methods by name, the settings of a comparison, and the flags that give them."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from stoix_like.config.values import nearest
from stoix_like.runtime.console.arguments import (
    LARGEST_SEED,
    ArgumentParser,
    above_zero,
    add_checkpoint_flag,
    add_device_flag,
    number_that,
    output_file,
    positive,
    seed_number,
)
from stoix_like.runtime.console.spelling import program

#: {method: what it is}; more in `compare_methods`.
METHODS = {
    "greedy": "the most probable actions",
    "sampled": "sampled actions",
    "best_of": "the best of as many whole sampled episodes as the budget",
    "smc": "4 steps deep, independent first actions, resampled every second step, valued by the critic",
    "distinct": "the most probable first actions, each followed greedily to the end of the episode",
    "plan": "the same followed by sampled actions, keeping to the best path found so far",
    "own": "the run's own search, of an SPO run, at its own size",
}
DEFAULT_LEVELS = 256
DEFAULT_NUM_ENVS = 128
LEARNED = "dual"


class Settings(NamedTuple):
    """What is compared and how it is played."""

    methods: tuple[str, ...] = tuple(METHODS)
    budgets: tuple[int, ...] = (16, 64, 256, 1024)  # model steps per decision, ascending
    temperature: float | None = 0.005  # of smc, reward units; None: the one an SPO run has learned
    num_envs: int | None = None  # levels played at a time; None: 128, and fewer where there are many particles
    seed: int = LARGEST_SEED  # of sampling


def parse(argv: list[str]) -> tuple[argparse.Namespace, Settings]:
    """(all flags, the settings among them).

    Raises:
        ConfigError: a flag that is unknown or out of range.
    """
    arguments = make_parser().parse_args(argv)
    return arguments, Settings(*(getattr(arguments, name) for name in Settings._fields))


def make_parser() -> ArgumentParser:
    """What the command takes."""
    parser = ArgumentParser(
        program("compare-search"), "Compares searches of saved runs at equal numbers of model steps."
    )
    defaults = Settings()
    parser.add_argument("runs", nargs="+", help="run folders, names under runs/, latest, or files params.safetensors")
    add_checkpoint_flag(parser)
    parser.add_argument("--levels", help=f"frozen levels, such as binpack-2048 (default: {DEFAULT_LEVELS} of the task)")
    named = ",".join(METHODS)
    described = "; ".join(f"{name}: {what}" for name, what in METHODS.items())
    told = f"some of {named}; greedy is played in any case, for gains are over it (default: all). {described}"
    parser.add_argument("--methods", type=_methods, default=defaults.methods, help=told)
    budgets = ",".join(map(str, defaults.budgets))
    told = f"model steps per decision; a search has the particles that they pay for, at least 1 (default: {budgets})"
    parser.add_argument("--budgets", type=_budgets, default=defaults.budgets, help=told)
    told = f"of smc, reward units; {LEARNED}: the one an SPO run has learned (default: {defaults.temperature})"
    parser.add_argument(
        "--temperature", type=_temperature, default=defaults.temperature, metavar=f"T|{LEARNED}", help=told
    )
    told = f"levels played at a time (default: {DEFAULT_NUM_ENVS}, fewer where particles are many)"
    parser.add_argument("--num-envs", type=positive, help=told)
    parser.add_argument("--seed", type=seed_number, default=defaults.seed, help="of sampling")
    parser.add_argument("--json", type=output_file, help="write the result to this file as well")
    parser.add_argument("--plot", type=output_file, help="draw mean returns over model steps: .png, .pdf or .svg")
    add_device_flag(parser)
    return parser


def _methods(text: str) -> tuple[str, ...]:
    given = text.split(",")
    for name in given:
        if name not in METHODS:
            known = ",".join(METHODS)
            raise argparse.ArgumentTypeError(f"expected some of {known}, got '{name}'{nearest(name, METHODS)}")
    return tuple(name for name in METHODS if name in given)


def _budgets(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive(number) for number in text.split(",")}))


def _temperature(text: str) -> float | None:
    if text == LEARNED:
        return None
    return number_that(text, above_zero, f"a number above 0, or {LEARNED}")
