"""The table of commands: the script, the module and one line of help for each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """One command.

    Attributes:
        module: whose `function` runs it, with the command line as its argument.
        summary: one line for a list.
    """

    module: str
    summary: str
    function: str = "main"

    def run(self, argv: list[str]) -> int:
        """Runs it; returns the exit code."""
        main: Callable[[list[str]], int] = getattr(importlib.import_module(self.module), self.function)
        return main(argv)


_ROOM = "stoix_like.runtime."

COMMANDS: dict[str, Command] = {
    "train-ppo": Command(f"{_ROOM}train_commands", "train PPO, or continue a run of it", "train_ppo"),
    "train-spo": Command(f"{_ROOM}train_commands", "train SPO, or continue a run of it", "train_spo"),
    "evaluate": Command(f"{_ROOM}evaluate_run", "score the policy of a run, with or without search"),
    "plot": Command(f"{_ROOM}plot_runs", "draw learning curves of runs"),
    "animate": Command(f"{_ROOM}animate_run", "draw an episode of a run as a GIF"),
    "export": Command(f"{_ROOM}export_run", "write the policy of a run for programs with jax alone"),
    "compare": Command(f"{_ROOM}compare_runs", "compare runs: which is better, by how much, how sure"),
    "report": Command(f"{_ROOM}html_report", "put all of some runs into one HTML file"),
    "compare-search": Command(f"{_ROOM}compare_search", "compare searches at equal model steps"),
    "sweep": Command(f"{_ROOM}sweep", "search leaves of a run for the best score"),
    "bench": Command(f"{_ROOM}bench.command", "measure what docs/benchmarks.md claims"),
    "doctor": Command(f"{_ROOM}doctor", "say what is installed, which devices there are, what can be written"),
    "envs": Command(f"{_ROOM}list_envs", "list the environments by task id"),
}
