"""The table of commands: the module and one line of help for each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from stoix_like.runtime.training.train import TrainResult

#: What the function of a command returns; `entry.exit_code` makes the exit code of it, and None is 0.
Outcome: TypeAlias = "int | TrainResult | None"


class Command(NamedTuple):
    """One command.

    Attributes:
        module: the module with its function.
        summary: its line in the list of commands.
        function: the function that runs it, called with the command line.
    """

    module: str
    summary: str
    function: str = "main"

    def run(self, argv: list[str]) -> Outcome:
        """Runs the command; returns the exit code, or the result of a training."""
        main: Callable[[list[str]], Outcome] = getattr(importlib.import_module(self.module), self.function)
        return main(argv)


COMMANDS: dict[str, Command] = {
    "train-ppo": Command("stoix_like.commands.runs.train", "train PPO, or resume a run of it", "train_ppo"),
    "train-spo": Command("stoix_like.commands.runs.train", "train SPO, or resume a run of it", "train_spo"),
    "train-alphazero": Command(
        "stoix_like.commands.runs.train", "train AlphaZero on a board game, or resume a run of it", "train_alphazero"
    ),
    "train-agent": Command(
        "stoix_like.commands.runs.train", "train an agent that writes its moves in a text world", "train_agent"
    ),
    "spa": Command("stoix_like.commands.runs.spa", "SPA and its stages: data by self-play, fine-tuning, PPO"),
    "run-training-loop": Command(
        "stoix_like.commands.selfplay.training_loop", "self-play in stages: one iteration, or several, of a board game"
    ),
    "run-continuous-training": Command(
        "stoix_like.commands.selfplay.continuous_training", "self-play of several games in turn, until it is stopped"
    ),
    "master-loop": Command(
        "stoix_like.commands.selfplay.master_loop",
        "self-play of several games with all that belongs to it, and its status",
    ),
    "launch-daemons": Command(
        "stoix_like.commands.selfplay.launch_daemons",
        "keep a loop running: start it again when it ends, stop it, show it",
    ),
    "verify-evidence": Command(
        "stoix_like.commands.selfplay.verify_evidence", "play the match that decided on a candidate of self-play again"
    ),
    "evaluate": Command("stoix_like.commands.runs.evaluate", "score the policy of a run, with or without search"),
    "arena": Command("stoix_like.commands.games.arena", "play runs and engines of a board game against each other"),
    "ratings": Command("stoix_like.commands.games.ratings", "rate the checkpoints of runs of a board game"),
    "play-board": Command("stoix_like.commands.games.play_board", "play a run or an engine of a board game yourself"),
    "play-text": Command("stoix_like.commands.runs.play_text", "show episodes of a language agent, token by token"),
    "plot": Command("stoix_like.commands.runs.plot", "draw learning curves of runs"),
    "animate": Command("stoix_like.commands.runs.animate", "draw an episode of a run as a GIF"),
    "export": Command("stoix_like.commands.runs.export", "write the policy of a run for programs with jax alone"),
    "compare": Command("stoix_like.commands.runs.compare", "compare runs: which is better, by how much, how sure"),
    "report": Command("stoix_like.commands.runs.report", "write a report of runs into one HTML file"),
    "compare-search": Command("stoix_like.commands.runs.compare_search", "compare searches at equal model steps"),
    "sweep": Command("stoix_like.commands.runs.sweep", "search leaves of a run for the best score"),
    "bench": Command("stoix_like.commands.machine.bench", "measure what docs/benchmarks.md claims"),
    "doctor": Command(
        "stoix_like.commands.machine.doctor", "show what is installed, which devices there are, what can be written"
    ),
    "envs": Command("stoix_like.commands.machine.envs", "list the environments by task id"),
    "make-levels": Command("stoix_like.commands.machine.make_levels", "make a bank of levels of a text world"),
}
"""{name: command} of `stoix-like NAME`. A user's program may add commands, see `entry.run_command`."""
