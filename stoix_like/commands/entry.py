"""What every script calls: runs its `main`, and turns failures into one `error:` line each, a `hint:` and an exit code.

Only failures a user can cause are caught. Anything else is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from stoix_like.commands.table import COMMANDS
from stoix_like.config.values import nearest
from stoix_like.errors import INTERRUPTED, ConfigError, RunError, StoixError
from stoix_like.runtime.console import messages
from stoix_like.runtime.console.spelling import PROGRAM, program_name, set_program_name
from stoix_like.runtime.training import stopping

Main = Callable[[list[str]], int | None]

_STORAGE_HINTS = {
    errno.ENOSPC: "free some space, keep fewer checkpoints (--keep-last-n), or write elsewhere (--save-dir)",
    errno.EDQUOT: "free some space, keep fewer checkpoints (--keep-last-n), or write elsewhere (--save-dir)",
    errno.EROFS: "write elsewhere: --save-dir",
    errno.EACCES: "give yourself the right to it, or write elsewhere: --save-dir",
    errno.EPERM: "give yourself the right to it, or write elsewhere: --save-dir",
}


def run_main(main: Main) -> NoReturn:
    """Calls `main` with the command line and leaves the program with its exit code (docs/troubleshooting.md)."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # started with it closed: `train_ppo.py >&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for the rest of the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without – and · must not end the command
    signal.signal(signal.SIGINT, stopping.interrupt)
    messages.mark_cli()
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
    sys.exit(code)


def _is_one_of_several() -> bool:
    jax = sys.modules.get("jax")  # --help does without it
    return jax is not None and bool(jax.distributed.is_initialized())


def exit_code(main: Main, argv: Sequence[str]) -> int:
    """The exit code of `main(argv)`; failures a user can cause are printed to standard error.

    `--debug` anywhere in argv prints the traceback first. 130 means interrupted.
    """
    try:
        code = main(list(argv)) or 0
        sys.stdout.flush()
    except StoixError as error:
        return _report(error, argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output left (`... | head`): nobody is there to be told
        return RunError.exit_code
    except OSError as error:
        if error.errno not in _STORAGE_HINTS:
            raise
        return _report(_storage_error(error), argv)
    return code


def _report(error: StoixError, argv: Sequence[str]) -> int:
    if "--debug" in argv:
        traceback.print_exc()
    problems = error.problems if isinstance(error, ConfigError) else [error.what]
    for problem in problems:
        print("error: " + " ".join(problem.splitlines()), file=sys.stderr)
    print("hint: " + " ".join(error.hint.splitlines()), file=sys.stderr)
    return error.exit_code


def _storage_error(error: OSError) -> RunError:
    reason = os.strerror(error.errno or 0)
    return RunError(reason + (f": {error.filename}" if error.filename else ""), _STORAGE_HINTS[error.errno or 0])


def main() -> NoReturn:
    """Runs the command that is named first, and leaves the program with its exit code."""
    run_main(run_command)


def run_command(argv: list[str], program: str | None = None) -> int:
    """Runs `argv[0]` with the rest; without one, or with `--help`, lists what there is.

    Args:
        argv: the words of the command line.
        program: of the user's, such as `tasks.py`: what it adds to the tables of environments or algorithms, every
            command then has, and what hints tell to type is spelled for it.

    Raises:
        ConfigError: there is no such command; the message names the nearest one.
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
    """Every command with one line."""
    width = max(map(len, COMMANDS)) + 2
    rows = [f"  {each:<{width}}{command.summary}" for each, command in COMMANDS.items()]
    name = program_name()
    return "\n".join([f"usage: {name} COMMAND [...]", "", *rows, "", f"{name} COMMAND --help says what it takes."])
