"""How a leaf is declared: its default, description, roles and range. Imports only the standard library."""

from __future__ import annotations

import dataclasses
from typing import Any

from stoix_like.config.sections.roles import Role

FIXED, LEARNING, ENVIRONMENT, TASK, PACE, SEED, SCORING, MACHINE, FOLDER, PATH, PROCESS = Role
SHAPE = FIXED | LEARNING  # of the state
RULES = FIXED | LEARNING | ENVIRONMENT | TASK  # of the task


def leaf(
    default: Any,
    help: str,
    roles: Role = Role.NONE,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    former: str | None = None,
) -> Any:
    """A field with its one-line description (unit included), roles, and range: low <= value <= high, value > above.

    Its `former` name is still read, from files and as a flag, with a note.
    """
    metadata = {"help": help, "roles": roles, "low": low, "high": high, "above": above, "former": former}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
