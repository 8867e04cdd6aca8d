"""How a person types a command from here: as a script, as `stoix-like NAME`, or by a program of their own.

Imports nothing that takes time, so that `--help` is instant.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

PROGRAM = "stoix-like"
_SCRIPTS = {"export": "export_policy.py"}  # those that are not called as their command is


class _Spelling:
    own: str | None = None  # a user's program that has our commands


_SPELLING = _Spelling()


def set_program_name(program: str) -> None:
    """From now on hints and help spell commands as those of a program of the user's, such as `tasks.py`."""
    _SPELLING.own = program


def program_name() -> str:
    """What stands before a command's name where no script is meant: `stoix-like`, or a program of the user's."""
    return _SPELLING.own or PROGRAM


def script_of(name: str) -> str:
    """The file of a command in scripts/: `compare_search.py`."""
    return _SCRIPTS.get(name, name.replace("-", "_") + ".py")


def prog(name: str) -> str:
    """What a command calls itself in its help: `plot.py`, or `stoix-like plot` if it was started so."""
    return script_of(name) if _is_script() else f"{program_name()} {name}"


def command_name(name: str) -> str:
    """What a hint calls a command: `scripts/plot.py` or `stoix-like plot`; also one that only another version has."""
    if not _is_script():
        return f"{program_name()} {name}"
    return f"scripts/{script_of(name)}"


def usage(name: str) -> str:
    """How its help begins: `python scripts/plot.py` or `stoix-like plot`."""
    return command_name(name) if _is_console() else f"python {command_name(name)}"


def command_line(name: str, *argv: str) -> str:
    """What a person types to run a command with these arguments, in the manner in which this process was started."""
    start = command_name(name) if _is_console() else f"{_python()} {command_name(name)}"
    return " ".join([start, *map(shlex.quote, argv)])


def pip_install(what: str) -> str:
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
