"""Jumanji's own auto-reset, for measuring against. Not used in training: it makes a level at every step."""

from __future__ import annotations

from typing import Any

import jax

from stoix_like.envs.importing import jumanji_registration


def jumanji_auto_reset(task_id: str, **kwargs: Any) -> Any:
    """jumanji's `VmapAutoResetWrapper` around the registered task: `reset(keys [N])`, `step(states, actions)`.

    `kwargs` go to the task's constructor.
    Use it inside `with jax.numpy_rank_promotion("allow")` if ranks are strict.
    """
    registration = jumanji_registration()
    from jumanji.wrappers import VmapAutoResetWrapper

    with jax.numpy_rank_promotion("allow"):
        return VmapAutoResetWrapper(registration.make(task_id, **kwargs))
