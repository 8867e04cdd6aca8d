"""The form of rows of written turns: what they must share with the agent that learns from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError


class RowForm(NamedTuple):
    """What rows must share with the agent that learns from them. All values are plain JSON."""

    task_id: str
    world: dict[str, Any]  # sizes and rules that the texts show
    rendering: str
    mode: str
    order: str
    context: str
    tokenizer: str  # hash
    slots: list[int]  # of a turn: of the world, of the answer


def check_form(path: Path, theirs: RowForm, ours: RowForm) -> None:
    """Raises CheckpointError, with the first difference, if rows cannot be read by an agent of another form."""
    for name, now, then in zip(RowForm._fields, ours, theirs, strict=True):
        if now != then:
            what = f"{path} cannot be learned from: its {name} is {_text(then)}, and the agent's {_text(now)}"
            raise CheckpointError(what, "generate rows with the settings of this agent, or give it those of the rows")


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] if len(text) == 64 and text.isalnum() else text  # digits of a hash that tell it from others
