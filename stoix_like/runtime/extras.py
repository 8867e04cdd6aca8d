"""Whether optional libraries are there, asked before anything is written: exit code 5 names the extra that has them."""

from __future__ import annotations

import importlib.util

from stoix_like.errors import MissingExtraError
from stoix_like.runtime.commands import installs


def require(feature: str, extra: str, *modules: str) -> None:
    """Nothing, if all the modules can be imported.

    Args:
        feature: what the user asked for, as the error calls it.
        extra: of pyproject.toml, which installs them.
        modules: by their full names.

    Raises:
        MissingExtraError: one of them is not installed.
    """
    if not all(map(is_there, modules)):
        raise MissingExtraError(feature, extra, installs(f"stoix_like[{extra}]"))


def is_there(module: str) -> bool:
    """Whether a module can be imported; what it stands in is imported to find out."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of `a.b` without `a`
        return False
