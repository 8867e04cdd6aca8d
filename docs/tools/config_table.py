"""Writes the tables of all leaves into docs/configuration.md and docs/spa.md, from the classes that define flags too.

`python docs/tools/config_table.py` rewrites the files in a clone; a test fails if they are out of date.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from stoix_like.config.checks.access import get_leaf, leaf_sections, leaf_types, section_types
from stoix_like.config.checks.values import range_text, type_name
from stoix_like.config.sections.agent_runs import AgentConfig, FineTuneConfig, PretrainConfig
from stoix_like.config.sections.runs import AlphaZeroConfig, SPOConfig
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.config.sections.spa import SPAConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading.flags import flag_name
from stoix_like.runtime.loading.help import default_text

DOCUMENT = Path(__file__).parents[1] / "configuration.md"
BEGIN = "<!-- leaves: written by python docs/tools/config_table.py -->"
END = "<!-- end of leaves -->"
SPA_DOCUMENT = DOCUMENT.with_name("spa.md")
SPA_BEGIN = "<!-- leaves of spa: written by python docs/tools/config_table.py -->"
SPA_END = "<!-- end of leaves of spa -->"


def table(config_type: type) -> str:
    """One Markdown table per section: leaf, flag, type, default, range, meaning."""
    return "\n\n".join(_section(config_type, name) for name in section_types(config_type))


def _section(config_type: type, name: str) -> str:
    kind = section_types(config_type)[name]
    rows = ["| leaf | flag | type | default | range | meaning |", "| --- | --- | --- | --- | --- | --- |"]
    for field in dataclasses.fields(kind):
        cells = [
            f"`{field.name}`",
            f"`{flag_name(field.name)}`",
            type_name(leaf_types(kind)[field.name]),
            f"`{default_text(get_leaf(config_type(), field.name))}`",
            range_text(field.metadata).replace(">=", "≥").replace("<=", "≤"),
            field.metadata["help"].replace("<", "&lt;").replace("|", "\\|"),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return f"### {name}\n\n{(kind.__doc__ or '').splitlines()[0]}\n\n" + "\n".join(rows)


def other_defaults(whose: str, config_type: type, base_type: type, base: str = "") -> str:
    """The shared leaves whose default differs from the other algorithm's, as one sentence about `whose` defaults."""
    shared = [leaf for leaf in leaf_sections(config_type) if leaf in leaf_sections(base_type)]
    own, other = config_type(), base_type()
    differing = [
        f"`{leaf}: {default_text(get_leaf(own, leaf))}`"
        for leaf in shared
        if leaf_sections(config_type)[leaf] == leaf_sections(base_type)[leaf]
        and get_leaf(own, leaf) != get_leaf(other, leaf)
    ]
    sentence = f"{whose} defaults of the leaves above are the same{base}"
    return f"{sentence}, except {', '.join(differing)}." if differing else f"{sentence}."


def with_table(text: str, config_type: type) -> str:
    """The document with the tables between the markers: of the type, and what further algorithms have beside it."""
    parts = [table(config_type), *_further_sections(AlphaZeroConfig, config_type)]
    parts.append(other_defaults("AlphaZero's", AlphaZeroConfig, config_type))
    parts += _further_sections(SelfPlayConfig, AlphaZeroConfig)
    parts += _further_sections(AgentConfig, config_type)
    parts.append(other_defaults("An agent's", AgentConfig, config_type, " as PPO's"))
    parts += _further_sections(PretrainConfig, AgentConfig)
    parts.append(other_defaults("Pretraining's", PretrainConfig, AgentConfig, " as an agent's"))
    parts += _further_sections(FineTuneConfig, AgentConfig)
    parts.append(other_defaults("Fine-tuning's", FineTuneConfig, AgentConfig, " as an agent's"))
    return replace_part(text, DOCUMENT, BEGIN, END, "\n\n".join(parts))


def with_spa_table(text: str) -> str:
    """The page of SPA with the tables of its pipeline, without those of the machine, which are a run's."""
    names = [name for name in section_types(SPAConfig) if name not in section_types(AgentConfig) or name == "agent"]
    parts = [_section(SPAConfig, name) for name in names]
    return replace_part(text, SPA_DOCUMENT, SPA_BEGIN, SPA_END, "\n\n".join(parts))


def _further_sections(config_type: type, base_type: type) -> list[str]:
    return [_section(config_type, name) for name in section_types(config_type) if name not in section_types(base_type)]


def replace_part(text: str, document: Path, begin: str, end: str, part: str) -> str:
    """The text with `part` between the two markers. Raises ConfigError if the document has no markers."""
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ConfigError(f"{document.name}: the markers of the table are missing", f"put back '{begin}' and '{end}'")
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8"), SPOConfig), encoding="utf-8")
    SPA_DOCUMENT.write_text(with_spa_table(SPA_DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
