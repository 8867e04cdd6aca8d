"""The first import of Jumanji, and its own auto-reset for measuring against.

In a Jupyter kernel Jumanji's import runs `%matplotlib ipympl`, which fails where ipympl is not installed and changes
the notebook's backend where it is (jumanji 1.1.2, `jumanji/environments/__init__.py`). What it imports for downloads
asks in a kernel for ipywidgets, which nothing here needs.
"""

from __future__ import annotations

import builtins
import contextlib
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax

IPYTHON_MARK = "__IPYTHON__"


def jumanji_registration() -> ModuleType:
    """`jumanji.registration`, imported as outside IPython: the plotting backend stays what it was, tqdm quiet."""
    with _ipython_hidden(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        from jumanji import registration
    return registration


@contextlib.contextmanager
def _ipython_hidden() -> Iterator[None]:
    if not hasattr(builtins, IPYTHON_MARK):
        yield
        return
    mark = getattr(builtins, IPYTHON_MARK)
    delattr(builtins, IPYTHON_MARK)
    try:
        yield
    finally:
        setattr(builtins, IPYTHON_MARK, mark)


def jumanji_auto_reset(task_id: str, **kwargs: Any) -> Any:
    """jumanji's `VmapAutoResetWrapper` around the registered task: `reset(keys [N])`, `step(states, actions)`.

    For benchmarks alone: it makes a level at every step. `kwargs` go to the task's constructor.
    Use it inside `with jax.numpy_rank_promotion("allow")` if ranks are strict.
    """
    registration = jumanji_registration()
    from jumanji.wrappers import VmapAutoResetWrapper

    with jax.numpy_rank_promotion("allow"):
        return VmapAutoResetWrapper(registration.make(task_id, **kwargs))
