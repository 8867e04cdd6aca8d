"""The engine of loops: it runs what a policy names next, counts what comes of it, and goes on after every failure.

A policy is a plan: a generator that yields tasks and pauses, and is sent what came of each. It begins anew when it has
ended, or when something between two tasks has failed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, Protocol

from stoix_like.errors import CheckpointError, RunError, StoixError
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.loops.attempts import LOOK
from stoix_like.selfplay.loops.housekeeping import clean, clean_if_full
from stoix_like.selfplay.loops.runner import GameRunner, Look
from stoix_like.selfplay.loops.services import LoopServices, Outcome
from stoix_like.selfplay.watch.lines import iteration_line
from stoix_like.selfplay.watch.stats import LoopState, LoopStats

RETRY_SECONDS = 10.0  # after something between two tasks has failed: the disk is full, the database busy, a folder gone
DAY = 24.0 * 3600.0


class Task(NamedTuple):
    """Work for a game.

    Attributes:
        runner: of the game.
        state: what the loop is doing meanwhile.
        work: does it, and says what came of it.
        deadline: when it has to be done, on the machine's monotonic clock; None for never.
        is_counted: whether its failure is one of the loop's, and its waiting is said.
    """

    runner: GameRunner
    state: str
    work: Callable[[], Outcome]
    deadline: float | None
    is_counted: bool = True


class Pause(NamedTuple):
    """Nothing is done for so many seconds."""

    state: LoopState
    seconds: float
    progress: str = ""  # what is shown meanwhile


#: What came of a task is sent back, and after a pause that it "ran".
Plan = Generator[Task | Pause, Outcome, None]
#: What the files of a game say: the stage that is due, or why they are not looked at now.
Looker = Callable[[GameRunner], Look | Outcome]


class LoopPolicy(Protocol):
    """What a loop does next."""

    def plan(self, look: Looker, stats: LoopStats) -> Plan:
        """The tasks and pauses of a round, in their order. What is due in a game is asked of `look`."""


class LoopLimits(NamedTuple):
    """When a loop ends, and when it is not healthy.

    Attributes:
        max_iterations: finished or failed, after which it ends; 0 for none.
        max_consecutive_failures: of no game, after which its state is ERROR.
    """

    max_iterations: int
    max_consecutive_failures: int


class LoopEngine:
    """A loop over games that were made ready.

    Args:
        policy: names what is done next.
        runners: the games.
        services: that they share.
        limits: when it ends.
    """

    def __init__(
        self, policy: LoopPolicy, runners: Sequence[GameRunner], services: LoopServices, limits: LoopLimits
    ) -> None:
        self.policy, self._services, self._limits = policy, services, limits
        names = [runner.game for runner in runners]
        self.stats = LoopStats(seconds=dict.fromkeys(names, 0.0), start_time=services.clock.now())
        self._looks: dict[str, Look | Outcome] = {}  # by game, since something was done last
        self._blocked: set[str] = set()  # games that wait for a breaker, in this round
        self._began: dict[str, float] = {}  # by game, its iteration, on the monotonic clock

    def run(self) -> None:
        """Runs until it is stopped, or has made its iterations."""
        with contextlib.suppress(Interrupted):
            while not self._must_end:
                try:
                    self._run_round()
                except (CheckpointError, RunError, OSError) as error:
                    self._note_error(error)
        self.stats.interrupted = not self._is_over
        self._enter(LoopState.STOPPED)

    @property
    def _is_over(self) -> bool:
        return 0 < self._limits.max_iterations <= self.stats.total_iterations

    @property
    def _must_end(self) -> bool:
        return self._services.stop.is_set or self._is_over

    def _run_round(self) -> None:
        self._looks.clear()
        self._blocked.clear()
        with contextlib.closing(self.policy.plan(self._look, self.stats)) as plan:
            what = next(plan, None)
            while what is not None and not self._must_end:
                what = _after(plan, self._wait(what) if isinstance(what, Pause) else self._do(what))
        self.stats.errors_in_a_row = 0

    def _look(self, runner: GameRunner) -> Look | Outcome:
        """What is due in a game: its files are read once, until something is done or a round begins."""
        if runner.game not in self._looks:
            self._looks[runner.game] = self._read(runner)
        return self._looks[runner.game]

    def _read(self, runner: GameRunner) -> Look | Outcome:
        """What is due in a game. What cannot be read is a failure, and looked at again later."""
        if (held := runner.attempts.held(LOOK)) is not None:
            self._note_waiting(runner, held)
            clean_if_full(runner, self._services)  # the full disk may be what keeps the files from being read
            return held
        try:
            runner.recover()
            found = runner.due()
        except Exception as error:
            failed = runner.attempts.cannot_look(error)
            self._note_failure(runner, failed)
            return failed
        runner.attempts.looked()
        if self.stats.waiting.get(runner.game, "").startswith(f"{LOOK}:"):
            del self.stats.waiting[runner.game]
        return found

    def _do(self, task: Task) -> Outcome:
        """What came of a task, whose time is counted."""
        runner, stop, clock = task.runner, self._services.stop, self._services.clock
        self._looks.clear()
        self._enter(task.state, runner.game)
        began = clock.monotonic()
        stop.set_deadline(task.deadline)
        try:
            outcome = task.work()
        finally:
            is_late = stop.go_on()  # a time-out that the task has not seen
            self.stats.seconds[runner.game] += clock.monotonic() - began
        if task.is_counted:
            if outcome.kind != "waits":
                self._began.setdefault(runner.game, began)
            self._note(runner, outcome)
        return outcome._replace(is_late=is_late)

    def _note(self, runner: GameRunner, outcome: Outcome) -> None:
        """Counts what came of a stage."""
        if outcome.kind == "waits":
            self._note_waiting(runner, outcome)
            clean_if_full(runner, self._services)
            return
        self.stats.waiting.pop(runner.game, None)
        if outcome.kind == "failed":
            self._note_failure(runner, outcome)
        elif outcome.kind == "finished":
            self.stats.successful_iterations += 1
            self.stats.consecutive_failures = 0
            self._note_end(runner)
            self._services.reporter.info(iteration_line(runner.layout))
            clean(runner, self._services)
            self._remove_events()

    def _note_failure(self, runner: GameRunner, outcome: Outcome) -> None:
        self.stats.waiting.pop(runner.game, None)
        self.stats.failed_iterations += 1
        self.stats.consecutive_failures += 1
        self.stats.last_error = f"{runner.game}: {outcome.stage}: {outcome.reason}"
        self._note_end(runner)

    def _note_end(self, runner: GameRunner) -> None:
        now = self._services.clock.monotonic()
        self.stats.last_config_trained = runner.game
        self.stats.last_iteration_time = now - self._began.pop(runner.game, now)

    def _note_waiting(self, runner: GameRunner, outcome: Outcome) -> None:
        """Keeps what a game waits for, and says it if it is something else."""
        text = f"{outcome.stage}: {outcome.reason}"
        if self.stats.waiting.get(runner.game) != text:
            self._services.reporter.note(f"{runner.game} waits: {text}")
        self.stats.waiting[runner.game] = text
        if outcome.retry_at is not None:
            self._blocked.add(runner.game)

    def _note_error(self, error: Exception) -> None:
        """Says an error of no game, and waits."""
        self._services.reporter.warning(f"it is tried again in {RETRY_SECONDS:g} s: {error}")
        self.stats.errors_in_a_row += 1
        self.stats.last_error = str(error)
        self._pause(LoopState.IDLE, RETRY_SECONDS)

    def _remove_events(self) -> None:
        """Once a day, old events."""
        services = self._services
        with contextlib.suppress(StoixError):  # the database is busy: after the next iteration
            if services.cadence.due_or_start("events", DAY, at_first=True):
                services.log.remove_before(services.clock.now() - services.retention.keep_event_days * DAY)
                services.cadence.done("events")

    def _wait(self, pause: Pause) -> Outcome:
        self._services.reporter.progress(pause.progress)
        self._pause(pause.state, pause.seconds)
        return Outcome("ran", pause.state)

    def _pause(self, state: LoopState, seconds: float) -> None:
        """Waits: a breaker, a disk or a person may let something go on."""
        is_bad = (
            self._blocked == self.stats.seconds.keys()
            or self.stats.errors_in_a_row >= self._limits.max_consecutive_failures
        )
        self._enter(LoopState.ERROR if state is LoopState.IDLE and is_bad else state)
        self._services.stop.wait(seconds, self._services.clock)

    def _enter(self, state: str, game: str | None = None) -> None:
        self.stats.current_state, self.stats.current_config = state, game


def _after(plan: Plan, outcome: Outcome) -> Task | Pause | None:
    """What the plan names after this has come of the task before; None if it has ended."""
    try:
        return plan.send(outcome)
    except StopIteration:
        return None
