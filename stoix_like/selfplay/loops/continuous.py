"""The continuous loop: games take turns, an iteration each, for as long as it is let; it defers to a master loop."""

from __future__ import annotations

import functools
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.errors import ConfigError
from stoix_like.selfplay.loops.engine import Looker, Pause, Plan, Task
from stoix_like.selfplay.loops.runner import GameRunner, Look
from stoix_like.selfplay.loops.services import LoopServices, Outcome
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.stats import LoopState, LoopStats

_LEAST_WAIT = 1.0  # seconds, so that a loop in which all games wait does not spin


class ContinuousPolicy:
    """An iteration of each game in turn.

    Args:
        config: what the loop does.
        save_dir: the folder of all pipelines.
        runners: its games.
        services: that they share.
    """

    def __init__(
        self, config: LoopConfig, save_dir: Path, runners: Sequence[GameRunner], services: LoopServices
    ) -> None:
        self.config, self.save_dir, self._runners, self._services = config, save_dir, runners, services
        self._turn = 0  # of which game
        self._deadline: float | None = None  # of the stages after self-play, which share their time

    def plan(self, look: Looker, _: LoopStats) -> Plan:
        """An iteration of the game whose turn it is, or of the next one that does not wait, and a pause."""
        yield from self._deferred()
        waiting = []
        for runner in self._in_turn():
            outcome = yield from self._iteration(runner, look)
            if outcome.kind != "waits":
                pause = self.config.iteration_cooldown_seconds
                yield Pause(LoopState.COOLING_DOWN, pause, f"the next iteration begins in {pause:g} s" if pause else "")
                return
            waiting.append(outcome)
        yield self._pause_of_all(waiting)

    def _in_turn(self) -> Iterator[GameRunner]:
        """Every game once. The turn passes on with each, so that a plan that is begun anew goes on with the next."""
        for _ in self._runners:
            self._turn += 1
            yield self._runners[(self._turn - 1) % len(self._runners)]

    def _iteration(self, runner: GameRunner, look: Looker) -> Generator[Task | Pause, Outcome, Outcome]:
        """Runs the stages that are due, until the iteration is finished, or one fails or waits."""
        self._deadline = None
        while not isinstance(found := look(runner), Outcome):
            outcome = yield self._task(runner, found)
            if outcome.kind != "ran":
                return outcome
            if outcome.is_late:
                self._deadline = 0.0  # nothing is left of it
            yield from self._deferred()
        return found

    def _task(self, runner: GameRunner, found: Look) -> Task:
        stage, work = found.step.stage, runner.run if runner.is_taken(found) else runner.take_up
        is_selfplay = stage == "selfplay"
        state = LoopState.RUNNING_SELFPLAY if is_selfplay else LoopState.WAITING_PIPELINE
        if is_selfplay:
            self._deadline = None
        elif self._deadline is None:
            self._deadline = time.monotonic() + self.config.pipeline_timeout_seconds
        elif time.monotonic() >= self._deadline:
            failed = functools.partial(runner.attempts.failed, found.number, stage, _NO_TIME_LEFT)
            return Task(runner, state, failed, None)
        return Task(runner, state, functools.partial(work, found), self._deadline)

    def _deferred(self) -> Generator[Task | Pause, Outcome, None]:
        """Waits while a master loop runs. Raises ConfigError if the loop was told never to."""
        was_deferred = False
        while presence.is_unified_loop_running(self.save_dir):
            if self.config.force:
                refuse_force(self.save_dir)
            self._deadline = None
            if not was_deferred:
                self._services.reporter.note(
                    f"a master loop runs in {self.save_dir}: this loop waits until it has ended"
                )
            was_deferred = True
            yield Pause(LoopState.DEFERRED, self.config.defer_check_interval_seconds)
        if was_deferred:
            self._services.reporter.note("the master loop has ended: this loop goes on")

    def _pause_of_all(self, waiting: Sequence[Outcome]) -> Pause:
        """Until one of the games may go on."""
        retries = [outcome.retry_at for outcome in waiting if outcome.retry_at is not None]
        pause = self.config.iteration_cooldown_seconds
        if len(retries) == len(waiting):
            pause = min(retries) - self._services.clock.now()
        return Pause(LoopState.IDLE, max(pause, _LEAST_WAIT))


_NO_TIME_LEFT = "the stages before it have taken all the time"


def refuse_force(save_dir: Path) -> None:
    """Raises ConfigError if a master loop runs in the folder."""
    if presence.is_unified_loop_running(save_dir):
        what = f"--force: a master loop runs in {save_dir}, and two loops cannot own one folder"
        raise ConfigError(what, "give another --save-dir, or leave out --force: this loop then waits for that one")
