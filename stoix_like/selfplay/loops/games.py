"""The configuration of each game of a loop: its preset, what the loop sets, and leaves given for all games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stoix_like.config.checks.board_games import game_key, parse_game
from stoix_like.config.checks.selfplay import SET_BY_PIPELINE
from stoix_like.config.layers import Layer
from stoix_like.config.sections.continuous_loop import MIN_SAMPLES, LoopConfig
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading import flags
from stoix_like.runtime.loading.config import HINT, config_of_preset
from stoix_like.runtime.loading.flags import ParsedFlags
from stoix_like.runtime.loading.presets import preset_of_game
from stoix_like.selfplay.files.folders import Layout

ALGORITHM = "selfplay"  # in the names of presets


def game_config(name: str, num_players: int, leaves: Mapping[str, Any], given: Layer) -> SelfPlayConfig:
    """The configuration of a game's pipeline: code defaults < its preset < leaves < given.

    Args:
        name: of the game.
        num_players: of it.
        leaves: {leaf: value} that the loop sets.
        given: leaves of a command line.

    Raises:
        ConfigError: with all problems.
        UnsupportedEnvironmentError: no such game.
    """
    key = game_key(*parse_game(f"{name}:{num_players}"))
    preset = preset_of_game(ALGORITHM, name, num_players)
    config: SelfPlayConfig = config_of_preset(SelfPlayConfig, preset, {"task_id": key, **leaves}, given)
    return config


def leaves_of(config: LoopConfig) -> dict[str, Any]:
    """{leaf: value} that a continuous loop sets for all its games."""
    set_here = {"selfplay_games": config.selfplay_games_per_iteration, "engine": config.selfplay_engine}
    return set_here | {"min_samples": MIN_SAMPLES}


def check_words(words: Sequence[str], further: Mapping[str, str], further_flags: Sequence[str] = ()) -> ParsedFlags:
    """The flags of all games. Raises ConfigError with all that is wrong, and for those that a loop sets itself.

    Args:
        words: of a command line.
        further: {leaf: why} of the loop.
        further_flags: of the command, which are not among the words; one of them may have been meant.
    """
    parsed = flags.parse_flags(list(words), SelfPlayConfig, further_flags)
    refused = SET_BY_PIPELINE | {"task_id": "the loop names its games", **further}
    problems = [f"{flags.flag_name(leaf)}: {why}" for leaf, why in refused.items() if leaf in parsed.layer]
    problems += ["--resume: a loop goes on by itself"] if parsed.options.resume is not None else []
    if problems or parsed.problems:
        raise ConfigError([*parsed.problems, *problems], HINT if parsed.problems else "leave it out")
    return parsed


def layer_of_words(words: Sequence[str]) -> Layer:
    """The leaves that flags set. Raises ConfigError with all that is wrong."""
    parsed = flags.parse_flags(list(words), SelfPlayConfig)
    if parsed.problems:
        raise ConfigError(parsed.problems, HINT)
    return parsed.layer


def layout_of(save_dir: Path, name: str, num_players: int) -> Layout:
    """The folder of a game's pipeline."""
    return Layout(save_dir / game_key(name, num_players))
