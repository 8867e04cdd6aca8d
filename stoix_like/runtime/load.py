"""From files and flags to one checked configuration: code defaults < YAML < flags.

Every problem of a file and a command line is told at once. How YAML is read and written is `config_yaml.py`, how the
command line is sorted is `flags.py`, what the leaves mean is `config/sections.py`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import stoix_like
from stoix_like.config.checks import (
    check_leaf,
    leaf_sections,
    leaf_types,
    replace_leaves,
    resolve,
    section_types,
)
from stoix_like.config.sections import HardwareConfig, LoggingConfig
from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError
from stoix_like.runtime import flags
from stoix_like.runtime.config_yaml import Layer, parse_text, read_yaml
from stoix_like.runtime.console import spelling
from stoix_like.runtime.flags import Options
from stoix_like.runtime.yaml_nodes import read_sections

HINT = "--help lists every flag, and docs/configuration.md every leaf, with its type, default and range"


class Loaded(NamedTuple):
    """What a command line asked for.

    Attributes:
        config: the checked configuration.
        explicit: leaves that flags set, so that a resumed run knows what to overwrite; total_timesteps counts as
            num_updates, into which it was turned.
        options: flags of the command; `options.config` names the file or preset that was read.
        task_read: the task of the file that was read; a flag may have named another, to which its values do not fit.
    """

    config: Any
    explicit: frozenset[str]
    options: Options
    task_read: str | None = None


def load(config_type: type, algorithm: str, argv: Sequence[str], default_config: str) -> Loaded:
    """The configuration of a command line: code defaults < YAML (`--config`, or `default_config`) < flags.

    With `--resume RUN` the YAML is the run's own config.yaml. `--help` and `--version` print and leave by SystemExit.

    Raises:
        ConfigError: everything wrong with the file and the flags, at once.
        CheckpointError: `--resume` names a folder that is not a run, or a run of another algorithm.
    """
    scan = flags.scan(argv, config_type)
    if scan.shows is not None:
        print(
            _version() if scan.shows == "version" else flags.help_text(config_type, algorithm, default_config),
            flush=True,
        )
        raise SystemExit(0)
    source: str | None = None
    hint = HINT
    file_layer: Layer = {}
    flag_layer, flag_problems = _flag_layer(scan.leaves, config_type)
    try:
        if scan.options.resume is None:
            found: Source = (find_config(scan.options.config or default_config, algorithm), None)
        else:
            found = _resumed(scan.options, algorithm, config_type, {} if flag_problems else flag_layer)
        source = str(found[0])
        file_layer, problems = read_yaml(found[0], config_type, found[1])
        hint = _hint(found[0]) if problems and scan.options.resume is not None else HINT
    except ConfigError as error:
        problems, hint = error.problems, error.hint
    values, where, merge_problems = merge_layers([file_layer, flag_layer])
    problems += [*scan.problems, *flag_problems, *merge_problems]
    if problems:
        raise ConfigError(problems, hint if len(problems) == 1 else HINT)
    config = resolve(replace_leaves(config_type(), values), where=where)
    explicit = frozenset("num_updates" if leaf == "total_timesteps" else leaf for leaf in flag_layer)
    named = default_config if scan.options.resume is None else source
    options = scan.options._replace(config=scan.options.config or named)
    return Loaded(config, explicit, options, file_layer.get("task_id", (None,))[0])


def _hint(config_yaml: Path) -> str:
    """What to do about the configuration of a run that is to be continued."""
    from stoix_like.runtime import run_folder

    return run_folder.config_remedy(config_yaml.parent) or HINT


def preset_note(loaded: Loaded) -> str | None:
    """What to say when the file was written for another task than a flag names, or for another algorithm; or None."""
    task, named = loaded.config.environment.task_id, loaded.options.config
    algorithm = "spo" if "spo" in section_types(loaded.config.__class__) else "ppo"
    theirs = _algorithm_of(str(named)) or algorithm
    if loaded.options.resume is not None or (loaded.task_read in (None, task) and theirs == algorithm):
        return None
    ours = {name: path for name, path in preset_paths().items() if name.startswith(f"{algorithm}/")}
    made = [name for name, path in ours.items() if _task_of(path) == task]
    other = f"--config {made[0]} is for {task}" if made else f"no preset is for {task}"
    chosen_for = loaded.task_read if theirs == algorithm else f"{theirs.upper()} on {loaded.task_read}"
    if theirs != algorithm:
        other += f" and {algorithm.upper()}, and {spelling.named(f'train-{theirs}')} trains {theirs.upper()}"
    return f"the values of {named} were chosen for {chosen_for}; {other}"


def _algorithm_of(named: str) -> str | None:
    """That a preset is for, by its name or its path; None of any other file."""
    for name, path in preset_paths().items():
        if name == named.removesuffix(".yaml") or path.resolve() == Path(named).resolve():
            return name.partition("/")[0]
    return None


def _task_of(path: Path) -> str | None:
    environment = (read_sections(path) or {}).get("environment")
    return environment.get("task_id") if isinstance(environment, dict) else None


def _version() -> str:
    try:
        return f"stoix_like {importlib.metadata.version('stoix_like')}"
    except importlib.metadata.PackageNotFoundError:
        return "stoix_like (not installed)"


Source = tuple[Path, str | None]  # a file, and what it holds if that has been read


def _resumed(options: Options, algorithm: str, config_type: type, flag_layer: Layer) -> Source:
    """The configuration of the run that is continued; of several processes the first alone looks for it."""
    if options.config is not None:
        raise ConfigError("--resume: the run has its own configuration", "leave out --config")
    from stoix_like.runtime import run_folder  # only here: --help needs none of its imports

    def find() -> str:
        run = run_folder.find_run(str(options.resume))
        # Said before its values are checked as those of this algorithm, which they need not be.
        run_folder.check_algorithm(run, run_folder.algorithm_noted(run, algorithm), algorithm)
        return str(run / "config.yaml")

    started = {leaf: value for leaf, (value, _) in flag_layer.items() if leaf in leaf_types(HardwareConfig)}
    hardware = replace_leaves(config_type(), started).hardware
    index, count = hardware.process_id, hardware.num_processes
    together = None not in (hardware.coordinator_address, count, index) and index < count
    if not (together or hardware.distributed):
        return Path(find()), None  # or flags that are refused soon
    from stoix_like.runtime.hardware import process_group

    team = process_group.join(hardware, LoggingConfig(), compile_cache=options.is_cached)
    path, text = team.told(lambda: (path := find(), _text(Path(path))))
    return Path(path), text


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):  # whoever reads it next says what is wrong
        return path.read_text(encoding="utf-8-sig")
    return None


def preset_paths() -> dict[str, Path]:
    """The shipped presets of runs, as {"ppo/maze": path}."""
    return {name: path for name, path in _shipped().items() if not name.startswith("sweep/")}


def sweep_paths() -> dict[str, Path]:
    """The shipped sweeps, as {"sweep/ppo_maze": path}."""
    return {name: path for name, path in _shipped().items() if name.startswith("sweep/")}


def _shipped() -> dict[str, Path]:
    """What configs/ holds: in the package once installed, at the top of a clone otherwise."""
    package = Path(str(stoix_like.__file__)).parent
    folder = next((f for f in (package / "configs", package.parent / "configs") if f.is_dir()), None)
    paths = sorted(folder.rglob("*.yaml")) if folder else []
    return {path.relative_to(folder or package).with_suffix("").as_posix(): path for path in paths}


def find_config(name: str, algorithm: str = "ppo") -> Path:
    """The file of that name, or the shipped preset: `runs/mine.yaml`, `ppo/maze`, `ppo/maze.yaml`.

    Args:
        name: of either.
        algorithm: whose preset to propose where half a name is given.

    Raises:
        ConfigError: there is neither.
    """
    presets = preset_paths()
    if Path(name).is_file():
        return Path(name)
    if name.removesuffix(".yaml") in presets:
        return presets[name.removesuffix(".yaml")]
    if Path(name).is_dir():
        raise ConfigError(f"--config: '{name}' is a folder, not a file", "name a YAML file in it")
    ending = [preset for preset in presets if preset.endswith(f"/{name.removesuffix('.yaml')}")]
    ending.sort(key=lambda preset: not preset.startswith(f"{algorithm}/"))
    near = f"; did you mean '{ending[0]}'?" if ending else nearest(name, presets)
    raise ConfigError(f"--config: no file or preset '{name}'{near}", f"presets: {', '.join(presets)}")


def merge_layers(layers: list[Layer]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """({leaf: value}, {leaf: place}, problems), the later layer winning."""
    values: dict[str, Any] = {}
    where: dict[str, str] = {}
    problems: list[str] = []
    for layer in layers:
        budgets = [leaf for leaf in ("num_updates", "total_timesteps") if layer.get(leaf, (None,))[0] is not None]
        if len(budgets) == 2:
            problems.append(f"{layer[budgets[1]][1]}: give num_updates or total_timesteps, not both")
        if budgets:  # either one replaces both of the layer below
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
