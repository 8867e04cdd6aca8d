"""The console command `stoix-like NAME ...`: every script of scripts/, where there is no clone."""

from __future__ import annotations

import sys
from typing import NoReturn

from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError
from stoix_like.runtime.cli import run_main
from stoix_like.runtime.command_table import COMMANDS
from stoix_like.runtime.console.spelling import PROGRAM, program_name, spelled_by


def main() -> NoReturn:
    """Runs the command that is named first, and leaves the program with its exit code."""
    run_main(dispatch)


def dispatch(argv: list[str], program: str | None = None) -> int:
    """Runs `argv[0]` with the rest; without one, or with `--help`, lists what there is.

    Args:
        argv: the words of the command line.
        program: of the user's, such as `tasks.py`: what it adds to the tables of environments or algorithms, every
            command then has, and what hints tell to type is spelled for it.

    Raises:
        ConfigError: there is no such command; the message names the nearest one.
    """
    if program is not None:
        spelled_by(program)
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if argv[0] == "--version":
        from stoix_like.runtime.console.installation import versions

        print(f"{PROGRAM} {versions()['stoix_like']}")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        hint = f"{program_name()} --help lists them"
        raise ConfigError(f"unknown command '{name}'{nearest(name, list(COMMANDS))}", hint)
    return COMMANDS[name].run(rest)


def help_text() -> str:
    """Every command with one line."""
    width = max(map(len, COMMANDS)) + 2
    rows = [f"  {each:<{width}}{command.summary}" for each, command in COMMANDS.items()]
    name = program_name()
    return "\n".join([f"usage: {name} COMMAND [...]", "", *rows, "", f"{name} COMMAND --help says what it takes."])


if __name__ == "__main__":
    sys.argv[0] = PROGRAM
    main()
