"""Atomic file writes: into a temporary file in the same folder, which is then renamed."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stoix_like.errors import StorageError
from stoix_like.runtime.storage.os_errors import hint_of, words_of


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path in the folder of `path`, with its suffix. It is renamed to `path` if the block succeeds."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # renamed, or never created; an error of the block must not be replaced
            temporary.unlink()


def atomic_write_text(path: Path, text: str) -> None:
    """Writes the text to the path, whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def atomic_write_json(path: Path, content: Any, indent: int = 2) -> None:
    """Writes the content as strict JSON, whole or not at all. Numbers that are not finite become null."""
    atomic_write_text(path, json_text(content, indent))


def json_text(content: Any, indent: int = 2) -> str:
    """The content as strict JSON. Numbers that are not finite become null."""
    return json.dumps(_finite(content), indent=indent, allow_nan=False) + "\n"


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes files that belong together: all into a temporary folder, then renamed into place in order.

    Pass the file that describes the others last, so that the files it names exist already. If anything fails before
    the renames, the old files stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished.", dir=folder) as unfinished:
        for name, content in contents.items():
            with (Path(unfinished) / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for name in contents:
            if (folder / name).is_dir():  # checked first, or the rename would fail after others succeeded
                raise IsADirectoryError(errno.EISDIR, f"{name} is a folder there")
        for name in contents:
            (Path(unfinished) / name).replace(folder / name)


@contextlib.contextmanager
def atomic_write_output(path: Path) -> Iterator[Path]:
    """`atomic_write` for output files that a user named: creates the folder; raises StorageError if writing fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():  # a device or a pipe, such as /dev/stdout
            yield path
            return
        with atomic_write(path) as temporary:
            yield temporary
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {words_of(error)}", hint_of(error)) from error


def write_output_text(path: Path, text: str) -> None:
    """Writes the text to a file that a user named, whole or not at all. Raises StorageError if that fails."""
    with atomic_write_output(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_output_json(path: Path, content: Any, indent: int = 2) -> None:
    """`write_output_text` of `json_text`."""
    write_output_text(path, json_text(content, indent))
