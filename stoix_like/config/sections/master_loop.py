"""The configuration of the master loop. Imports only the standard library."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoix_like.config.checks.access import leaf_sections
from stoix_like.config.checks.board_games import is_named, parse_game
from stoix_like.config.checks.selfplay import NETWORK_ENGINE, owned_problems
from stoix_like.config.checks.values import nearest
from stoix_like.config.sections.continuous_loop import DEFAULT_GAMES, MIN_SAMPLES, LoopConfig
from stoix_like.config.sections.leaves import leaf
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import ConfigError

_DEFAULTS = LoopConfig()
#: {leaf: the section that sets it} of the leaves that no game may have as its own, and of those that one game may.
_OWNED = {"task_id": "loop.games", "save_dir": "loop.save_dir"}
_OF_ALL = {"selfplay_games": "loop.selfplay_games", "engine": "loop.engine"}


@dataclass(frozen=True)
class LoopSectionConfig:
    """Which games take turns, and what an iteration of each plays."""

    games: str = leaf(
        ",".join(f"{name}:{players}" for name, players in DEFAULT_GAMES), "games with their players, name:N,name:N"
    )
    selfplay_games: int = leaf(_DEFAULTS.selfplay_games_per_iteration, "games of a batch of self-play", low=1)
    engine: str = leaf(NETWORK_ENGINE, "who plays: gumbel-mcts with the network, or mcts-N without one")
    game_leaves: Mapping[str, Any] = leaf({}, "leaves of games: {leaf: value} of all, {game: {leaf: value}} of one")
    max_iterations: int = leaf(0, "iterations of all games together, after which the loop ends; 0 = no end", low=0)
    idle_batches: int = leaf(
        4, "batches after the first, up to which an iteration plays more when nothing else is due", low=0
    )
    save_dir: str = leaf("runs", "folder of all pipelines")


@dataclass(frozen=True)
class DataIngestionConfig:
    """How the shards of other folders are taken in."""

    poll_interval_seconds: float = leaf(60.0, "seconds between two looks into the folders of sync_from", low=1.0)


@dataclass(frozen=True)
class LoopEvaluationConfig:
    """Evaluations for the report, which never promote."""

    shadow_interval_seconds: float = leaf(900.0, "seconds between matches of each champion with its anchors", low=1.0)
    shadow_openings: int = leaf(16, "openings that are added to each of these matches", low=1)
    full_tournament_interval_seconds: float = leaf(86_400.0, "seconds between tournaments of kept candidates", low=1.0)
    tournament_candidates: int = leaf(16, "candidates of a tournament at most", low=2)
    tournament_openings: int = leaf(256, "openings that a tournament plays, where ratings are least certain", low=1)


@dataclass(frozen=True)
class LoopTrainingConfig:
    """When an iteration learns."""

    min_samples_to_trigger: int = leaf(MIN_SAMPLES, "new positions that an iteration learns from", low=0)
    auto_trigger: bool = leaf(True, "stages follow each other by themselves; false = only self-play runs")
    max_data_age_hours: float = leaf(168.0, "age of an iteration's newest games; beyond, it plays more", above=0.0)


@dataclass(frozen=True)
class CurriculumConfig:
    """How self-play is shared out over games."""

    progress_weight: float = leaf(0.5, "weight of how far a game's progress lies behind the others'", low=0.0)
    age_weight: float = leaf(0.5, "weight of the age of a game's newest games", low=0.0)
    age_hours: float = leaf(6.0, "hours at which that age counts in full", above=0.0)
    weight_smoothing: float = leaf(
        0.3, "share of the newest value in the moving average of a weight", above=0.0, high=1.0, former="smoothing"
    )
    progress_iterations: int = leaf(10, "iterations over which progress is counted", low=1)


@dataclass(frozen=True)
class WatchConfig:
    """What counts as a plateau, and as a regression."""

    plateau_iterations: int = leaf(20, "iterations over which champions have to gain", low=1)
    plateau_elo: float = leaf(15.0, "Elo that they have to gain", low=0.0)
    regression_iterations: int = leaf(5, "candidates whose mean is compared with the champion", low=1)
    regression_elo: float = leaf(50.0, "Elo that they may lie below it", low=0.0)


@dataclass(frozen=True)
class HealthConfig:
    """When a stage has failed, and when nothing is played."""

    stage_timeout_seconds: float = leaf(14_400.0, "seconds that a stage may take", low=1.0)
    max_consecutive_failures: int = leaf(_DEFAULTS.max_consecutive_failures, "failures that open a breaker", low=1)
    failure_backoff_seconds: float = leaf(
        _DEFAULTS.failure_backoff_seconds, "that it stays open; doubles up to an hour", low=0.0
    )
    min_free_disk: float = leaf(1.0, "gigabytes; with fewer nothing is played", low=0.0)


@dataclass(frozen=True)
class RetentionConfig:
    """What is kept."""

    keep_windows: float = leaf(2.0, "shards are kept for so many times the positions that the replay holds", low=1.0)
    keep_candidates: int = leaf(16, "newest candidates whose parameters are kept, besides all champions", low=1)
    keep_event_days: float = leaf(90.0, "days after which events are removed", above=0.0)


@dataclass(frozen=True)
class HooksConfig:
    """Commands that are run when something has happened."""

    on_event: Mapping[str, Any] = leaf(
        {}, "{event: command}, such as {BREAKER_OPEN: notify-send stopped}; the event is on standard input"
    )


@dataclass(frozen=True)
class PlateauHookConfig:
    """What is started when the champions of a game no longer gain."""

    plateau_hook: bool = leaf(False, "start the function after a PLATEAU_DETECTED", former="enabled")
    plateau_function: str = leaf(
        "cma_es",
        "cma_es = a sweep of learning rate and weight decay, architectures = one of network sizes, or a name of"
        " sl.register_plateau_hook",
        former="function",
    )
    plateau_trials: int = leaf(24, "trials of the function, the present settings included", low=2, former="num_trials")
    plateau_epochs: float = leaf(1.0, "passes of a trial over the window", above=0.0, former="trial_epochs")
    plateau_seconds: float = leaf(
        3600.0, "after which the function begins no other trial", above=0.0, former="max_seconds"
    )


@dataclass(frozen=True)
class UnifiedLoopConfig:
    """The configuration of the master loop."""

    loop: LoopSectionConfig = dataclasses.field(default_factory=LoopSectionConfig)
    data_ingestion: DataIngestionConfig = dataclasses.field(default_factory=DataIngestionConfig)
    evaluation: LoopEvaluationConfig = dataclasses.field(default_factory=LoopEvaluationConfig)
    training: LoopTrainingConfig = dataclasses.field(default_factory=LoopTrainingConfig)
    curriculum: CurriculumConfig = dataclasses.field(default_factory=CurriculumConfig)
    watch: WatchConfig = dataclasses.field(default_factory=WatchConfig)
    health: HealthConfig = dataclasses.field(default_factory=HealthConfig)
    retention: RetentionConfig = dataclasses.field(default_factory=RetentionConfig)
    hooks: HooksConfig = dataclasses.field(default_factory=HooksConfig)
    plateau_hook: PlateauHookConfig = dataclasses.field(default_factory=PlateauHookConfig)


def games_of(text: str) -> list[tuple[str, int]]:
    """The games of the leaf `games`. Raises ConfigError, or UnsupportedEnvironmentError as `parse_game`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    found = [parse_game(name) for name in names]
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"loop.games: '{text}' names no game, or one twice", "write such as connect_four:2,othello:2")
    return found


def check_game_leaves(config: UnifiedLoopConfig) -> None:
    """Raises ConfigError if `game_leaves` has a key that is neither a leaf nor, with leaves of its own, a game here, or
    a leaf that the loop sets.

    Raises UnsupportedEnvironmentError for a game of the loop that does not exist.
    """
    here, homes = games_of(config.loop.games), leaf_sections(SelfPlayConfig)
    problems = owned_problems("loop.game_leaves", config.loop.game_leaves, _OWNED | _OF_ALL)
    for key, value in config.loop.game_leaves.items():
        if not isinstance(value, Mapping):
            problems += [] if key in homes else [f"loop.game_leaves: no leaf '{key}'{nearest(key, homes)}"]
        elif not any(is_named(key, *game) for game in here):
            problems.append(f"loop.game_leaves: '{key}' is no game of this loop")
        else:
            where = f"loop.game_leaves.{key}"
            problems += [f"{where}: no leaf '{leaf}'{nearest(leaf, homes)}" for leaf in value if leaf not in homes]
            problems += owned_problems(where, value, _OWNED)
    if problems:
        raise ConfigError(problems, "write {leaf: value} for all games, or {game: {leaf: value}} for one")


def with_game_leaves(config: UnifiedLoopConfig, leaves: Mapping[str, Any]) -> UnifiedLoopConfig:
    """The configuration with these leaves of all games, also where `game_leaves` gives a game another value."""
    given = {
        key: {leaf: own for leaf, own in value.items() if leaf not in leaves} if isinstance(value, Mapping) else value
        for key, value in config.loop.game_leaves.items()
    }
    return dataclasses.replace(config, loop=dataclasses.replace(config.loop, game_leaves={**given, **leaves}))


def leaves_of(config: UnifiedLoopConfig, name: str, num_players: int) -> dict[str, Any]:
    """{leaf: value} of `game_leaves` for a game: those of all games, then its own, then those of its own with this
    number of players."""
    given = config.loop.game_leaves
    found = {key: value for key, value in given.items() if not isinstance(value, Mapping)}
    own = [key for key, value in given.items() if isinstance(value, Mapping) and is_named(key, name, num_players)]
    for key in sorted(own, key=lambda key: key != name):
        found |= given[key]
    return found
