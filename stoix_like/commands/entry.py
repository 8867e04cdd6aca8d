"""The entry of all scripts: runs `main`, and prints failures as `error:` lines and a `hint:` with an exit code.

Only failures that a user can cause are caught. Anything else is a bug in this project and keeps its traceback.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from stoix_like.commands.table import COMMANDS, Outcome
from stoix_like.config.checks.values import nearest
from stoix_like.errors import INTERRUPTED, ConfigError, RunError, StoixError
from stoix_like.runtime.console import jax_variables, messages, signals
from stoix_like.runtime.console.spelling import PROGRAM, program_name, set_program_name
from stoix_like.runtime.storage.os_errors import storage_error

Main = Callable[[list[str]], Outcome]


def run_main(main: Main) -> NoReturn:
    """Calls `main` with the command line and exits with its exit code (docs/troubleshooting.md)."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the process was started with it closed: `train_ppo.py >&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for the rest of the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals whose encoding has no – or ·
    jax_variables.prepare_environment()
    messages.mark_cli()
    try:
        signals.watch()
        code = _code_of_process(main)
        signals.end()
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED or signals.is_interrupted():
        signals.leave()
    sys.exit(code)


def _code_of_process(main: Main) -> int:
    """The exit code of this process. One of several processes that has failed does not return."""
    try:
        code = exit_code(main, sys.argv[1:])
    except Exception:
        if not _is_one_of_several():
            raise
        traceback.print_exc()
        code = 1
    if code != 0 and _is_one_of_several():
        from stoix_like.runtime.hardware import process_group

        process_group.abort(code)
    return code


def _is_one_of_several() -> bool:
    process_group = sys.modules.get("stoix_like.runtime.hardware.process_group")  # --help does not import it
    return process_group is not None and bool(process_group.is_initialized())


def exit_code(main: Main, argv: Sequence[str]) -> int:
    """The exit code of `main(argv)`. Failures that a user can cause are printed to standard error.

    `--debug` anywhere in argv prints the traceback first. 130 means interrupted.
    """
    try:
        _refuse_optimized_python()
        outcome = main(list(argv)) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        signals.tell()
        return INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe (`... | head`), so nothing can be printed
        return RunError.exit_code
    except Exception as error:
        if signals.is_interrupted():  # something has made another error of the KeyboardInterrupt
            signals.tell()
            return INTERRUPTED
        if (of_user := _error_of_user(error)) is None:
            raise
        return _report(of_user, argv)
    if isinstance(outcome, int):
        return outcome
    return INTERRUPTED if outcome.status == "interrupted" else 0


def _refuse_optimized_python() -> None:
    """Raises ConfigError under `python -OO`: it removes docstrings, which libraries read when they are imported."""
    if sys.flags.optimize > 1:
        what = "python -OO (or PYTHONOPTIMIZE=2) removes docstrings, and libraries cannot be imported without them"
        raise ConfigError(what, "use python without -OO, and remove PYTHONOPTIMIZE")


def _error_of_user(error: Exception) -> StoixError | None:
    """The error that a user can mend: ours, of the system about a path, or of JAX about a variable; None for a bug."""
    if isinstance(error, StoixError):
        return error
    if isinstance(error, OSError):
        return storage_error(error)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if isinstance(error, ValueError) and frame.f_code.co_filename.endswith(os.path.join("jax", "_src", "config.py")):
        return ConfigError(str(error), "change that variable of the environment, or remove it")
    if isinstance(error, ValueError) and str(error) == "embedded null byte":
        return ConfigError("a path has a null byte, which no system takes", "give another name")
    return None


def _report(error: StoixError, argv: Sequence[str]) -> int:
    if "--debug" in argv:
        error.__notes__.clear()  # the hint, which is printed below
        traceback.print_exc()
    problems = error.problems if isinstance(error, ConfigError) else [error.what]
    for problem in problems:
        print("error: " + " ".join(problem.splitlines()), file=sys.stderr)
    print("hint: " + " ".join(error.hint.splitlines()), file=sys.stderr)
    return error.exit_code


def main() -> NoReturn:
    """Runs the command named by the first argument, and exits with its exit code."""
    run_main(run_command)


def run_command(argv: list[str], program: str | None = None) -> Outcome:
    """Runs the command `argv[0]` with the other arguments; without one, or with `--help`, lists the commands.

    Args:
        argv: the command line.
        program: a user's program that calls this function, such as `tasks.py`. Environments and algorithms that it
            registers are available in every command, and hints name it.

    Raises:
        ConfigError: the command is unknown; the message names the nearest one.
    """
    if program is not None:
        set_program_name(program)
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
    """The list of commands, one line each."""
    width = max(map(len, COMMANDS)) + 2
    rows = [f"  {each:<{width}}{command.summary}" for each, command in COMMANDS.items()]
    name = program_name()
    return "\n".join([f"usage: {name} COMMAND [...]", "", *rows, "", f"{name} COMMAND --help lists its arguments."])
