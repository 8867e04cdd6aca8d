"""A loop while it runs: its presence in the folder, its database, its threads, and its games made ready."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from stoix_like.config.checks.board_games import game_key
from stoix_like.config.sections.master_loop import RetentionConfig
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.envs.boards.registry import make_game
from stoix_like.errors import ConfigError, RunError
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
from stoix_like.selfplay.events.wiring import PipelineWiring
from stoix_like.selfplay.loops import games
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import LoopServices, StageLimits
from stoix_like.selfplay.loops.stop import LoopStop, StopWatcher
from stoix_like.selfplay.pipeline.game_bounds import check_bounds
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.last_games import STATUS_KEY
from stoix_like.selfplay.watch.lines import LatestProgress
from stoix_like.selfplay.watch.presence import Heartbeat


class LoopRules(NamedTuple):
    """The constants of a loop's services."""

    breaker: BreakerRule
    limits: StageLimits = StageLimits()
    watch: WatchRule = WatchRule()
    retention: RetentionConfig = RetentionConfig()


class OpenedLoop(NamedTuple):
    """What a loop works with while it is present."""

    runners: list[GameRunner]
    services: LoopServices
    database: Database
    progress: LatestProgress


def check_all(checks: Sequence[Callable[[], None]]) -> None:
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


@contextlib.contextmanager
def opened_loop(
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
        services = LoopServices(
            log,
            EventRouter(log, progress.reporter, wiring.subscriptions),
            breakers,
            wiring,
            progress.reporter,
            stop,
            clock,
            rules.limits,
            rules.watch,
            Cadence(database, clock),
            rules.retention,
        )
        runners = [GameRunner(each, games.layout_of(folder, *game), services) for game, each in chosen.items()]
        yield OpenedLoop(runners, services, database, progress)


def _check_games(chosen: Mapping[tuple[str, int], SelfPlayConfig]) -> None:
    """Raises ConfigError if a game cannot be played with its leaves: no iteration could ever be begun."""
    check_all([functools.partial(check_bounds, make_game(game_key(*game)), config) for game, config in chosen.items()])


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


@contextlib.contextmanager
def threads(name: str, opened: OpenedLoop, status: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """The heartbeat of a loop, and the look for a stop."""
    database, stop = opened.database, opened.services.stop

    def is_stopped() -> bool:
        return presence.is_orphan() or database.is_moved or presence.is_stopped(database, name)

    def beat() -> dict[str, Any]:
        said = {"progress": opened.progress.line, "is_late": stop.is_late}
        return status() | said | {STATUS_KEY: [runner.game for runner in opened.runners]}

    with Heartbeat(database, name, beat), StopWatcher(stop, is_stopped):
        yield
    if database.is_moved:
        what = f"{database.path} was moved away or removed, and the {name} loop has ended"
        raise RunError(what, "start it again: it makes a new one")
