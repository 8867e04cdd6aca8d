"""The console command `stoix-like NAME ...`: every script of scripts/, where there is no clone."""

from __future__ import annotations

import sys
from typing import NoReturn

from stoix_like.config_values import nearest
from stoix_like.errors import ConfigError
from stoix_like.runtime.cli import run_main
from stoix_like.runtime.commands import COMMANDS, PROGRAM


def main() -> NoReturn:
    """Runs the command that is named first, and leaves the program with its exit code."""
    run_main(dispatch)


def dispatch(argv: list[str]) -> int:
    """Runs `argv[0]` with the rest; without one, or with `--help`, lists what there is.

    Raises:
        ConfigError: there is no such command; the message names the nearest one.
    """
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if argv[0] == "--version":
        from stoix_like.runtime.run_folder import versions

        print(f"{PROGRAM} {versions()['stoix_like']}")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        raise ConfigError(f"unknown command '{name}'{nearest(name, list(COMMANDS))}", f"{PROGRAM} --help lists them")
    return COMMANDS[name].run(rest)


def help_text() -> str:
    """Every command with one line."""
    width = max(map(len, COMMANDS)) + 2
    rows = [f"  {name:<{width}}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [f"usage: {PROGRAM} COMMAND [...]", "", *rows, "", f"{PROGRAM} COMMAND --help says what it takes."]
    )


if __name__ == "__main__":
    sys.argv[0] = PROGRAM
    main()
