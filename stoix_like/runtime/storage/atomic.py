"""Files that are written whole or not at all: into a temporary file in the same folder, then renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from stoix_like.errors import RunError


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` with the same suffix, renamed to it if nothing failed: nobody sees half a file."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # renamed already, or never made: the first error is the one told
            temporary.unlink()


def atomic_write_text(path: Path, text: str) -> None:
    """The text at the path, whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def atomic_write_output(path: Path) -> Iterator[Path]:
    """`atomic_write` for a picture: its folder is made, and what fails is a plain error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            yield temporary
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror or error}"
        raise RunError(what, "choose a writable folder with free space") from error
