"""From files and flags to one checked configuration: code defaults < YAML < flags.

All problems of a file and a command line are reported at once. `documents.py` and `flags.py` read the two as layers of
checked leaves, and `config/layers.py` makes one configuration of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from stoix_like.config.checks.access import get_leaf, replace_leaves, section_types
from stoix_like.config.layers import Layer, config_from_layers, layer_of, merge_layers
from stoix_like.config.sections.roles import Role, leaves_with
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console import spelling
from stoix_like.runtime.console.installation import installed_version
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.loading import flags, help
from stoix_like.runtime.loading.documents import read_yaml
from stoix_like.runtime.loading.flags import CommandOptions
from stoix_like.runtime.loading.presets import algorithm_of_preset, find, preset_paths, task_of_preset

#: {a section that one algorithm alone has: that algorithm}
_BY_SECTION = {"spo": "spo", "alphazero": "alphazero", "token_ppo": "agent", "pretrain": "pretrain", "fine_tune": "sft"}
HINT = "--help lists every flag, and docs/configuration.md every leaf, with its type, default and range"


class LoadedConfig(NamedTuple):
    """The configuration and options of a command line."""

    config: Any  # checked, without the leaves of its processes, whose number may change on resume
    launched: HardwareConfig  # its hardware section as given, with those leaves
    overridden: frozenset[str]  # leaves that flags set; total_timesteps counts as num_updates, to which it is converted
    options: CommandOptions  # `options.config` names the file or preset that was read
    preset_task_id: str | None = None  # of the file. A flag may name another task, which the file's values do not fit
    notes: tuple[str, ...] = ()  # of leaves that have another name now

    @property
    def given(self) -> Any:
        """The whole configuration as given, with the leaves of its processes."""
        return dataclasses.replace(self.config, hardware=self.launched)


class Source(NamedTuple):
    """The file that a configuration is read from."""

    path: Path
    text: str | None = None  # its content, if it has been read already
    remedy: Callable[[], str | None] = lambda: None  # a hint if the file cannot be used


#: (options, leaves that flags set) -> the configuration of the run that `--resume` names.
ResumedSource = Callable[[CommandOptions, Layer], Source]


def read_command_line(
    config_type: type,
    algorithm: str,
    argv: Sequence[str],
    default_config: str,
    resumed_source: ResumedSource,
    further_flags: Sequence[str] = (),
    leaves: Mapping[str, Any] = MappingProxyType({}),
) -> LoadedConfig:
    """The configuration of a command line: code defaults < YAML (`--config`, or `default_config`) < `leaves` < flags.

    With `--resume RUN`, `resumed_source` returns the YAML. `--help` and `--version` print and raise SystemExit. The
    command has read `further_flags` before. Raises ConfigError with all problems of the file and the flags.
    """
    parsed = flags.parse_flags(argv, config_type, further_flags)
    if parsed.shows is not None:
        version = f"stoix_like {installed_version('stoix_like') or '(not installed)'}"
        text = version if parsed.shows == "version" else help.help_text(config_type, algorithm, default_config)
        print(text, flush=True)
        raise SystemExit(0)
    options, hint, notes = parsed.options, HINT, list[str]()
    file_layer: Layer = {}
    try:
        if options.resume is None:
            source = Source(find(options.config or default_config, algorithm, "--config: "))
        elif options.config is not None:
            raise ConfigError("--resume: the run has its own configuration", "leave out --config")
        else:
            source = resumed_source(options, {} if parsed.problems else parsed.layer)
        file_layer, problems = read_yaml(source.path, config_type, source.text, notes)
        hint = (source.remedy() or HINT) if problems else HINT
    except ConfigError as error:
        problems, hint = error.problems, error.hint
    config = _combined(config_type, file_layer, leaves, parsed.layer, [*problems, *parsed.problems], hint)
    overridden = frozenset("num_updates" if leaf == "total_timesteps" else leaf for leaf in parsed.layer)
    named = default_config if options.resume is None else str(source.path)
    options = options._replace(config=options.config or named)
    loaded = loaded_config(config, options, overridden, file_layer.get("task_id", (None,))[0])
    return loaded._replace(notes=(*notes, *parsed.notes))


def config_of_preset(config_type: type, preset: str, leaves: Mapping[str, Any], given: Layer) -> Any:
    """The configuration of a program: code defaults < preset < leaves < given.

    Args:
        config_type: of the algorithm.
        preset: such as selfplay/othello.
        leaves: {leaf: value}.
        given: leaves of a command line.

    Raises:
        ConfigError: with all problems.
    """
    file_layer, problems = read_yaml(find(preset, preset.partition("/")[0], ""), config_type)
    return loaded_config(_combined(config_type, file_layer, leaves, given, problems), CommandOptions()).config


def _combined(
    config_type: type, file: Layer, leaves: Mapping[str, Any], given: Layer, problems: list[str], hint: str = HINT
) -> Any:
    """The configuration of a file < leaves < given. Raises ConfigError with these and all further problems."""
    set_here, wrong = layer_of(
        config_type, {name: v for name, v in leaves.items() if name not in given}, flags.flag_name
    )
    if problems := [*problems, *wrong, *merge_layers(file, set_here, given)[2]]:
        raise ConfigError(problems, hint if len(problems) == 1 else HINT)
    return config_from_layers(config_type(), file, set_here, given)


def loaded_config(
    config: Any, options: CommandOptions, overridden: frozenset[str] = frozenset(), preset_task_id: str | None = None
) -> LoadedConfig:
    """A configuration as `train` takes it: the leaves of the processes apart from those of the run."""
    of_one_process = {leaf: get_leaf(type(config)(), leaf) for leaf in leaves_with(type(config), Role.PROCESS)}
    run = replace_leaves(config, of_one_process)
    return LoadedConfig(run, config.hardware, overridden, options, preset_task_id)


def preset_note(loaded: LoadedConfig, kind: str | None = None) -> str | None:
    """A note if the file was written for another task than a flag names, or for another algorithm; else None.

    `kind` is the folder of the presets, if it is not that of the algorithm.
    """
    task, named = loaded.config.environment.task_id, loaded.options.config
    sections = section_types(loaded.config.__class__)
    by_section = (algorithm for section, algorithm in _BY_SECTION.items() if section in sections)
    algorithm = kind or next(by_section, "ppo")
    theirs = algorithm_of_preset(str(named)) or algorithm
    if loaded.options.resume is not None or (loaded.preset_task_id in (None, task) and theirs == algorithm):
        return None
    ours = {name: path for name, path in preset_paths().items() if name.startswith(f"{algorithm}/")}
    fitting = [name for name, path in ours.items() if task_of_preset(path) == task]
    other = f"--config {fitting[0]} is for {task}" if fitting else f"no preset is for {task}"
    chosen_for = f"{loaded.preset_task_id}"
    if theirs != algorithm:
        title, command = algorithm_title(theirs), spelling.training_name(theirs)
        chosen_for = f"{title} on {chosen_for}"
        other += f" and {algorithm_title(algorithm)}, and {command} trains {title}"
    return f"the values of {named} were chosen for {chosen_for}; {other}"
