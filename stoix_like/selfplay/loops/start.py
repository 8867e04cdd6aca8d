"""Starts a loop: its presence, its database, its threads, and the games that it runs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stoix_like.config.checks.selfplay import owned_problems
from stoix_like.config.sections.continuous_loop import LoopConfig, check_games
from stoix_like.config.sections.master_loop import UnifiedLoopConfig, check_game_leaves, games_of, leaves_of
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.selfplay.events.breaker import BreakerRule
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.user_commands import HookThreads, check_hooks
from stoix_like.selfplay.events.wiring import PipelineWiring, wire_pipeline_events
from stoix_like.selfplay.loops import games
from stoix_like.selfplay.loops.continuous import ContinuousPolicy, refuse_force
from stoix_like.selfplay.loops.engine import LoopEngine, LoopLimits
from stoix_like.selfplay.loops.master import MasterPolicy
from stoix_like.selfplay.loops.opened import LoopRules, OpenedLoop, check_all, opened_loop, threads
from stoix_like.selfplay.loops.services import StageLimits
from stoix_like.selfplay.tuning.registry import check_plateau_hook
from stoix_like.selfplay.watch.last_games import last_games
from stoix_like.selfplay.watch.presence import CONTINUOUS, MASTER
from stoix_like.selfplay.watch.stats import LoopStats

HOUR = 3600.0
#: {leaf: what sets it} of a continuous loop.
_SET_BY_ARGUMENTS = {
    "task_id": "LoopConfig.configs",
    "save_dir": "the argument save_dir",
    "selfplay_games": "LoopConfig.selfplay_games_per_iteration",
    "engine": "LoopConfig.selfplay_engine",
}


def run_continuous(
    config: LoopConfig | None = None,
    save_dir: str | Path = "runs",
    *,
    leaves: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
    wiring: PipelineWiring | None = None,
    reporter: Reporter | None = None,
) -> LoopStats:
    """Runs a continuous loop until it is stopped; returns what it has done.

    Args:
        config: what it does; without it, what a LoopConfig does, with the games of the last such loop in the folder.
        save_dir: the folder of all pipelines.
        leaves: {leaf: value} of the configuration of all games, but for those that the other arguments set.
        words: the same as flags of a command line.
        wiring: from `wire_pipeline_events`.
        reporter: receives what is shown.

    Raises:
        UnsupportedEnvironmentError: a game cannot be played.
        ConfigError: a leaf is wrong, or `force` is set where a master loop runs.
        RunError: another continuous loop runs in the folder, or it cannot be written.
    """
    folder = Path(save_dir)
    config = config or LoopConfig(last_games(folder, CONTINUOUS) or LoopConfig().configs)
    check_games(config.configs)
    return run_games(config, folder, _games_of(config, folder, leaves or {}, words), wiring, reporter)


def run_games(
    config: LoopConfig,
    folder: Path,
    chosen: Mapping[tuple[str, int], SelfPlayConfig],
    wiring: PipelineWiring | None = None,
    reporter: Reporter | None = None,
) -> LoopStats:
    """`run_continuous` of games whose configurations are made. Raises as that does."""
    _check_folder(folder, chosen)
    if config.force:
        refuse_force(folder)
    rules = LoopRules(BreakerRule(config.max_consecutive_failures, config.failure_backoff_seconds))
    with opened_loop(CONTINUOUS, folder, chosen, rules, wiring or wire_pipeline_events(), reporter) as opened:
        policy = ContinuousPolicy(config, folder, opened.runners, opened.services)
        limits = LoopLimits(config.max_iterations, config.max_consecutive_failures)
        loop = LoopEngine(policy, opened.runners, opened.services, limits)
        with threads(CONTINUOUS, opened, loop.stats.as_dict):
            loop.run()
    return loop.stats


def _games_of(
    config: LoopConfig, folder: Path, leaves: Mapping[str, Any], words: Sequence[str]
) -> dict[tuple[str, int], SelfPlayConfig]:
    """The configuration of each game of a continuous loop."""
    if problems := owned_problems("leaves", leaves, _SET_BY_ARGUMENTS):
        raise ConfigError(problems, "leave it out of the leaves")
    set_here = {**games.leaves_of(config), "save_dir": str(folder), **leaves}
    given = games.layer_of_words(words)
    return {(name, players): games.game_config(name, players, set_here, given) for name, players in config.configs}


def _check_folder(folder: Path, chosen: Mapping[tuple[str, int], SelfPlayConfig]) -> None:
    """Raises ConfigError if a flag has moved a game out of the folder of the loop.

    The loop would then look for ever for what another folder has.
    """
    for (name, _), config in chosen.items():
        if Path(found := config.checkpointing.save_dir) != folder:
            what = f"--save-dir: {name} would be in {found}, and the loop is in {folder}"
            raise ConfigError(what, "leave it out, and give the folder to the loop")


def run_master(
    config: UnifiedLoopConfig,
    *,
    words: Sequence[str] = (),
    wiring: PipelineWiring | None = None,
    reporter: Reporter | None = None,
) -> LoopStats:
    """Runs a master loop until it is stopped; returns what it has done.

    Args:
        config: what it does.
        words: flags of the configurations of all games.
        wiring: from `wire_pipeline_events`; without one, `training.auto_trigger` decides.
        reporter: receives what is shown.

    Raises:
        UnsupportedEnvironmentError: a game cannot be played.
        ConfigError: a leaf is wrong.
        RunError: another master loop runs in the folder, or it cannot be written.
    """
    commands, health = config.hooks.on_event, config.health
    _check_sections(config)
    chosen = _games_of_master(config, words)
    wiring = wiring or wire_pipeline_events(config.training.auto_trigger)
    folder, rules = Path(config.loop.save_dir), _rules_of_master(config)
    with opened_loop(MASTER, folder, chosen, rules, wiring, reporter) as opened:
        policy = MasterPolicy(config, opened.runners, opened.services)
        limits = LoopLimits(config.loop.max_iterations, health.max_consecutive_failures)
        loop = LoopEngine(policy, opened.runners, opened.services, limits)
        _recover(opened)  # so that no command is run for an older event
        hooks = HookThreads(opened.services.log, commands, opened.services.reporter)

        def status() -> dict[str, Any]:
            return loop.stats.as_dict() | {"hooks": hooks.report()}

        with threads(MASTER, opened, status), hooks:
            loop.run()
    return loop.stats


def _rules_of_master(config: UnifiedLoopConfig) -> LoopRules:
    health = config.health
    return LoopRules(
        BreakerRule(health.max_consecutive_failures, health.failure_backoff_seconds),
        StageLimits(config.training.max_data_age_hours * HOUR, health.min_free_disk),
        WatchRule(**dataclasses.asdict(config.watch)),
        config.retention,
    )


def _check_sections(config: UnifiedLoopConfig) -> None:
    """Raises ConfigError with all that is wrong in sections that only a loop which starts can check."""
    checks = (
        lambda: check_game_leaves(config),
        lambda: check_hooks(config.hooks.on_event),
        lambda: check_plateau_hook(config.plateau_hook),
    )
    check_all(checks)


def _games_of_master(config: UnifiedLoopConfig, words: Sequence[str]) -> dict[tuple[str, int], SelfPlayConfig]:
    """The configuration of each game of a master loop."""
    section = config.loop
    set_here = {"selfplay_games": section.selfplay_games, "engine": section.engine, "save_dir": section.save_dir}
    set_here["min_samples"] = config.training.min_samples_to_trigger
    given = games.layer_of_words(words)
    chosen = {
        game: games.game_config(*game, set_here | leaves_of(config, *game), given) for game in games_of(section.games)
    }
    _check_folder(Path(section.save_dir), chosen)
    return chosen


def _recover(opened: OpenedLoop) -> None:
    """Adds the events that are missing. Of a game that cannot be read the loop says so."""
    for runner in opened.runners:
        with contextlib.suppress(CheckpointError, RunError, OSError):
            runner.recover()
