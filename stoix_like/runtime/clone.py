"""The clone that this project runs from, if it does: its folder and its commit."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_OF_ANOTHER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # repository, whose hook may have started this
SECONDS = 5.0  # for git to answer: on a network's file system it may take long to look for changes


@functools.cache
def commit() -> str | None:
    """`0123abc`, with a + where files were changed since; None outside a clone, or where there is no git.

    An installed package may lie inside the clone of something else, whose commit is not meant.
    """
    try:
        if _git("rev-parse", "--show-toplevel") != str(ROOT):
            return None
        return _git("describe", "--always", "--exclude=*", "--dirty=+")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    call = ["git", "-C", str(ROOT), *words]
    environment = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER}
    done = subprocess.run(call, check=True, capture_output=True, text=True, timeout=SECONDS, env=environment)
    return done.stdout.strip()
