"""The command line of the configuration dataclasses: one kebab-case flag per leaf.

This module assigns texts to flags; `documents.parse_leaf` converts and checks each as a value of a file.
docs/decisions/0002 explains why neither argparse nor tyro is used. Does not import JAX, so that `--help` is fast.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

from stoix_like.config.checks.access import (
    former_names,
    leaf_sections,
    leaf_types,
    section_types,
)
from stoix_like.config.checks.retired import RETIRED_LEAVES
from stoix_like.config.checks.values import allows, nearest
from stoix_like.config.layers import Layer
from stoix_like.config.sections.tables import ACCEPTED_LEAVES, CHECKED_ONLY_SECTIONS, RENAMED_LEAVES
from stoix_like.runtime.loading.documents import parse_leaf


class CommandOptions(NamedTuple):
    """The flags of the command itself, see `OPTION_HELP`. They are not leaves and are not stored in a run."""

    config: str | None = None
    print_config: bool = False
    resume: str | None = None
    debug: bool = False
    no_compile_cache: bool = False
    profile: bool = False

    @property
    def is_cached(self) -> bool:
        """Whether the compilation cache is used. Not with a profile: cached programs may lack its scope names."""
        return not (self.no_compile_cache or self.profile)


OPTION_HELP = {
    "config": ("FILE|PRESET", "a YAML file, or a shipped preset of this command"),
    "print_config": ("", "print the whole configuration as YAML for --config, and exit"),
    "resume": ("RUN", "resume this run (folder, name or latest); other flags overwrite its configuration"),
    "debug": ("", "show the traceback of errors"),
    "no_compile_cache": ("", "compile again instead of reading the compilation cache on disk"),
    "profile": ("", "trace a few updates into RUN/profile and print their time by phase; compiles again"),
    "help": ("", "show this text and exit (also -h)"),
    "version": ("", "show the version and exit"),
}
#: rust_rl's spellings of two flags.
FLAG_ALIASES = {"--checkpoint-save-dir": "save_dir", "--checkpoint-load-path": "load_path"}

#: value: requires a value; bool: an optional value; off: the `--no-` form of a bool; switch: no value.
Kind = Literal["value", "bool", "off", "switch"]


class ParsedFlags(NamedTuple):
    """A parsed command line."""

    layer: Layer  # {leaf: (checked value, flag)} in the order given, without invalid ones
    options: CommandOptions
    shows: str | None  # "help" or "version" if that flag was given
    problems: list[str]  # one line for each invalid argument
    notes: list[str]  # one line for each flag that has another name now


def flag_name(leaf: str) -> str:
    """The flag of a leaf or option: `num_envs` -> `--num-envs`."""
    return "--" + leaf.replace("_", "-")


@functools.cache
def flag_table(config_type: type) -> dict[str, tuple[str, Kind]]:
    """Every accepted flag, as {flag: (leaf or option, kind)}."""
    table: dict[str, tuple[str, Kind]] = {
        flag_name(name): (name, "value" if metavar else "switch") for name, (metavar, _) in OPTION_HELP.items()
    }
    table["-h"] = ("help", "switch")
    for section in section_types(config_type).values():
        for leaf, annotation in leaf_types(section).items():
            is_bool = allows(annotation, bool)
            table[flag_name(leaf)] = (leaf, "bool" if is_bool else "value")
            if is_bool:
                table[flag_name("no_" + leaf)] = (leaf, "off")
    table |= {former: table[flag] for former, flag in _former_flags(config_type).items()}
    known = leaf_sections(config_type)
    table |= {flag: (leaf, "value") for flag, leaf in FLAG_ALIASES.items() if leaf in known}
    return table


@functools.cache
def _former_flags(config_type: type) -> dict[str, str]:
    """{former flag: flag} of the leaves that were renamed, those that turn one off included."""
    found: dict[str, str] = {}
    for section in section_types(config_type).values():
        for former, leaf in former_names(section).items():
            found[flag_name(former)] = flag_name(leaf)
            if allows(leaf_types(section)[leaf], bool):
                found[flag_name("no_" + former)] = flag_name("no_" + leaf)
    return found


def parse_flags(argv: Sequence[str], config_type: type, further: Sequence[str] = ()) -> ParsedFlags:
    """A command line as checked leaves and options. Problems are collected, not raised.

    `further` flags, which the command has read before, are among those that may have been meant.
    """
    table, words = flag_table(config_type), list(argv)
    given: dict[str, tuple[str, str]] = {}
    problems: list[str] = []
    while words:
        word = words.pop(0)
        flag, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
        if flag not in table:
            problems.append(_unknown_word(word, flag, config_type, further))
            if flag.startswith("-") and not equals and _is_value(words):
                words.pop(0)
            continue
        target, kind = table[flag]
        text, problem = _text_after(flag, kind, text if equals else None, words)
        if target in given and not problem:
            first = given[target][1]
            problem = f"{flag}: given twice" + (f" (first as {first})" if first != flag else "")
        if problem:
            problems.append(problem)
        else:
            given[target] = (text, flag)
    return _checked(given, problems, config_type)


def _is_value(words: list[str]) -> bool:
    """Whether the next argument is a value: `-1e-3` is one, `--seed` and `-h` are not."""
    return bool(words) and not words[0].startswith("--") and words[0] != "-h"


def _text_after(flag: str, kind: Kind, attached: str | None, words: list[str]) -> tuple[str, str | None]:
    """(text of the flag, problem or None). Removes the next argument from `words` if it is the flag's value."""
    if kind in ("off", "switch"):
        problem = None if attached is None else f"{flag}: takes no value, got '{attached}'"
        return "false" if kind == "off" else "true", problem
    if attached is None and _is_value(words):
        attached = words.pop(0)
    elif attached is None and kind == "bool":
        attached = "true"
    if attached == "" and flag == "--task-id":
        return attached, None  # reported as an unknown task, which has its own exit code
    return attached or "", None if attached else f"{flag}: needs a value"


def _unknown_word(word: str, flag: str, config_type: type, further: Sequence[str]) -> str:
    leaf = flag.lstrip("-").replace("-", "_")
    if not flag.startswith("-"):
        name, equals, text = word.partition("=")
        known = equals and flag_name(name) in flag_table(config_type)
        return f"unexpected argument '{word}'" + (f"; write {flag_name(name)} {text}" if known else "")
    instead = {name: f"use {flag_name(ours)}: {meaning}" for name, (ours, meaning) in RENAMED_LEAVES.items()}
    instead |= {name: retired.reason for name, retired in RETIRED_LEAVES.items()}
    if (name := leaf.removeprefix("no_")) in instead:
        return f"unknown flag '{flag}'; {instead[name]}"
    ours, meanings = ACCEPTED_LEAVES.get(leaf, (leaf, {}))
    if meanings and ours in leaf_sections(config_type):
        return f"unknown flag '{flag}'; use {flag_name(ours)} {' or '.join(meanings.values())}"
    for section, kind in CHECKED_ONLY_SECTIONS.get(config_type, {}).items():
        if ours in leaf_types(kind):
            return f"unknown flag '{flag}'; it belongs to section '{section}', which this command does not use"
    if leaf in ("lr", "learning_rate") and "actor_lr" in leaf_types(config_type):
        return f"unknown flag '{flag}'; there are two: --actor-lr and --critic-lr"
    present = flag_table(config_type).keys() - _former_flags(config_type).keys()
    return f"unknown flag '{flag}'{nearest(flag, [*sorted(present), *further])}"


def _checked(given: dict[str, tuple[str, str]], problems: list[str], config_type: type) -> ParsedFlags:
    kinds, homes = section_types(config_type), leaf_sections(config_type)
    layer: Layer = {}
    for leaf, (text, flag) in given.items():
        if leaf in homes:
            value, problem = parse_leaf(text, kinds[homes[leaf]], leaf)
            if problem:
                problems.append(f"{flag}: {problem}")
            else:
                layer[leaf] = (value, flag)
    texts = {name: text for name, (text, _) in given.items()}
    switches = {name: name in given for name in ("print_config", "debug", "no_compile_cache", "profile")}
    shows = next((name for name in ("help", "version") if name in given), None)
    options = CommandOptions(config=texts.get("config"), resume=texts.get("resume"), **switches)
    former = _former_flags(config_type)
    notes = [f"{flag} is called {former[flag]} now" for _, flag in layer.values() if flag in former]
    return ParsedFlags(layer, options, shows, problems, notes)
