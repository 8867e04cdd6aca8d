"""Work of a game in a loop, and what came of it: kept by the breaker, logged and reported; the loop goes on."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import Any

from stoix_like.errors import LockedError, StoixError
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.storage.os_errors import storage_error
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.events import derive, kinds
from stoix_like.selfplay.events.breaker import open_text, retry_at
from stoix_like.selfplay.events.kinds import PipelineEvent
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.loops.services import LoopServices, Outcome

#: What breakers call beginning an iteration, reading the files of a game, and looking whether a plateau hook is due.
BEGIN, LOOK, PLATEAU_HOOK = "begin", "look", "plateau_hook"


def failure_text(error: Exception, reporter: Reporter) -> str:
    """What was wrong, in one line. The traceback of a bug is reported before; the system's errors are no bugs."""
    known = storage_error(error) if isinstance(error, OSError) else error
    if isinstance(known, StoixError):
        return known.line
    reporter.warning("".join(traceback.format_exception(error)))
    return repr(error)


class Attempts:
    """What a game of a loop has tried.

    Args:
        layout: of the game.
        services: of the loop.
    """

    def __init__(self, layout: Layout, services: LoopServices) -> None:
        self._layout, self._services = layout, services

    @property
    def _game(self) -> str:
        return self._layout.root.name

    def held(self, stage: str) -> Outcome | None:
        """That a breaker is open, and until when; None if the stage may be tried."""
        services = self._services
        if services.breakers.acquire(self._game, stage, services.clock.now()):
            return None
        breaker = services.breakers.read(self._game, stage)
        return Outcome("waits", stage, open_text(breaker), retry_at(breaker))

    def attempt(self, number: int, stage: str, work: Callable[[], object | None]) -> Outcome:
        """What came of running a stage. Raises Interrupted if a signal or a stop ended it.

        `work` returns None if it found nothing to do: what is due is then looked for again.
        """
        services = self._services
        try:
            if work() is None:
                services.breakers.release(self._game, stage)
                return Outcome("ran", stage)
        except LockedError as error:
            services.breakers.release(self._game, stage)
            return Outcome("waits", stage, error.what)
        except Interrupted:
            services.breakers.release(self._game, stage)
            if not services.stop.go_on():
                raise
            return self.failed(number, stage, "it did not end in time")
        except Exception as error:
            return self.raised(number, stage, error)
        finally:
            services.reporter.progress("")  # it is no longer that far
        return self._succeeded(number, stage)

    def _succeeded(self, number: int, stage: str) -> Outcome:
        """Closes the breaker, and emits the events. If they cannot be made, the stage has failed."""
        services = self._services
        try:
            is_finished = stage != BEGIN and begin.next_iteration(self._layout) > number
            events = derive.events_of(self._layout, number, services.watch)
        except Exception as error:
            return self.raised(number, stage, error)
        try:
            services.breakers.succeed(self._game, stage)
            self.append(events)
        except StoixError as error:  # the disk is full: they are emitted when the game is looked at again
            services.reporter.warning(error.line)
        return Outcome("finished" if is_finished else "ran", stage)

    def cannot_look(self, error: Exception, what: str = LOOK) -> Outcome:
        """Notes that the files of the game cannot be read."""
        number = 0
        with contextlib.suppress(OSError):
            number = self._layout.last_iteration()
        return self.raised(number, what, error)

    def looked(self, what: str = LOOK) -> None:
        """Notes that they can."""
        self._services.breakers.succeed(self._game, what)

    def do(self, name: str, work: Callable[[], object]) -> Outcome:
        """What came of work that is no stage, under the lock of the game. A failure is reported, and counted nowhere.

        Raises Interrupted if a signal or a stop ended it.
        """
        services, text = self._services, "it did not end in time"
        try:
            with begin.work_lock(self._layout):
                work()
            return Outcome("ran", name)
        except Interrupted:
            if not services.stop.go_on():
                raise
            services.reporter.warning(f"{self._game}: {name} did not end in time")
        except Exception as error:
            text = failure_text(error, services.reporter)
            services.reporter.warning(f"{self._game}: {name} failed: {text}")
        finally:
            services.reporter.progress("")
        return Outcome("failed", name, text)

    def raised(self, number: int, stage: str, error: Exception) -> Outcome:
        """Notes a failure; one that no user can cause with its traceback."""
        return self.failed(number, stage, failure_text(error, self._services.reporter))

    def failed(self, number: int, stage: str, error: str) -> Outcome:
        """Notes a failure, in the breaker and as events."""
        services = self._services
        services.reporter.warning(f"{self._game}: {stage} of iteration {number} failed: {error}")
        retry = None
        try:
            breaker = services.breakers.fail(self._game, stage, services.clock.now(), error)
            retry = retry_at(breaker)
            self.emit_failure(number, stage, error, is_open=breaker.opened > 0)
        except StoixError as problem:  # the disk is full, or there is no pipeline that an event could name
            services.reporter.warning(problem.line)
        return Outcome("failed", stage, error, retry)

    def emit_failure(self, number: int, stage: str, error: str, *, is_open: bool) -> None:
        """Tells that a stage, or a plateau hook, has failed."""
        services, run = self._services, ""
        with contextlib.suppress(StoixError, OSError):
            run = derive.pipeline_run(self._layout)
        part = services.log.count(self._game, number, kinds.StageFailed.kind) + 1
        base: dict[str, Any] = {"game": self._game, "iteration": number, "run": run, "part": part}
        base["time"] = services.clock.now()
        state = "open" if is_open else "closed"
        events: list[PipelineEvent] = [kinds.StageFailed(**base, failed_stage=stage, error=error, breaker=state)]
        if stage == "train":
            events.append(kinds.TrainingFailed(**base, error=error))
        self.append(events)

    def append(self, events: list[PipelineEvent]) -> None:
        """Adds events to the log, and delivers them."""
        for event in self._services.log.append(events):
            if isinstance(event, kinds.PlateauDetected):
                gained = f"champions have gained {event.gain:.0f} Elo in {event.iterations} iterations"
                self._services.reporter.note(f"{self._game}: a plateau after iteration {event.iteration}: {gained}")
            elif isinstance(event, kinds.RegressionDetected):
                below = f"the last {event.iterations} candidates lie {event.drop:.0f} Elo below the champion"
                self._services.reporter.note(f"{self._game}: {below}")
        self._services.router.dispatch()
