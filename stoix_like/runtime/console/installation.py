"""What is installed: versions of packages, the commit of a clone, and whether an extra is there."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from stoix_like.errors import MissingExtraError
from stoix_like.runtime.console.spelling import pip_install

ROOT = Path(__file__).resolve().parents[3]
_OF_ANOTHER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # repository, whose hook may have started this
SECONDS = 5.0  # for git to answer: on a network's file system it may take long to look for changes


@functools.cache
def git_commit() -> str | None:
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


def require_extra(feature: str, extra: str, *modules: str) -> None:
    """Nothing, if all the modules can be imported.

    Args:
        feature: what the user asked for, as the error calls it.
        extra: of pyproject.toml, which installs them.
        modules: by their full names.

    Raises:
        MissingExtraError: one of them is not installed.
    """
    if not all(map(is_installed, modules)):
        raise MissingExtraError(feature, extra, pip_install(f"stoix_like[{extra}]"))


def is_installed(module: str) -> bool:
    """Whether a module can be imported; what it stands in is imported to find out."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of `a.b` without `a`
        return False


_VERSIONED = ("stoix_like", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "jumanji", "distrax", "numpy")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide numbers, and the commit where it runs from a clone."""
    found = {"python": platform.python_version(), "machine": platform.platform()}
    if (known := git_commit()) is not None:
        found["commit"] = known
    return found | {package: installed_version(package) or "not installed" for package in _VERSIONED}


def installed_version(package: str) -> str | None:
    """None of what is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
