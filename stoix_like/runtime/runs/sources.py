"""The configuration of a training command, from a preset, a file, or the run that `--resume` names."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stoix_like.config.checks.access import leaf_types, replace_leaves
from stoix_like.config.layers import Layer
from stoix_like.config.sections.runs import HardwareConfig, LoggingConfig
from stoix_like.runtime.loading.config import LoadedConfig, Source, read_command_line
from stoix_like.runtime.loading.flags import CommandOptions


def load_config(
    config_type: type,
    algorithm: str,
    argv: Sequence[str],
    default_config: str,
    further_flags: Sequence[str] = (),
    leaves: Mapping[str, Any] = MappingProxyType({}),
) -> LoadedConfig:
    """The checked configuration of a command line.

    Code defaults < YAML (`--config`, or `default_config`) < `leaves` < flags.

    With `--resume RUN` the YAML is the run's own config.yaml. `--help` and `--version` print and raise SystemExit.

    Args:
        config_type: of the algorithm, such as `PPOConfig`.
        algorithm: key of `ALGORITHMS`, such as "ppo".
        argv: the command line without the program's name.
        default_config: the preset if `--config` is not given, such as "ppo/quick".
        further_flags: of the command, which are no longer in `argv`; one of them may have been meant.
        leaves: {leaf: value} that the program sets.

    Raises:
        ConfigError: with all problems of the file and the flags.
        CheckpointError: `--resume` names a folder that is not a run, or a run of another algorithm.
    """
    source = functools.partial(resumed_source, config_type, algorithm)
    return read_command_line(config_type, algorithm, argv, default_config, source, further_flags, leaves)


def resumed_source(config_type: type, algorithm: str, options: CommandOptions, flag_layer: Layer) -> Source:
    """The configuration of the run that is resumed. With several processes, only process 0 reads it."""
    from stoix_like.runtime.runs import find, folder  # imported here so that --help stays fast

    def config_path() -> str:
        run = find.find_run(str(options.resume))
        # before its values are checked as those of this algorithm
        folder.check_algorithm(run, folder.recorded_algorithm(run, algorithm), algorithm)
        return str(run / "config.yaml")

    started = {leaf: value for leaf, (value, _) in flag_layer.items() if leaf in leaf_types(HardwareConfig)}
    hardware = replace_leaves(config_type(), started).hardware
    index, count = hardware.process_id, hardware.num_processes
    is_complete = None not in (hardware.coordinator_address, count, index) and index < count
    if not (is_complete or hardware.distributed):  # incomplete flags raise an error later
        path, text = config_path(), None
    else:
        from stoix_like.runtime.hardware import process_group

        group = process_group.initialize(hardware, LoggingConfig(), compile_cache=options.is_cached)
        path, text = group.broadcast_object(lambda: (path := config_path(), _text(Path(path))))
    return Source(Path(path), text, lambda: find.missing_config_hint(Path(path).parent))


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):  # read_yaml reports the error
        return path.read_text(encoding="utf-8-sig")
    return None
