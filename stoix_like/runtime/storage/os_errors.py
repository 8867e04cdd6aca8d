"""Errors of the operating system in its own words, and what helps."""

from __future__ import annotations

import errno
import os
import re
import sysconfig
from pathlib import Path

from stoix_like.errors import StorageError

#: Where packages are, ours too. A file that is missing there is a bug, or a broken installation.
_PATHS = sysconfig.get_paths()
_INSTALLED = (Path(__file__).resolve().parents[2], *(Path(_PATHS[name]) for name in ("stdlib", "purelib", "platlib")))
_SPACE = "free some space, or write elsewhere"
_PERMISSION = "change its permissions, or write elsewhere"
_HINTS = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "raise the limit on files, ulimit -f, or write elsewhere",
    errno.EROFS: "write elsewhere: this disk is mounted read-only",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ENOENT: "see that it is there, and its folder too",
    errno.EEXIST: "something else has this name",
    errno.ENOTDIR: "a part of the path is no folder",
    errno.EISDIR: "name a file, or remove the folder that is in its place",
    errno.ELOOP: "a link of the path points to itself",
    errno.EMFILE: "allow more open files: ulimit -n 4096",
    errno.ENOMEM: "free some memory",
    errno.EAGAIN: "wait a little, then type the same command again",
    errno.ENOLCK: "write to a file system with locks",
    errno.ETIMEDOUT: "see that the network file system answers",
    errno.EIO: "see that its disk works",
    errno.ESTALE: "the network file system has lost it: mount it again",
}
_OTHERWISE = "see that the path can be read and written"
_IN_TENSORSTORE = re.compile(r"os_error_code='(\d+)'")


def error_number(error: Exception) -> int | None:
    """The number of the operating system's error. tensorstore puts it into the text of a ValueError."""
    if isinstance(error, OSError):
        return error.errno
    found = _IN_TENSORSTORE.search(str(error))
    return int(found[1]) if found else None


def words_of(error: Exception) -> str:
    """The operating system's words, or the text of another error."""
    number = error_number(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if number is None else os.strerror(number)


def hint_of(error: Exception) -> str:
    """What helps."""
    return _HINTS.get(error_number(error) or 0, _OTHERWISE)


def storage_error(error: OSError) -> StorageError | None:
    """The error of a path that a user named, for those that nothing has foreseen; None if it is of a file of ours."""
    try:
        Path.cwd()
    except OSError:
        return StorageError("the current folder was removed", "go to another one: cd")
    named = (error.filename2, error.filename)  # of a renaming, the new name: the old one is a temporary file
    path = next((name for name in named if isinstance(name, (str, bytes, os.PathLike))), None)
    if path is None:
        return StorageError(words_of(error), hint_of(error)) if error.errno in _HINTS else None
    shown = os.fsdecode(path)
    if any(Path(shown).is_relative_to(folder) for folder in _INSTALLED):
        return None
    return StorageError(f"{words_of(error)}: {shown}", hint_of(error))
