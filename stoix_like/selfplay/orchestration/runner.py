"""One game of a loop: runs the stage that is due, and tells what happened.

What is due is read from disk each time, so a loop may stop between any two stages, and another one may go on.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import traceback
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from stoix_like.config.selfplay_section import SelfPlayConfig
from stoix_like.errors import ConfigError, LockedError, StoixError
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay import iteration, store
from stoix_like.selfplay.due import Needs, Step, due_step, num_batches
from stoix_like.selfplay.folders import Layout
from stoix_like.selfplay.iteration import IterationOptions
from stoix_like.selfplay.iteration_start import read_start
from stoix_like.selfplay.orchestration import derive, events, history, retention
from stoix_like.selfplay.orchestration.breaker import Breakers, retry_at
from stoix_like.selfplay.orchestration.event_log import EventLog
from stoix_like.selfplay.orchestration.events import PipelineEvent
from stoix_like.selfplay.orchestration.history import WatchRule
from stoix_like.selfplay.orchestration.retention import RetentionRule
from stoix_like.selfplay.orchestration.router import EventRouter
from stoix_like.selfplay.orchestration.timing import Clock, LoopStop
from stoix_like.selfplay.orchestration.wiring import PipelineWiring
from stoix_like.selfplay.pipeline import Pipeline
from stoix_like.selfplay.progress import Interrupted

GIGABYTE = 1e9


class Gates(NamedTuple):
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
    gates: Gates
    watch: WatchRule


class Outcome(NamedTuple):
    """What came of a look at a game.

    Attributes:
        kind: ran: a stage is done; finished: and with it the iteration; failed; waits: for what `reason` says.
        stage: that ran, failed or waits.
        reason: of a failure, or what is waited for.
        retry_at: when a breaker allows the next trial, in seconds since 1970; None if none is open.
    """

    kind: Literal["ran", "finished", "failed", "waits"]
    stage: str
    reason: str = ""
    retry_at: float | None = None


class GameRunner:
    """The pipeline of a game in a loop.

    Args:
        config: of its pipeline.
        layout: its folder.
        services: of the loop.
    """

    def __init__(self, config: SelfPlayConfig, layout: Layout, services: LoopServices) -> None:
        self.config, self.layout, self._services = config, layout, services
        self._is_first = True  # no iteration has been begun or taken up by this process

    @property
    def game(self) -> str:
        """Such as connect_four_2p."""
        return self.layout.root.name

    @functools.cached_property
    def pipeline(self) -> Pipeline:
        """Its programs, from the first use on."""
        return Pipeline(self.config, self._services.reporter, self._services.stop)

    def recover(self) -> list[PipelineEvent]:
        """Adds the events that a killed process did not write, and asks for the stage that is due."""
        found = derive.derive_missing(self._services.log, self.layout, self._services.watch)
        number = iteration.next_iteration(self.layout)
        if read_start(self.layout, number) is not None:
            self._services.wiring.requests.add(self.game, number)
        return found

    def due(self) -> tuple[int, Step]:
        """(the iteration that is worked on, the stage that is due); of an iteration that was not begun, selfplay."""
        number = iteration.next_iteration(self.layout)
        min_samples, max_age = self.config.selfplay.min_samples, self._services.gates.max_data_age
        step = due_step(self.layout, number, Needs(min_samples, max_age, self._services.clock.now()))
        return number, step or Step("selfplay")

    def run_due(self) -> Outcome:
        """Runs the stage that is due, if nothing holds it back. Raises Interrupted if a signal or a stop ended it."""
        number, step = self.due()
        if (held := self._held_back(step)) is not None:
            return held
        return self._attempt(number, step.stage, lambda: self._run(number))

    def _attempt(self, number: int, stage: str, work: Callable[[], tuple[int, str]]) -> Outcome:
        """What came of running a stage, of which the breaker and the log are told."""
        services = self._services
        try:
            number, ran = work()
        except LockedError as error:
            services.breakers.release(self.game, stage)
            return Outcome("waits", stage, error.what)
        except Interrupted:
            services.breakers.release(self.game, stage)
            if not services.stop.go_on():
                raise
            return self._failed(number, stage, "it did not end in time")
        except Exception as error:
            if not isinstance(error, StoixError):
                services.reporter.warning(traceback.format_exc())
            text = f"{error.what} ({error.hint})" if isinstance(error, StoixError) else repr(error)
            return self._failed(number, stage, text)
        services.breakers.succeed(self.game, stage)
        self._append(derive.events_of(self.layout, number, services.watch))
        return Outcome("finished" if iteration.next_iteration(self.layout) > number else "ran", ran)

    def is_blocked(self) -> bool:
        """Whether the stage that is due waits for its breaker."""
        _, step = self.due()
        return self._services.breakers.state(self.game, step.stage, self._services.clock.now()) == "open"

    def clean(self, keep_windows: float, keep_candidates: int) -> None:
        """Removes the files that nothing will read again, unless another process works on the game."""
        rule = RetentionRule(int(keep_windows * self.config.alphazero.replay_buffer_size), keep_candidates)
        with contextlib.suppress(LockedError), iteration.work_lock(self.layout):
            retention.clean(self.layout, rule)

    def may_poll(self) -> bool:
        """Whether the shards of other folders would still count for the present iteration."""
        number, step = self.due()
        is_synced = read_manifest(self.layout.stage(number, "sync")) is not None
        return is_synced and step.stage in ("selfplay", "export")

    def poll(self) -> None:
        """Takes in the shards of other folders. Called under the lock of the game."""
        number, _ = self.due()
        store.sync_stage(self.pipeline, number, again=True)
        self._append(derive.events_of(self.layout, number, self._services.watch))

    def may_play_more(self, most_batches: int) -> bool:
        """Whether an iteration that waits to be trained on has room for another batch of games."""
        number, step = self.due()
        played = read_manifest(self.layout.stage(number, "selfplay"))
        is_waiting = step.stage in ("sync", "export", "train") and played is not None
        return (
            is_waiting
            and num_batches(played) < most_batches
            and self._free_disk() >= self._services.gates.min_free_disk
        )

    def play_more(self) -> Outcome:
        """Plays another batch into the present iteration."""
        number, step = self.due()
        more = Step("selfplay", step.batches + 1)
        if (held := self._held_back(more)) is not None:
            return held

        def work() -> tuple[int, str]:
            iteration.run_step(self.pipeline, number, more)
            return number, more.stage

        return self._attempt(number, more.stage, work)

    def _run(self, number: int) -> tuple[int, str]:
        """(the iteration, the stage) that was run; of the next iteration, if the begun one had other settings."""
        number = self._begun(number)
        _, step = self.due()
        if step.stage == "train":
            self._append([derive.training_started(self.layout, number, self._services.clock.now())])
        iteration.run_step(self.pipeline, number, step)
        return number, step.stage

    def _held_back(self, step: Step) -> Outcome | None:
        """Why the stage is not run now, for a reason that is no failure."""
        services, stage = self._services, step.stage
        if not services.wiring.triggers.allows(stage):
            return Outcome("waits", stage, "it is not triggered by itself")
        if stage == "selfplay" and (free := self._free_disk()) < services.gates.min_free_disk:
            return Outcome("waits", stage, f"{free:.1f} GB of disk are free")
        if not services.breakers.acquire(self.game, stage, services.clock.now()):
            breaker = services.breakers.read(self.game, stage)
            return Outcome("waits", stage, f"its breaker is open: {breaker.error}", retry_at(breaker))
        return None

    def _free_disk(self) -> float:
        """In gigabytes, where the folder is, or will be."""
        folder = next(path for path in (self.layout.root, *self.layout.root.absolute().parents) if path.exists())
        return shutil.disk_usage(folder).free / GIGABYTE

    def _begun(self, number: int) -> int:
        """The iteration that is worked on, which is begun now if it was not."""
        if read_start(self.layout, number) is None:
            boost = history.exploration_boost(history.results(self.layout))
            number = iteration.begin_iteration(self.pipeline, IterationOptions(exploration_boost=boost))
        elif self._is_first:
            number = self._take_up(number)
        self._is_first = False
        return number

    def _take_up(self, number: int) -> int:
        """The iteration that goes on: the begun one, or the next one if its settings were others."""
        try:
            return iteration.begin_iteration(self.pipeline)
        except ConfigError as error:
            self._services.reporter.note(f"{self.game}: {error.problems[0]}; iteration {number + 1} is begun instead")
            return iteration.begin_iteration(self.pipeline, IterationOptions(new_iteration=True))

    def _failed(self, number: int, stage: str, error: str) -> Outcome:
        """Notes a failure, in the breaker and as events."""
        services, now = self._services, self._services.clock.now()
        services.reporter.warning(f"{self.game}: {stage} of iteration {number} failed: {error}")
        breaker = services.breakers.fail(self.game, stage, now, error)
        if self.layout.champion.is_file():  # else there is no pipeline that an event could name
            part = services.log.count(self.game, number, events.StageFailed.kind) + 1
            run = derive.pipeline_run(self.layout)
            base: dict[str, Any] = {"game": self.game, "iteration": number, "run": run, "time": now, "part": part}
            state = "open" if breaker.opened else "closed"
            told: list[PipelineEvent] = [events.StageFailed(**base, failed_stage=stage, error=error, breaker=state)]
            if stage == "train":
                told.append(events.TrainingFailed(**base, error=error))
            self._append(told)
        return Outcome("failed", stage, error, retry_at(breaker))

    def _append(self, told: list[PipelineEvent]) -> None:
        self._services.log.append(told)
        self._services.router.dispatch()
