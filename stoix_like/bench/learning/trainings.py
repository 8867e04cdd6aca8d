"""The runs that are measured: made by the commands of the project, once, and refused if their presets have changed."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.config.dicts import config_to_dict
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.console.spelling import training_command
from stoix_like.runtime.results.series import experiment_leaves
from stoix_like.runtime.runs.build import ALGORITHMS
from stoix_like.runtime.runs.find import read_config
from stoix_like.runtime.runs.sources import load_config

RUNS = Path("runs") / "bench"
SEEDS = (0, 1, 2)


class Training(NamedTuple):
    """A preset with further flags. Its run folders are `runs/bench/<name>-s<seed>`.

    With `base`, it begins with the network of that training's run of the same seed.
    """

    name: str
    preset: str
    flags: tuple[str, ...] = ()
    base: Training | None = None

    @property
    def algorithm(self) -> str:
        """The folder of the preset."""
        return self.preset.partition("/")[0]


@functools.cache
def finished_run(training: Training, seed: int) -> Path:
    """The finished run of a training and seed. It is started, or resumed if it is not finished.

    The answer is kept: a later call in the same process neither checks nor resumes.
    """
    path, flags = RUNS / f"{training.name}-s{seed}", ["--config", training.preset, *training.flags]
    if training.base is not None:
        flags += ["--load-path", str(finished_run(training.base, seed))]
    if (path / "config.yaml").is_file():
        _check_settings(training, flags, path)
        flags = ["--resume", str(path)]
    else:
        flags += ["--seed", str(seed), "--save-dir", str(RUNS), "--run-name", path.name]
    command, *words = training_command(training.algorithm)
    script = ROOT / "scripts" / f"{command.replace('-', '_')}.py"
    subprocess.run([sys.executable, str(script), *words, *flags, "--no-progress"], check=True)
    return path


def _check_settings(training: Training, flags: list[str], path: Path) -> None:
    """Raises ConfigError if the run was trained with other settings than the flags give now: presets change."""
    expected = load_config(ALGORITHMS[training.algorithm].config_type, training.algorithm, flags, "").config
    refuse_other_settings(path, expected, training.name)


def refuse_other_settings(path: Path, expected: Any, name: str) -> None:
    """Raises ConfigError if the run's configuration differs from the expected one in a leaf that matters to learning or
    scores. `name` is the training's, for the message."""
    now, then = experiment_leaves(config_to_dict(expected)), experiment_leaves(read_config(path))
    before = experiment_leaves(config_to_dict(type(expected)())) | then  # a leaf that was not there had its default
    changed = [leaf for leaf in {**now, **before} if now.get(leaf) != before.get(leaf)]
    if changed:
        raise ConfigError(
            f"{path} was trained with another {', '.join(changed)} than {name} has now",
            "move the folder away: the training then starts again",
        )
