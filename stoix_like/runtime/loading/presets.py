"""The shipped presets of runs and sweeps, and the lookup of files and presets by name."""

from __future__ import annotations

from pathlib import Path

import stoix_like
from stoix_like.config.checks.board_games import game_key, is_game, parse_game
from stoix_like.config.checks.values import nearest
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading.strict_yaml import read_sections

#: What an algorithm trains with unless a file or preset is named.
DEFAULT_PRESETS = {
    "ppo": "ppo/quick",
    "spo": "spo/quick",
    "alphazero": "alphazero/connect_four",
    "agent": "agent/frozen_lake",
    "pretrain": "pretrain/frozen_lake",
    "sft": "sft/frozen_lake",
    "selfplay": "selfplay/connect_four",
    "spa": "spa/small/frozen_lake",
}

#: Names of the original's files: {a file that its commands name: the preset that it is here}. The others differ
#: too much to stand for one, so that the error only proposes them.
_ORIGINAL_FILES = {"config/unified_loop": "selfplay/unified_loop"}
_NEAREST_PRESETS = {"ppo_config": "ppo/binpack_v0", "spo_config": "spo/binpack_v0"}


PROMPTS = "prompts"  # the folder of configs/ with what agents of text worlds are told, which are no presets


def algorithm_of_preset(named: str) -> str | None:
    """The algorithm of a preset, by the preset's name or path; None for other files."""
    for name, path in preset_paths().items():
        if name == named.removesuffix(".yaml") or path.resolve() == Path(named).resolve():
            return name.partition("/")[0]
    return None


def task_of_preset(path: Path) -> str | None:
    """The task id in a configuration file, or None."""
    environment = (read_sections(path) or {}).get("environment")
    return environment.get("task_id") if isinstance(environment, dict) else None


def configs_folder() -> Path:
    """configs/, which is in the installed package or at the top of a clone."""
    package = Path(str(stoix_like.__file__)).parent
    return next((f for f in (package / "configs", package.parent / "configs") if f.is_dir()), package / "configs")


def preset_paths(*, sweeps: bool = False) -> dict[str, Path]:
    """The shipped presets of runs as {"ppo/maze": path}, or of sweeps as {"sweep/ppo_maze": path}.

    They are files in `configs_folder`.
    """
    folder = configs_folder()
    named = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}
    return {
        name: path
        for name, path in named.items()
        if name.startswith("sweep/") == sweeps and not name.startswith(f"{PROMPTS}/")
    }


def preset_of_game(algorithm: str, name: str, num_players: int) -> str:
    """The preset of a board game: with this number of players, of the game, of the game with another number of players
    or without its swap; or the algorithm's default."""
    presets = [preset for preset in preset_paths() if preset.startswith(f"{algorithm}/")]
    for one in (name, name.removesuffix("_swap")):
        exact = [f"{algorithm}/{game_key(one, num_players)}", f"{algorithm}/{one}"]
        others = [preset for preset in presets if is_game(preset.partition("/")[2]) and _game_of(preset) == one]
        for preset in exact + others:
            if preset in presets:
                return preset
    return DEFAULT_PRESETS[algorithm]


def _game_of(preset: str) -> str:
    return parse_game(preset.partition("/")[2])[0]


def find(name: str, kind: str, flag: str = "") -> Path:
    """The path of a file or a shipped preset: `runs/mine.yaml`, `ppo/maze`, `sweep/ppo_maze.yaml`.

    Raises ConfigError if there is neither.

    Args:
        name: of a file or preset.
        kind: "sweep" for sweep files, or the algorithm whose presets are proposed first.
        flag: in front of a problem, such as `--config: `.
    """
    presets, stem = preset_paths(sweeps=kind == "sweep"), name.removesuffix(".yaml")
    stem = _ORIGINAL_FILES.get(stem, stem)
    if Path(name).is_file():
        return Path(name)
    if stem in presets:
        return presets[stem]
    if Path(name).is_dir():
        raise ConfigError(f"{flag}'{name}' is a folder, not a file", "name a YAML file in it")
    what = "no sweep file or preset" if kind == "sweep" else "no file or preset"
    if (nearby := _NEAREST_PRESETS.get(Path(stem).name)) in presets:
        raise ConfigError(f"{flag}{what} '{name}'", f"--config {nearby} has the task and sizes of the original's file")
    ending = [preset for preset in presets if preset.endswith(f"/{stem}")]
    ending.sort(key=lambda preset: not preset.startswith(f"{kind}/"))
    near = f"; did you mean '{ending[0]}'?" if ending else nearest(name, presets)
    raise ConfigError(f"{flag}{what} '{name}'{near}", f"presets: {', '.join(presets)}")
