"""From files and flags to one checked configuration: code defaults < YAML < flags.

All problems of a file and a command line are reported at once. `documents.py` reads and writes YAML, `flags.py` parses
the command line, and `config/sections.py` defines the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.config.checks import (
    check_leaf,
    leaf_sections,
    leaf_types,
    replace_leaves,
    resolve,
    section_types,
)
from stoix_like.errors import ConfigError
from stoix_like.runtime.console import spelling
from stoix_like.runtime.console.installation import installed_version
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.loading import flags
from stoix_like.runtime.loading.documents import Layer, parse_text, read_yaml
from stoix_like.runtime.loading.flags import CommandOptions
from stoix_like.runtime.loading.presets import algorithm_of_preset, find_config, preset_paths, task_of_preset

HINT = "--help lists every flag, and docs/configuration.md every leaf, with its type, default and range"


class LoadedConfig(NamedTuple):
    """The configuration and options of a command line.

    Attributes:
        config: the checked configuration.
        overridden: leaves that flags set; total_timesteps counts as num_updates, to which it is converted.
        options: flags of the command; `options.config` names the file or preset that was read.
        preset_task_id: the task in the file. A flag may name another task, which the file's values do not fit.
    """

    config: Any
    overridden: frozenset[str]
    options: CommandOptions
    preset_task_id: str | None = None


class Source(NamedTuple):
    """The file that a configuration is read from.

    Attributes:
        path: of the file.
        text: its content, if it has been read already.
        remedy: a hint if it cannot be used.
    """

    path: Path
    text: str | None = None
    remedy: Callable[[], str | None] = lambda: None


#: (options, leaves that flags set) -> the configuration of the run that `--resume` names.
ResumedSource = Callable[[CommandOptions, Layer], Source]


def read_command_line(
    config_type: type, algorithm: str, argv: Sequence[str], default_config: str, resumed_source: ResumedSource
) -> LoadedConfig:
    """The configuration of a command line: code defaults < YAML (`--config`, or `default_config`) < flags.

    With `--resume RUN`, `resumed_source` returns the YAML. `--help` and `--version` print and raise SystemExit. Raises
    ConfigError with all problems of the file and the flags.
    """
    scan = flags.parse_flags(argv, config_type)
    if scan.shows is not None:
        version = f"stoix_like {installed_version('stoix_like') or '(not installed)'}"
        text = version if scan.shows == "version" else flags.help_text(config_type, algorithm, default_config)
        print(text, flush=True)
        raise SystemExit(0)
    source: Source | None = None
    hint = HINT
    file_layer: Layer = {}
    flag_layer, flag_problems = _flag_layer(scan.leaves, config_type)
    try:
        if scan.options.resume is None:
            source = Source(find_config(scan.options.config or default_config, algorithm))
        elif scan.options.config is not None:
            raise ConfigError("--resume: the run has its own configuration", "leave out --config")
        else:
            source = resumed_source(scan.options, {} if flag_problems else flag_layer)
        file_layer, problems = read_yaml(source.path, config_type, source.text)
        hint = (source.remedy() or HINT) if problems else HINT
    except ConfigError as error:
        problems, hint = error.problems, error.hint
    values, where, merge_problems = merge_layers([file_layer, flag_layer])
    problems += [*scan.problems, *flag_problems, *merge_problems]
    if problems:
        raise ConfigError(problems, hint if len(problems) == 1 else HINT)
    config = resolve(replace_leaves(config_type(), values), where=where)
    overridden = frozenset("num_updates" if leaf == "total_timesteps" else leaf for leaf in flag_layer)
    named = default_config if scan.options.resume is None else str(source and source.path)
    options = scan.options._replace(config=scan.options.config or named)
    return LoadedConfig(config, overridden, options, file_layer.get("task_id", (None,))[0])


def preset_note(loaded: LoadedConfig) -> str | None:
    """A note if the file was written for another task than a flag names, or for another algorithm; else None."""
    task, named = loaded.config.environment.task_id, loaded.options.config
    algorithm = "spo" if "spo" in section_types(loaded.config.__class__) else "ppo"
    theirs = algorithm_of_preset(str(named)) or algorithm
    if loaded.options.resume is not None or (loaded.preset_task_id in (None, task) and theirs == algorithm):
        return None
    ours = {name: path for name, path in preset_paths().items() if name.startswith(f"{algorithm}/")}
    fitting = [name for name, path in ours.items() if task_of_preset(path) == task]
    other = f"--config {fitting[0]} is for {task}" if fitting else f"no preset is for {task}"
    title = algorithm_title(theirs)
    chosen_for = loaded.preset_task_id if theirs == algorithm else f"{title} on {loaded.preset_task_id}"
    if theirs != algorithm:
        command = spelling.command_name(f"train-{theirs}")
        other += f" and {algorithm_title(algorithm)}, and {command} trains {title}"
    return f"the values of {named} were chosen for {chosen_for}; {other}"


def merge_layers(layers: list[Layer]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """({leaf: value}, {leaf: place}, problems). Later layers overwrite earlier ones."""
    values: dict[str, Any] = {}
    where: dict[str, str] = {}
    problems: list[str] = []
    for layer in layers:
        budgets = [leaf for leaf in ("num_updates", "total_timesteps") if layer.get(leaf, (None,))[0] is not None]
        if len(budgets) == 2:
            problems.append(f"{layer[budgets[1]][1]}: give num_updates or total_timesteps, not both")
        if budgets:  # either one replaces both of the earlier layers
            values |= {"num_updates": None, "total_timesteps": None}
        for leaf, (value, place) in layer.items():
            values[leaf], where[leaf] = value, place
    return values, where, problems


def _flag_layer(given: Mapping[str, tuple[str, str]], config_type: type) -> tuple[Layer, list[str]]:
    homes, kinds = leaf_sections(config_type), section_types(config_type)
    layer: Layer = {}
    problems = []
    for leaf, (text, flag) in given.items():
        kind = kinds[homes[leaf]]
        try:
            value, problem = check_leaf(kind, leaf, parse_text(text, leaf_types(kind)[leaf]))
        except ConfigError as error:
            value, problem = None, error.what
        layer[leaf] = (value, flag)
        if problem:
            problems.append(f"{flag}: {problem}")
    return layer, problems
