"""The part of a state that a checkpoint stores: all of it, or all but the replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoix_like.runtime.runs.checkpoint import CheckpointMeta


def without_replay(state: Any) -> Any:
    """The state with None as its replay, if it has one, as `save_replay: false` stores it."""
    return state._replace(replay=None) if "replay" in state._fields else state


def stored_template(template: Any, meta: CheckpointMeta) -> Any:
    """The template of what the checkpoint stores: the template itself, or all but the replay."""
    keeps_replay = meta.config.get("checkpointing", {}).get("save_replay", True)
    return template if keeps_replay or "replay" not in template._fields else without_replay(template)
