"""What a checkpoint holds of a state: all of it, or all but the replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoix_like.runtime.runs.checkpoint import CheckpointMeta


def without_replay(state: Any) -> Any:
    """The state with nothing in place of its replay, if it has one: what `save_replay: false` stores."""
    return state._replace(replay=None) if "replay" in state._fields else state


def stored_template(template: Any, meta: CheckpointMeta) -> Any:
    """What the checkpoint holds of a state like the template: the template itself, or all but the replay."""
    keeps_replay = meta.config.get("checkpointing", {}).get("save_replay", True)
    return template if keeps_replay or "replay" not in template._fields else without_replay(template)
