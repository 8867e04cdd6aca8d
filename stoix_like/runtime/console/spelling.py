"""Command lines as a user types them: as a script, as `stoix-like NAME`, or through a program of their own.

Imports nothing slow, so that `--help` is instant.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from pathlib import Path

PROGRAM = "stoix-like"
SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"  # of a clone
_SCRIPTS = {"export": "export_policy.py"}  # scripts whose name differs from their command's
_STAGES = {"pretrain": ("spa", "pretrain"), "sft": ("spa", "sft")}  # algorithms that are stages of a command


class _Program:
    own: str | None = None  # a user's program that runs our commands


def set_program_name(program: str) -> None:
    """Makes hints and help texts name a user's program, such as `tasks.py`, in front of our commands."""
    _Program.own = program


def program_name() -> str:
    """The program that takes our commands as arguments: `stoix-like`, or the user's own."""
    return _Program.own or PROGRAM


def script_of(name: str) -> str:
    """The file name of a command in scripts/: `compare_search.py`."""
    return _SCRIPTS.get(name, name.replace("-", "_") + ".py")


def prog(name: str) -> str:
    """The name of a command in its own help: `plot.py`, or `stoix-like plot` if it was started that way."""
    return script_of(name) if _is_script() else f"{program_name()} {name}"


def command_name(name: str) -> str:
    """The name of a command in hints: `scripts/plot.py` or `stoix-like plot`. The command need not exist."""
    return shlex.quote(str(_started_in() / prog(name))) if _is_script() else prog(name)


def _started_in() -> Path:
    """The folder of the scripts as it was typed, so that the commands of hints work where this one did."""
    started = Path(sys.argv[0])
    with contextlib.suppress(OSError):  # the current folder was removed
        if started.suffix == ".py" and started.parent.resolve() == SCRIPTS:
            return started.parent
    return Path("scripts")


def usage(name: str, python: str = "python") -> str:
    """The start of a usage line: `python scripts/plot.py` or `stoix-like plot`."""
    return command_name(name) if _is_console() else f"{python} {command_name(name)}"


def command_line(name: str, *argv: str) -> str:
    """The shell command that runs `name` with these arguments, in the form in which this process was started."""
    return " ".join([usage(name, _python()), *map(shlex.quote, argv)])


def training_command(algorithm: str) -> tuple[str, ...]:
    """The command that trains an algorithm and resumes its runs, with what follows it: `train-ppo`, `spa pretrain`."""
    return _STAGES.get(algorithm, (f"train-{algorithm}",))


def training_name(algorithm: str) -> str:
    """`training_command` in hints: `scripts/train_ppo.py`, `scripts/spa.py pretrain`."""
    name, *further = training_command(algorithm)
    return " ".join([command_name(name), *further])


def pip_command(requirement: str) -> str:
    """The shell command that installs a requirement into this Python: `pip install "stoix_like[sweep]"`."""
    python = _python()
    return f'{"pip" if python == "python" else f"{python} -m pip"} install "{requirement}"'


def _is_console() -> bool:
    """Whether hints name the installed program: it was started, or there are no scripts, as outside a clone."""
    return _Program.own is None and (Path(sys.argv[0]).name == PROGRAM or not (SCRIPTS / "train_ppo.py").is_file())


def _is_script() -> bool:
    return _Program.own is None and not _is_console()


def _python() -> str:
    """The shell command of this Python: `python` if PATH finds it, else its path."""
    if (found := shutil.which("python")) and Path(found).parent == Path(sys.executable).parent:
        return "python"
    path = Path(sys.executable)
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
