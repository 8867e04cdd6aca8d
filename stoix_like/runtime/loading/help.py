"""What `--help` prints: the flags of a command and all leaves, by section."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
from collections.abc import Collection, Mapping
from typing import Any

from stoix_like.config.checks.access import (
    get_leaf,
    leaf_types,
    replace_leaves,
    section_types,
)
from stoix_like.config.checks.values import allows, choices, range_text, type_name
from stoix_like.runtime.console.spelling import training_command, usage
from stoix_like.runtime.loading.flags import OPTION_HELP, flag_name

UNBROKEN = "\N{NO-BREAK SPACE}"  # keeps a leaf's default and range on one line
_GRAMMAR = (
    "Code defaults < YAML < flags; the defaults below apply to leaves that the YAML leaves out. A BOOL takes --flag,"
    " --no-flag or --flag true|false; 1e7 is an integer; null and none both mean null. --print-config shows the whole"
    " configuration."
)


def help_text(
    config_type: type,
    algorithm: str,
    default_config: str,
    *,
    command: str | None = None,
    options: Mapping[str, tuple[str, str]] = OPTION_HELP,
    left_out: Collection[str] = (),
    intro: tuple[str, str] | None = None,
    set_here: Mapping[str, Any] | None = None,
) -> str:
    """What `--help` prints: all flags by section with type, description, default and range.

    Args:
        config_type: of the sections.
        algorithm: that the command trains.
        default_config: the preset without --config.
        command: its name; train-<algorithm> unless given.
        options: {option: (metavar, text)} of the flags that are no leaves.
        left_out: leaves that mean nothing to the command.
        intro: (how --config is written, the first sentence) of a command to which it means something else.
        set_here: {leaf: value} that the command has in place of code defaults.
    """
    config_usage, first = intro or ("[--config FILE|PRESET]", f"Without --config the preset {default_config} is used.")
    name, *stage = (command,) if command else training_command(algorithm)
    width = max(80, min(shutil.get_terminal_size((110, 24)).columns, 120))
    parser = argparse.ArgumentParser(  # for this text alone: `parse_flags` parses
        usage=" ".join([usage(name), *stage, config_usage, "[--flag VALUE ...]"]),
        description=f"{first} {_GRAMMAR}",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=36, width=width),
        add_help=False,
    )
    group = parser.add_argument_group("command", "What the command does.")
    for name, (metavar, text) in options.items():
        _add_flag(group, name, metavar, text)
    _add_leaves(parser, replace_leaves(config_type(), set_here or {}), left_out)
    return parser.format_help().replace(UNBROKEN, " ").rstrip()


def _add_leaves(parser: argparse.ArgumentParser, defaults: Any, left_out: Collection[str]) -> None:
    """Adds the leaves of a configuration, whose values are their defaults."""
    config_type: type = defaults.__class__
    for name, section in section_types(config_type).items():
        if not (fields := [field for field in dataclasses.fields(section) if field.name not in left_out]):
            continue
        group = parser.add_argument_group(name, (section.__doc__ or "").splitlines()[0])
        for field in fields:
            _add_flag(group, field.name, *_help_row(section, field, get_leaf(defaults, field.name)))


def _add_flag(group: Any, name: str, metavar: str, text: str) -> None:
    form = {"metavar": metavar} if metavar else {"action": "store_true"}
    group.add_argument(flag_name(name), help=text.replace("%", "%%"), **form)


def _help_row(section: type, field: Any, default: Any) -> tuple[str, str]:
    """(the type, the description with default and range)."""
    annotation = leaf_types(section)[field.name]
    kind = "|".join(choices(annotation)) or type_name(annotation).removesuffix(" or null").upper()
    if choices(annotation) and allows(annotation, int):
        kind = "INT|" + kind
    notes = ", ".join(filter(None, [f"default {default_text(default)}", range_text(field.metadata)]))
    return kind, f"{field.metadata['help']} [{notes.replace(' ', UNBROKEN)}]"


def default_text(default: Any) -> str:
    """The default of a leaf in YAML: `null`, `true`, `0.0003`, `{}`."""
    return default if isinstance(default, str) else json.dumps(default)
