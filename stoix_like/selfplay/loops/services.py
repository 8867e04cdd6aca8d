"""What the games of a loop share, and what came of a look at one of them. Imports no JAX."""

from __future__ import annotations

from typing import Literal, NamedTuple

from stoix_like.config.sections.master_loop import RetentionConfig
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.selfplay.events.breaker import Breakers
from stoix_like.selfplay.events.cadence import Cadence
from stoix_like.selfplay.events.clock import Clock
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.events.router import EventRouter
from stoix_like.selfplay.events.wiring import PipelineWiring
from stoix_like.selfplay.loops.stop import LoopStop


class StageLimits(NamedTuple):
    """What holds a stage back, without being a failure.

    Attributes:
        max_data_age: of its newest games, in seconds; beyond, it plays another batch.
        min_free_disk: in gigabytes; below, nothing is played.
    """

    max_data_age: float = 7.0 * 24.0 * 3600.0
    min_free_disk: float = 1.0


class LoopServices(NamedTuple):
    """What the games of a loop share."""

    log: EventLog
    router: EventRouter
    breakers: Breakers
    wiring: PipelineWiring
    reporter: Reporter
    stop: LoopStop
    clock: Clock
    limits: StageLimits
    watch: WatchRule
    cadence: Cadence
    retention: RetentionConfig


class Outcome(NamedTuple):
    """What came of a look at a game.

    Attributes:
        kind: ran: a stage is done; finished: and with it the iteration; failed; waits: for what `reason` says.
        stage: that ran, failed or waits.
        reason: of a failure, or what is waited for.
        retry_at: when a breaker allows the next trial, in seconds since 1970; None if none is open.
        is_late: whether the time of a stage that is done was over, which the stage has not seen.
    """

    kind: Literal["ran", "finished", "failed", "waits"]
    stage: str
    reason: str = ""
    retry_at: float | None = None
    is_late: bool = False
