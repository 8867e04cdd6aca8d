"""The continuous loop: games take turns, an iteration each, for as long as it is let; it defers to a master loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.errors import CheckpointError, ConfigError, RunError, StoixError
from stoix_like.selfplay.iterations.due import Step
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import LoopServices, Outcome
from stoix_like.selfplay.pipeline.progress import Interrupted
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.lines import iteration_line
from stoix_like.selfplay.watch.stats import LoopState, LoopStats

KEEP_WINDOWS, KEEP_CANDIDATES, KEEP_EVENT_DAYS = 2.0, 16, 90.0  # as the master loop's defaults
DAY = 24.0 * 3600.0
_RETRY_SECONDS = 10.0  # after files between two iterations could not be read
_LEAST_WAIT = 1.0  # seconds, so that a loop in which all games wait does not spin


class ContinuousLoop:
    """The loop over games that were made ready.

    Args:
        config: what it does.
        save_dir: the folder of all pipelines.
        runners: its games.
        services: that they share.
    """

    def __init__(
        self, config: LoopConfig, save_dir: Path, runners: Sequence[GameRunner], services: LoopServices
    ) -> None:
        self.config, self.save_dir, self.runners, self._services = config, save_dir, runners, services
        self.stats = LoopStats(start_time=services.clock.now())
        self._noted: dict[str, str] = {}  # by game, what it was said to wait for
        self._errors = 0  # in a row, of no game
        self._events_removed = 0.0  # when, in seconds since 1970

    def run(self) -> None:
        """Runs until it is stopped, or has made its iterations."""
        waiting = dict[str, Outcome]()  # by game, since something was done last
        turn = 0
        with contextlib.suppress(Interrupted):
            while not (self._services.stop.is_set or self._is_over()):
                runner = self.runners[turn % len(self.runners)]
                turn += 1
                try:
                    self._defer()
                    outcome = self._turn(runner)
                except (CheckpointError, RunError, OSError) as error:  # a lock or the database, for a moment
                    self._note_error(error)
                    continue
                self._errors = 0
                waiting = {**waiting, runner.game: outcome} if outcome.kind == "waits" else {}
                if not waiting and not self._is_over():
                    seconds = self.config.iteration_cooldown_seconds
                    self._services.reporter.progress(f"the next iteration begins in {seconds:g} s" if seconds else "")
                    self._wait(LoopState.COOLING_DOWN, self.config.iteration_cooldown_seconds)
                elif len(waiting) == len(self.runners):
                    self._wait_for_all([*waiting.values()])
                    waiting = {}
        self.stats.interrupted = not self._is_over()
        self._enter(LoopState.STOPPED)

    def _note_error(self, error: Exception) -> None:
        """Says an error that is of no game, and waits: after some in a row, as a loop that is not healthy."""
        self._services.reporter.warning(f"it is tried again in {_RETRY_SECONDS:g} s: {error}")
        self._errors += 1
        self.stats.last_error = str(error)
        is_bad = self._errors >= self.config.max_consecutive_failures
        self._wait(LoopState.ERROR if is_bad else LoopState.IDLE, _RETRY_SECONDS)

    def _is_over(self) -> bool:
        return 0 < self.config.max_iterations <= self.stats.total_iterations

    def _turn(self, runner: GameRunner) -> Outcome:
        """What came of an iteration of a game, or of what is left of it."""
        began = self._services.clock.monotonic()
        self.stats.current_config = runner.game
        try:
            outcome = runner.may_look() or self._iterate(runner)
        except (Interrupted, ConfigError):  # a stop, or `force`
            raise
        except Exception as error:  # of files that are read between stages
            outcome = runner.failed_to_look(error)
        finally:
            self._services.stop.go_on()  # a time-out that no stage has seen
        if outcome.kind == "waits":
            self._note_waiting(f"{runner.game}: {outcome.stage} waits: {outcome.reason}", runner.game)
            runner.clean_if_full(KEEP_WINDOWS, KEEP_CANDIDATES)
            return outcome
        self._noted.pop(runner.game, None)
        stats = self.stats
        stats.total_iterations += 1
        stats.last_config_trained, stats.last_iteration_time = runner.game, self._services.clock.monotonic() - began
        if outcome.kind == "failed":
            stats.failed_iterations += 1
            stats.consecutive_failures += 1
            stats.last_error = f"{runner.game}: {outcome.stage}: {outcome.reason}"
        else:
            stats.successful_iterations += 1
            stats.consecutive_failures = 0
            self._services.reporter.info(iteration_line(runner.layout))
            runner.clean(KEEP_WINDOWS, KEEP_CANDIDATES)
            self._remove_events()
        return outcome

    def _note_waiting(self, text: str, game: str) -> None:
        """Says what a game waits for, once."""
        if self._noted.get(game) != text:
            self._services.reporter.note(text)
        self._noted[game] = text

    def _remove_events(self) -> None:
        """Once a day, old events."""
        now = self._services.clock.now()
        if not 0.0 <= now - self._events_removed < DAY:
            self._events_removed = now
            with contextlib.suppress(StoixError):  # the database is busy: tomorrow
                self._services.log.remove_before(now - KEEP_EVENT_DAYS * DAY)

    def _iterate(self, runner: GameRunner) -> Outcome:
        """Runs the stages that are due, until the iteration is finished, or one fails or waits."""
        stop = self._services.stop
        runner.recover()
        runner.due()
        runner.looked()
        while True:
            _, step = runner.due()
            self._enter_stage(runner, step)  # before its programs are compiled
            if (held := runner.take_up()) is not None:
                return held
            _, step = runner.due()
            is_selfplay = self._enter_stage(runner, step)
            if is_selfplay:
                stop.set_deadline(None)
            elif not stop.has_deadline:
                stop.set_deadline(time.monotonic() + self.config.pipeline_timeout_seconds)
            if (outcome := runner.run_due()).kind != "ran":
                return outcome
            self._defer()

    def _enter_stage(self, runner: GameRunner, step: Step) -> bool:
        """Whether the stage is self-play."""
        is_selfplay, self.stats.current_config = step.stage == "selfplay", runner.game
        self._enter(LoopState.RUNNING_SELFPLAY if is_selfplay else LoopState.WAITING_PIPELINE)
        return is_selfplay

    def _defer(self) -> None:
        """Waits while a master loop runs.

        Raises ConfigError if the loop was told never to, and Interrupted if it is stopped meanwhile.
        """
        while presence.is_unified_loop_running(self.save_dir):
            if self.config.force:
                refuse_force(self.save_dir)
            self._services.stop.go_on()  # a time-out that no stage has seen
            if self.stats.current_state is not LoopState.DEFERRED:
                self._services.reporter.note(
                    f"a master loop runs in {self.save_dir}: this loop waits until it has ended"
                )
                self._services.reporter.progress("")
            self._wait(LoopState.DEFERRED, self.config.defer_check_interval_seconds)
            if self._services.stop.is_set:
                raise Interrupted(LoopState.DEFERRED.value)
        if self.stats.current_state is LoopState.DEFERRED:
            self._services.reporter.note("the master loop has ended: this loop goes on")
            self._enter(LoopState.IDLE)

    def _wait_for_all(self, waiting: Sequence[Outcome]) -> None:
        """Waits until one of the games may go on."""
        retries = [outcome.retry_at for outcome in waiting if outcome.retry_at is not None]
        state = LoopState.ERROR if len(retries) == len(waiting) else LoopState.IDLE
        pause = max(self.config.iteration_cooldown_seconds, _LEAST_WAIT)
        if len(retries) == len(waiting):
            pause = max(min(retries) - self._services.clock.now(), _LEAST_WAIT)
        self._wait(state, pause)

    def _wait(self, state: LoopState, seconds: float) -> None:
        self._enter(state)
        self.stats.current_config = None
        self._services.stop.wait(seconds, self._services.clock)

    def _enter(self, state: LoopState) -> None:
        self.stats.current_state = state


def refuse_force(save_dir: Path) -> None:
    """Raises ConfigError if a master loop runs in the folder."""
    if presence.is_unified_loop_running(save_dir):
        what = f"--force: a master loop runs in {save_dir}, and two loops cannot own one folder"
        raise ConfigError(what, "give another --save-dir, or leave out --force: this loop then waits for that one")
