"""Writes the tables of docs/self-play-loops.md from the classes that they describe.

`python docs/tools/loop_tables.py` rewrites the file in a clone; a test fails if it is out of date.
"""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

from config_table import replace_part, table

from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.config.sections.master_loop import UnifiedLoopConfig
from stoix_like.selfplay.events.kinds import EVENT_TYPES, PipelineEvent

DOCUMENT = Path(__file__).parents[1] / "self-play-loops.md"
BY = "written by python docs/tools/loop_tables.py"


def loop_config_table() -> str:
    """The fields of LoopConfig with their defaults and descriptions."""
    rows = [
        f"| `{field.name}` | `{_default_text(field.default)}` | {field.metadata['help']} |"
        for field in dataclasses.fields(LoopConfig)
    ]
    return "\n".join(["| field | default | meaning |", "| --- | --- | --- |", *rows])


def _default_text(value: object) -> str:
    return str([tuple(game) for game in value]) if isinstance(value, tuple) else repr(value)


def event_table() -> str:
    """Every kind of event, what it tells, and its fields."""
    common = {field.name for field in dataclasses.fields(PipelineEvent)}
    rows = []
    for name, kind in EVENT_TYPES.items():
        hints = typing.get_type_hints(kind, include_extras=True)
        own = [field.name for field in dataclasses.fields(kind) if field.name not in common]
        fields = "; ".join(f"`{each}`: {hints[each].__metadata__[0]}" for each in own)
        rows.append(f"| `{name}` | {(kind.__doc__ or '').strip()} | {fields} |")
    shared = ", ".join(f"`{field.name}`" for field in dataclasses.fields(PipelineEvent))
    head = [f"All have {shared}.", "", "| kind | what it tells | fields |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows])


def with_tables(text: str) -> str:
    """The page with all tables replaced."""
    unified = table(UnifiedLoopConfig)
    for name, part in (("loop config", loop_config_table()), ("unified loop", unified), ("events", event_table())):
        text = replace_part(text, DOCUMENT, f"<!-- {name}: {BY} -->", f"<!-- end of {name} -->", part)
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
