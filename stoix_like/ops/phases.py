"""Names of what an update spends its time on: they stand in the compiled program, where `--profile` finds them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, get_args

import jax

Phase = Literal["generate", "step", "search", "model", "network", "gather", "replay", "optimise"]
PHASES: tuple[Phase, ...] = get_args(Phase)
PREFIX = "phase_"


def phase(name: Phase) -> AbstractContextManager[None]:
    """A scope for what is traced inside; it costs nothing when it runs. Of nested scopes the innermost counts."""
    scope: AbstractContextManager[None] = jax.named_scope(PREFIX + name)
    return scope
