"""Writes the tables of all leaves into docs/configuration.md, from the dataclasses that also define flags and checks.

`python docs/tools/config_table.py` rewrites the file in a clone; a test fails if it is out of date.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from stoix_like.config.checks import get_leaf, leaf_types, section_types
from stoix_like.config.sections import SPOConfig
from stoix_like.config.values import range_text, type_name
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading.flags import default_text, flag_name

DOCUMENT = Path(__file__).parents[1] / "configuration.md"
BEGIN = "<!-- leaves: written by python docs/tools/config_table.py -->"
END = "<!-- end of leaves -->"


def table(config_type: type) -> str:
    """One Markdown table per section: leaf, flag, type, default, range, meaning."""
    parts = []
    for name, kind in section_types(config_type).items():
        rows = ["| leaf | flag | type | default | range | meaning |", "| --- | --- | --- | --- | --- | --- |"]
        for field in dataclasses.fields(kind):
            cells = [
                f"`{field.name}`",
                f"`{flag_name(field.name)}`",
                type_name(leaf_types(kind)[field.name]),
                f"`{default_text(get_leaf(config_type(), field.name))}`",
                range_text(field.metadata).replace(">=", "≥"),
                field.metadata["help"].replace("<", "&lt;").replace("|", "\\|"),
            ]
            rows.append("| " + " | ".join(cells) + " |")
        parts.append(f"### {name}\n\n{(kind.__doc__ or '').splitlines()[0]}\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def with_table(text: str, config_type: type) -> str:
    """The document with the tables between the markers."""
    return replace_part(text, DOCUMENT, BEGIN, END, table(config_type))


def replace_part(text: str, document: Path, begin: str, end: str, part: str) -> str:
    """The text with `part` between the two markers. Raises ConfigError if the document has no markers."""
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ConfigError(f"{document.name}: the markers of the table are missing", f"put back '{begin}' and '{end}'")
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8"), SPOConfig), encoding="utf-8")
