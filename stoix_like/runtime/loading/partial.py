"""Command lines and files of configurations that are not those of a run, beside flags that belong to another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stoix_like.config.checks.access import replace_leaves
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading import flags
from stoix_like.runtime.loading.documents import read_yaml
from stoix_like.runtime.loading.flags import CommandOptions
from stoix_like.runtime.loading.presets import find


class PartialConfig(NamedTuple):
    """A configuration, and what of the command line is not its own."""

    config: Any
    options: CommandOptions
    rest: list[str]
    notes: list[str]  # of leaves that have another name now
    flags: frozenset[str] = frozenset()  # the leaves that flags have set


def split_words(argv: Sequence[str], config_type: type) -> tuple[list[str], list[str]]:
    """(the words of flags that a configuration type has, the others), each in its order."""
    table = flags.flag_table(config_type)
    own, rest = list[str](), list[str]()
    target = rest
    for word in argv:
        if word.startswith("-") and not _is_number(word):
            target = own if word.partition("=")[0] in table else rest
        target.append(word)
    return own, rest


def _is_number(word: str) -> bool:
    return word[1:2].isdecimal() or word[1:2] == "."


def read_partial(
    config_type: type, kind: str, argv: Sequence[str], default_config: str, page: str = "docs/self-play-loops.md"
) -> PartialConfig:
    """A configuration: code defaults < YAML (`--config`, or `default_config`) < flags.

    Args:
        config_type: of its sections.
        kind: whose presets are proposed first.
        argv: the command line; flags that the configuration does not have are returned.
        default_config: a preset.
        page: of the documentation, which lists the leaves.

    Raises:
        ConfigError: with all problems of the file and of its own flags.
    """
    own, rest = split_words(argv, config_type)
    parsed = flags.parse_flags(own, config_type)
    path = find(parsed.options.config or default_config, kind, "--config: ")
    notes = list[str]()
    layer, problems = read_yaml(path, config_type, notes=notes)
    if problems := [*problems, *parsed.problems]:
        raise ConfigError(problems, f"{page} lists every leaf with its type and default")
    values = {leaf: value for leaf, (value, _) in {**layer, **parsed.layer}.items()}
    return PartialConfig(
        replace_leaves(config_type(), values), parsed.options, rest, notes + parsed.notes, frozenset(parsed.layer)
    )
