"""Whether optional libraries are there, asked before anything is written: exit code 5 names the extra that has them."""

from __future__ import annotations

import importlib.util

from stoix_like.errors import MissingExtraError


def require(feature: str, extra: str, *modules: str) -> None:
    """Nothing, if all the modules can be imported; none of them is.

    Args:
        feature: what the user asked for, as the error calls it.
        extra: of pyproject.toml, which installs them.
        modules: top-level names.

    Raises:
        MissingExtraError: one of them is not installed.
    """
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise MissingExtraError(feature, extra)
