"""Versions of installed packages, the commit of the clone, and whether optional dependencies are installed."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from stoix_like.errors import MissingExtraError
from stoix_like.runtime.console.spelling import pip_command

ROOT = Path(__file__).resolve().parents[3]
#: Set by git in hooks. They would point git to another repository, whose hook may have started this process.
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
_GIT_TIMEOUT_SECONDS = 5.0  # on a network file system, git may take long to look for changes


@functools.cache
def git_commit() -> str | None:
    """`0123abc`, with a + if files were changed since; None outside a clone, or without git.

    The package may be installed inside the clone of another project, whose commit is not returned.
    """
    try:
        if _git("rev-parse", "--show-toplevel") != str(ROOT):
            return None
        return _git("describe", "--always", "--exclude=*", "--dirty=+")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    call = ["git", "-C", str(ROOT), *words]
    environment = {name: value for name, value in os.environ.items() if name not in _GIT_VARIABLES}
    timeout = _GIT_TIMEOUT_SECONDS
    done = subprocess.run(call, check=True, capture_output=True, text=True, timeout=timeout, env=environment)
    return done.stdout.strip()


def require_extra(feature: str, extra: str, *modules: str) -> None:
    """Raises MissingExtraError if one of the modules, which the extra of pyproject.toml installs, is missing."""
    if not all(map(is_installed, modules)):
        raise MissingExtraError(feature, extra, pip_command(f"stoix_like[{extra}]"))


def is_installed(module: str) -> bool:
    """Whether a module can be found. Its parent packages are imported to find out, the module is not."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of `a.b` without `a`
        return False


_VERSIONED = ("stoix_like", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "jumanji", "distrax", "numpy")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change results, and the commit if this is a clone."""
    found = {"python": platform.python_version(), "machine": platform.platform()}
    if (known := git_commit()) is not None:
        found["commit"] = known
    return found | {package: installed_version(package) or "not installed" for package in _VERSIONED}


@functools.cache
def installed_version(package: str) -> str | None:
    """The version of a package when it was first asked for; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
