"""Starts a loop: its presence, its database, its threads, and the games that it runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from stoix_like.config.checks.board_games import game_key
from stoix_like.config.checks.selfplay import owned_problems
from stoix_like.config.sections.continuous_loop import LoopConfig, check_games
from stoix_like.config.sections.master_loop import UnifiedLoopConfig, check_game_leaves, games_of, leaves_of
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.envs.boards.registry import make_game
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.console.reporter import Reporter, lossy
from stoix_like.runtime.console.text import plural
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.training.stopping import stopping_on_signals
from stoix_like.selfplay.events.breaker import BreakerRule, Breakers
from stoix_like.selfplay.events.cadence import Cadence
from stoix_like.selfplay.events.clock import Clock
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.events.router import EventRouter
from stoix_like.selfplay.events.user_commands import HookThreads, check_hooks
from stoix_like.selfplay.events.wiring import PipelineWiring, wire_pipeline_events
from stoix_like.selfplay.loops import games
from stoix_like.selfplay.loops.continuous import ContinuousLoop, refuse_force
from stoix_like.selfplay.loops.master import MasterLoop
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import Gates, LoopServices
from stoix_like.selfplay.loops.stop import LoopStop, StopWatcher
from stoix_like.selfplay.pipeline.game_bounds import check_bounds
from stoix_like.selfplay.tuning.registry import check_plateau_hook
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.lines import LatestProgress
from stoix_like.selfplay.watch.presence import CONTINUOUS, MASTER, Heartbeat
from stoix_like.selfplay.watch.stats import LoopStats, MasterStats

HOUR = 3600.0
#: {leaf: what sets it} of a continuous loop.
_SET_BY_ARGUMENTS = {
    "task_id": "LoopConfig.configs",
    "save_dir": "the argument save_dir",
    "selfplay_games": "LoopConfig.selfplay_games_per_iteration",
    "engine": "LoopConfig.selfplay_engine",
}


class LoopRules(NamedTuple):
    """The constants of a loop's services."""

    breaker: BreakerRule
    gates: Gates = Gates()
    watch: WatchRule = WatchRule()


class OpenedLoop(NamedTuple):
    """What a loop works with while it is present."""

    runners: list[GameRunner]
    services: LoopServices
    database: Database
    progress: LatestProgress


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
        config: what it does.
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
    config, folder = config or LoopConfig(), Path(save_dir)
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
    with _opened(CONTINUOUS, folder, chosen, rules, wiring or wire_pipeline_events(), reporter) as opened:
        loop = ContinuousLoop(config, folder, opened.runners, opened.services)

        def status() -> dict[str, Any]:
            return dataclasses.asdict(loop.stats) | {"current_state": loop.stats.current_state.value}

        with _threads(CONTINUOUS, opened, status):
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
) -> MasterStats:
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
    rules = LoopRules(
        BreakerRule(health.max_consecutive_failures, health.failure_backoff_seconds),
        Gates(config.training.max_data_age_hours * HOUR, health.min_free_disk),
        WatchRule(**dataclasses.asdict(config.watch)),
    )
    with _opened(MASTER, Path(config.loop.save_dir), chosen, rules, wiring, reporter) as opened:
        loop = MasterLoop(config, opened.runners, opened.services, Cadence(opened.database, opened.services.clock))
        _recover(opened)  # so that no command is run for what should have been told before
        hooks = HookThreads(opened.services.log, commands, opened.services.reporter)

        def status() -> dict[str, Any]:
            return vars(loop.stats) | {"total_iterations": loop.stats.total_iterations, "hooks": hooks.report()}

        with _threads(MASTER, opened, status), hooks:
            loop.run()
    return loop.stats


def _check_sections(config: UnifiedLoopConfig) -> None:
    """Raises ConfigError with all that is wrong in sections that only a loop which starts can check."""
    checks = (
        lambda: check_game_leaves(config),
        lambda: check_hooks(config.hooks.on_event),
        lambda: check_plateau_hook(config.plateau_hook),
    )
    _check_all(checks)


def _check_all(checks: Sequence[Callable[[], None]]) -> None:
    """Raises ConfigError with the problems of all checks."""
    problems, hints = list[str](), list[str]()
    for check in checks:
        try:
            check()
        except ConfigError as error:
            problems += error.problems
            hints.append(error.hint)
    if problems:
        raise ConfigError(problems, hints[0] if len(hints) == 1 else "docs/self-play-loops.md describes every leaf")


def _games_of_master(config: UnifiedLoopConfig, words: Sequence[str]) -> dict[tuple[str, int], SelfPlayConfig]:
    """The configuration of each game of a master loop."""
    section = config.loop
    set_here = {"selfplay_games": section.selfplay_games, "engine": section.engine, "save_dir": section.save_dir}
    set_here["min_samples"] = config.training.min_samples_to_trigger
    given = games.layer_of_words(words)
    chosen = {
        game: games.game_config(*game, set_here | leaves_of(config, game[0]), given) for game in games_of(section.games)
    }
    _check_folder(Path(section.save_dir), chosen)
    return chosen


@contextlib.contextmanager
def _opened(
    name: str,
    folder: Path,
    chosen: Mapping[tuple[str, int], SelfPlayConfig],
    rules: LoopRules,
    wiring: PipelineWiring,
    reporter: Reporter | None,
) -> Iterator[OpenedLoop]:
    """A loop's games and services, while it is present in the folder."""
    first = next(iter(chosen.values()))
    progress, stop, clock = LatestProgress(lossy(reporter or Reporter())), LoopStop(), Clock()
    with (
        stopping_on_signals(stop),
        presence.present(folder, name),
        contextlib.closing(Database(folder)) as database,
    ):
        breakers, log = Breakers(database, rules.breaker), EventLog(database)
        notes = _taken_back(database, breakers, name)  # at once: a stop from here on is for this loop
        devices.select(first.hardware, first.logging)  # after the lock: whoever is refused takes no device
        _check_games(chosen)
        progress.reporter.info(_header_line(name, folder, chosen))
        for note in notes:
            progress.reporter.note(note)
        router = EventRouter(log, progress.reporter, wiring.subscriptions)
        services = LoopServices(log, router, breakers, wiring, progress.reporter, stop, clock, rules.gates, rules.watch)
        runners = [GameRunner(each, games.layout_of(folder, *game), services) for game, each in chosen.items()]
        yield OpenedLoop(runners, services, database, progress)


def _check_games(chosen: Mapping[tuple[str, int], SelfPlayConfig]) -> None:
    """Raises ConfigError if a game cannot be played with its leaves: no iteration could ever be begun."""
    _check_all([functools.partial(check_bounds, make_game(game_key(*game)), config) for game, config in chosen.items()])


def _taken_back(database: Database, breakers: Breakers, name: str) -> list[str]:
    """What a start by hand takes back: a stop, and the pauses of open breakers."""
    if not presence.is_by_hand():
        return []
    notes = [f"the {name} loop had been stopped, and is started again"] if presence.clear_stop(database, name) else []
    if (count := breakers.try_at_once()) > 0:
        notes.append(f"{count} {plural('breaker', count)} had opened: what failed is tried again at once")
    return notes


def _header_line(name: str, folder: Path, chosen: Mapping[tuple[str, int], SelfPlayConfig]) -> str:
    """The version, the device, the folder, the loop and its games."""
    parts = f"stoix_like {versions()['stoix_like']}", devices.describe_devices(jax.devices()[:1]), str(folder)
    return " · ".join((*parts, f"{name} loop", ", ".join(game_key(*game) for game in chosen)))


def _recover(opened: OpenedLoop) -> None:
    """Adds the events that are missing. Of a game that cannot be read the loop says so."""
    for runner in opened.runners:
        with contextlib.suppress(CheckpointError, RunError, OSError):
            runner.recover()


@contextlib.contextmanager
def _threads(name: str, opened: OpenedLoop, status: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """The heartbeat of a loop, and the look for a stop."""
    database, stop = opened.database, opened.services.stop

    def is_stopped() -> bool:
        return presence.is_orphan() or database.is_moved or presence.is_stopped(database, name)

    def beat() -> dict[str, Any]:
        return status() | {"progress": opened.progress.line, "is_late": stop.is_late}

    with Heartbeat(database, name, beat), StopWatcher(stop, is_stopped):
        yield
    if database.is_moved:
        what = f"{database.path} was moved away or removed, and the {name} loop has ended"
        raise RunError(what, "start it again: it makes a new one")
