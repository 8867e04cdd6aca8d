"""The commands: what each is called as a script and as `stoix-like NAME`, and how a person types one from here.

Imports nothing that takes time, so that `--help` is instant.
"""

from __future__ import annotations

import importlib
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PROGRAM = "stoix-like"


class Command(NamedTuple):
    """One command.

    Attributes:
        script: in scripts/.
        module: whose `function` runs it, with the command line as its argument.
        summary: one line for a list.
    """

    script: str
    module: str
    summary: str
    function: str = "main"

    def run(self, argv: list[str]) -> int:
        """Runs it; returns the exit code."""
        main: Callable[[list[str]], int] = getattr(importlib.import_module(self.module), self.function)
        return main(argv)


_ROOM = "stoix_like.runtime."
COMMANDS: dict[str, Command] = {
    "train-ppo": Command("train_ppo.py", f"{_ROOM}train_commands", "train PPO, or continue a run of it", "train_ppo"),
    "train-spo": Command("train_spo.py", f"{_ROOM}train_commands", "train SPO, or continue a run of it", "train_spo"),
    "evaluate": Command("evaluate.py", f"{_ROOM}evaluate_run", "score the policy of a run, with or without search"),
    "plot": Command("plot.py", f"{_ROOM}plot_runs", "draw learning curves of runs"),
    "animate": Command("animate.py", f"{_ROOM}animate_run", "draw an episode of a run as a GIF"),
    "export": Command(
        "export_policy.py", f"{_ROOM}export_run", "write the policy of a run for programs with jax alone"
    ),
    "compare": Command("compare.py", f"{_ROOM}compare_runs", "compare runs: which is better, by how much, how sure"),
    "report": Command("report.py", f"{_ROOM}html_report", "put all of some runs into one HTML file"),
    "compare-search": Command("compare_search.py", f"{_ROOM}compare_search", "compare searches at equal model steps"),
    "sweep": Command("sweep.py", f"{_ROOM}sweep", "search leaves of a run for the best score"),
    "bench": Command("bench.py", f"{_ROOM}bench.command", "measure what docs/benchmarks.md claims"),
    "doctor": Command(
        "doctor.py", f"{_ROOM}doctor", "say what is installed, which devices there are, what can be written"
    ),
    "envs": Command("envs.py", f"{_ROOM}list_envs", "list the environments by task id"),
}


class _Spelling:
    own: str | None = None  # a user's program that has our commands


_SPELLING = _Spelling()


def spelled_by(program: str) -> None:
    """From now on hints and help spell commands as those of a program of the user's, such as `tasks.py`."""
    _SPELLING.own = program


def program_name() -> str:
    """What stands before a command's name where no script is meant: `stoix-like`, or a program of the user's."""
    return _SPELLING.own or PROGRAM


def program(name: str) -> str:
    """What a command calls itself in its help: `plot.py`, or `stoix-like plot` if it was started so."""
    return COMMANDS[name].script if _is_script() else f"{program_name()} {name}"


def named(name: str) -> str:
    """What a hint calls a command: `scripts/plot.py` or `stoix-like plot`; also one that only another version has."""
    if not _is_script():
        return f"{program_name()} {name}"
    return f"scripts/{COMMANDS[name].script if name in COMMANDS else name.replace('-', '_') + '.py'}"


def usage(name: str) -> str:
    """How its help begins: `python scripts/plot.py` or `stoix-like plot`."""
    return named(name) if _is_console() else f"python {named(name)}"


def typed(name: str, *argv: str) -> str:
    """What a person types to run a command with these arguments, in the manner in which this process was started."""
    start = named(name) if _is_console() else f"{_python()} {named(name)}"
    return " ".join([start, *map(shlex.quote, argv)])


def installs(what: str) -> str:
    """What a person types to install something beside this Python, such as `pip install "stoix_like[sweep]"`."""
    python = _python()
    return f'{"pip" if python == "python" else f"{python} -m pip"} install "{what}"'


def _is_console() -> bool:
    return _SPELLING.own is None and Path(sys.argv[0]).name == PROGRAM


def _is_script() -> bool:
    return _SPELLING.own is None and not _is_console()


def _python() -> str:
    """What a person types to run this Python from here: `python` if that is it, else its path."""
    if (found := shutil.which("python")) and Path(found).parent == Path(sys.executable).parent:
        return "python"
    path = Path(sys.executable)
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
