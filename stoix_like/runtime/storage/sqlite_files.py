"""SQLite files of libraries that keep their stores in one: their URL, as SQLAlchemy reads it, and a lock."""

from __future__ import annotations

import contextlib
from pathlib import Path

from stoix_like.errors import ConfigError
from stoix_like.runtime.storage.lock import waiting_lock


def sqlite_url(path: Path, hint: str = "choose another --save-dir") -> str:
    """`sqlite:////folder/file.db`. Raises ConfigError if no URL can name the file: it has no way to quote."""
    absolute = str(path.absolute())
    if "?" in absolute:  # what follows would be options, and another file would be opened
        raise ConfigError(f"{path} cannot be a SQLite file: its path has a question mark", hint)
    try:
        absolute.encode()
    except UnicodeEncodeError as error:
        shown = absolute.encode(errors="replace").decode()
        raise ConfigError(f"{shown} cannot be a SQLite file: its path is no UTF-8", hint) from error
    return f"sqlite:///{absolute}"


def sqlite_lock(url: str, seconds: float) -> contextlib.AbstractContextManager[None]:
    """A lock for the file of the URL, see `waiting_lock`: two processes that migrate its tables at once break it.

    For other URLs, such as those of servers, there is none.
    """
    path = Path(url.removeprefix("sqlite:///").partition("?")[0])
    if not url.startswith("sqlite:///") or not path.parent.is_dir():
        return contextlib.nullcontext()
    return waiting_lock(path.with_name(f".{path.name}.lock"), seconds)
