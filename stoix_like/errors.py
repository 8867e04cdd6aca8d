"""The errors that users can cause, each with a one-line message and a one-line hint.

Every room raises them, so this module imports nothing. Only `commands/entry.py` prints them. Any other exception is a
bug and keeps its traceback.
"""

from __future__ import annotations

INTERRUPTED = 130  # exit code after Ctrl-C or SIGTERM


class StoixError(Exception):
    """A failure with a message `what` and a `hint`. The commands return `exit_code` (docs/troubleshooting.md)."""

    exit_code = 1

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.add_note(f"hint: {hint}")  # a notebook's traceback ends with it

    @property
    def line(self) -> str:
        """Message and hint as one line, for reports that go on."""
        return f"{self.what} ({self.hint})"


class RunError(StoixError):
    """The run cannot continue: unwritable folder, full disk, another writer, non-finite loss. Exit code 1."""


class StorageError(RunError):
    """A file cannot be read or written: a full disk, a removed folder. Once it can, the same command goes on."""


class LockedError(RunError):
    """Another process works in the folder. Exit code 1."""


class ConfigError(StoixError):
    """Invalid configuration or usage, or an absent device. Exit code 2. `problems` holds one line for each."""

    exit_code = 2

    def __init__(self, what: str | list[str], hint: str) -> None:
        self.problems = [what] if isinstance(what, str) else list(what)
        super().__init__("\n".join(self.problems), hint)


class UnsupportedEnvironmentError(StoixError):
    """Unknown task id, levels that need a download, or an unsupported form of action or reward. Exit code 3."""

    exit_code = 3


class CheckpointError(StoixError):
    """A checkpoint that is missing, foreign, damaged, or does not fit. Exit code 4."""

    exit_code = 4


class NoRunError(CheckpointError):
    """No run is at the place or of the name `text`. `near` asks for a run of a similar name, and `runs` lists some."""

    def __init__(self, text: str, near: str, runs: str, hint: str) -> None:
        super().__init__(f"no run at {text}{near}", runs or hint)
        self.text, self.near, self.runs = text, near, runs


class MissingExtraError(StoixError):
    """An optional dependency that is not installed. Exit code 5."""

    exit_code = 5

    def __init__(self, feature: str, extra: str, command: str) -> None:
        super().__init__(f"{feature} needs the '{extra}' extra", command)
