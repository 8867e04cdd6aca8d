"""The errors a user can cause, each with one line that says what and one that says what to do.

They stand on the ground floor because every room raises them; only `commands/entry.py` prints them. Anything else that
escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

INTERRUPTED = 130  # the exit code after Ctrl-C or SIGTERM; no error of ours


class StoixError(Exception):
    """A failure with a plain reason. `exit_code` is what the scripts return (docs/troubleshooting.md lists them)."""

    exit_code = 1

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class RunError(StoixError):
    """The run itself cannot go on: unwritable folder, full disk, another writer, non-finite loss. Exit code 1."""


class ConfigError(StoixError):
    """Configuration, usage, or a requested device that is absent. Exit code 2. `problems` holds every line found."""

    exit_code = 2

    def __init__(self, what: str | list[str], hint: str) -> None:
        self.problems = [what] if isinstance(what, str) else list(what)
        super().__init__("\n".join(self.problems), hint)


class UnsupportedEnvironmentError(StoixError):
    """Unknown id, levels that need a download, an action or reward form that is not supported. Exit code 3."""

    exit_code = 3


class CheckpointError(StoixError):
    """A checkpoint that is missing, foreign, damaged, or does not fit. Exit code 4."""

    exit_code = 4


class MissingExtraError(StoixError):
    """An optional dependency that is not installed. Exit code 5."""

    exit_code = 5

    def __init__(self, feature: str, extra: str, command: str) -> None:
        super().__init__(f"{feature} needs the '{extra}' extra", command)
