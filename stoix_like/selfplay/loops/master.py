"""The master loop: all that a folder of pipelines needs, one thing at a time, in the one process that owns the device.

Stages that are due come first, then evaluations for the report, then self-play of the game that has had the least time
for its weight. When everything waits, a game plays more games than its iteration needs, within a budget.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence

from stoix_like.config.sections.master_loop import UnifiedLoopConfig
from stoix_like.errors import CheckpointError, RunError, StoixError
from stoix_like.selfplay.events.cadence import Cadence
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.iterations.due import Step
from stoix_like.selfplay.loops import plateau
from stoix_like.selfplay.loops.attempts import LOOK, PLATEAU_HOOK, failure_text
from stoix_like.selfplay.loops.game_shares import GameWeights
from stoix_like.selfplay.loops.plateau import run_if_due
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import LoopServices, Outcome
from stoix_like.selfplay.pipeline.progress import Interrupted
from stoix_like.selfplay.ratings import shadow, tournament
from stoix_like.selfplay.tuning import curriculum
from stoix_like.selfplay.watch.lines import iteration_line
from stoix_like.selfplay.watch.stats import MasterStats

IDLE_SECONDS = 10.0  # between two looks when everything waits
RETRY_SECONDS = 300.0  # before a plateau hook whose result could not be kept, or an evaluation, is started again


class MasterLoop:
    """The loop over games that were made ready.

    Args:
        config: what it does.
        runners: its games.
        services: that they share.
        cadence: what is done from time to time, and when it was done last.
    """

    def __init__(
        self, config: UnifiedLoopConfig, runners: Sequence[GameRunner], services: LoopServices, cadence: Cadence
    ) -> None:
        self.config, self._services, self._cadence = config, services, cadence
        self._runners = {runner.game: runner for runner in runners}
        self.stats = MasterStats(seconds=dict.fromkeys(self._runners, 0.0))
        self._weights = GameWeights(config.curriculum, self._runners, services, cadence)
        self._blocked: set[str] = set()  # games that wait for a breaker, at the last look
        self._has_evaluated = False  # for the report, since the last stage or batch

    def run(self) -> None:
        """Runs until it is stopped, or has made its iterations."""
        with contextlib.suppress(Interrupted):
            while not (self._services.stop.is_set or self._is_over()):
                try:
                    is_idle = not self._do_something()
                    self.stats.errors_in_a_row = 0
                except (StoixError, OSError) as error:  # the disk is full, the database busy, a folder gone
                    self._services.reporter.warning(f"it is tried again in {IDLE_SECONDS:g} s: {error}")
                    self.stats.errors_in_a_row += 1
                    self.stats.last_error, is_idle = str(error), True
                if is_idle:
                    self._wait()
        self.stats.interrupted = not self._is_over()
        self._enter("stopped", None)

    def _wait(self) -> None:
        """Waits a little: a breaker, a disk or a person may let something go on."""
        is_bad = (
            self._blocked == self._runners.keys()
            or self.stats.errors_in_a_row >= self.config.health.max_consecutive_failures
        )
        self._enter("error" if is_bad else "idle", None)
        self._services.stop.wait(IDLE_SECONDS, self._services.clock)

    def _is_over(self) -> bool:
        return 0 < self.config.loop.max_iterations <= self.stats.total_iterations

    def _do_something(self) -> bool:
        """Does the first thing that is due; False if everything waits."""
        self._blocked.clear()
        if not self.stats.weights:
            self._weights.take_up()
            self._note_weights()
        if self._poll() or self._run_stages() or self._run_plateau_hook():
            self._has_evaluated = False
            return True
        if not self._has_evaluated and self._evaluate():  # one at a time, however many are due: games go on
            self._has_evaluated = True
            return True
        self._has_evaluated = False
        return self._play() or self._play_more()

    def _look(self, runner: GameRunner) -> tuple[int, Step] | None:
        """(the iteration, the stage that is due) of a game; None if its files cannot be read, which is tried later."""
        if (outcome := runner.may_look()) is not None:
            self._note_waiting(runner, outcome)
            return None
        try:
            runner.recover()
            found = runner.due()
        except Exception as error:
            self._note_failure(runner, runner.failed_to_look(error))
            return None
        runner.looked()
        if self.stats.waiting.get(runner.game, "").startswith(f"{LOOK}:"):
            del self.stats.waiting[runner.game]
        return found

    def _poll(self) -> bool:
        """Takes in the shards of other folders, for the iterations that have not exported yet."""
        interval = self.config.data_ingestion.poll_interval_seconds
        for runner in self._runners.values():
            if runner.configured.selfplay.sync_from and self._cadence.is_due(
                f"poll/{runner.game}", interval, at_first=True
            ):
                self._cadence.done(f"poll/{runner.game}")
                if self._look(runner) is not None and runner.has_disk:
                    self._work(runner, "sync", runner.poll)
        return False

    def _run_stages(self) -> bool:
        """Runs one stage that is due, of the first game in which nothing holds it back."""
        for runner in self._runners.values():
            if (found := self._look(runner)) is None:
                continue
            _, step = found
            if step.stage != "selfplay" and self._run_due(runner, step):
                return True
        return False

    def _run_due(self, runner: GameRunner, step: Step) -> bool:
        """Whether the stage was run, or has failed; not if something holds it back."""
        outcome = self._timed(runner, step.stage, runner.run_due)
        if outcome.kind == "waits":
            self._note_waiting(runner, outcome)
            runner.clean_if_full(self.config.retention.keep_windows, self.config.retention.keep_candidates)
            return False
        self.stats.waiting.pop(runner.game, None)
        if outcome.kind == "failed":
            self._note_failure(runner, outcome)
        elif outcome.kind == "finished":
            self.stats.successful_iterations += 1
            self._services.reporter.info(iteration_line(runner.layout))
            self._weights.rebalance()
            self._note_weights()
            self._clean(runner)
        return True

    def _note_failure(self, runner: GameRunner, outcome: Outcome) -> None:
        self.stats.waiting.pop(runner.game, None)
        self.stats.failed_iterations += 1
        self.stats.last_error = f"{runner.game}: {outcome.stage}: {outcome.reason}"

    def _note_waiting(self, runner: GameRunner, outcome: Outcome) -> None:
        """Keeps what a game waits for, and says it if it is something else."""
        text = f"{outcome.stage}: {outcome.reason}"
        if self.stats.waiting.get(runner.game) != text:
            self._services.reporter.note(f"{runner.game} waits: {text}")
        self.stats.waiting[runner.game] = text
        if outcome.retry_at is not None:
            self._blocked.add(runner.game)

    def _timed(self, runner: GameRunner, state: str, work: Callable[[], Outcome]) -> Outcome:
        """What came of work for a game, whose time is counted."""
        self._enter(state, runner.game)
        stop, began = self._services.stop, self._services.clock.monotonic()
        stop.set_deadline(time.monotonic() + self.config.health.stage_timeout_seconds)
        try:
            return work()
        finally:
            stop.go_on()  # a time-out that the stage has not seen
            self.stats.seconds[runner.game] += self._services.clock.monotonic() - began

    def _run_plateau_hook(self) -> bool:
        """Starts the function of one game whose champions no longer gain, if one is enabled."""
        options = self.config.plateau_hook
        for runner in self._runners.values() if options.enabled else ():
            name = f"plateau_hook/{runner.game}"
            if self._look(runner) is None or not self._cadence.is_due(name, RETRY_SECONDS, at_first=True):
                continue
            if runner.may_look(PLATEAU_HOOK) is not None:
                continue
            try:
                last = plateau.due_iteration(runner.layout, self._services.watch) if runner.has_disk else None
            except (CheckpointError, RunError, OSError) as error:
                self._note_failure(runner, runner.failed_to_look(error, PLATEAU_HOOK))
                self._cadence.done(name)
                continue
            runner.looked(PLATEAU_HOOK)
            if last is None:
                continue
            self._services.reporter.note(f"{runner.game}: {options.function} is started after iteration {last}")
            search = functools.partial(run_if_due, runner, options, last, self._services.watch)
            if self._work(runner, PLATEAU_HOOK, search):
                return True
            self._cadence.done(name)  # its result could not be kept, or another process works on the game
        return False

    def _evaluate(self) -> bool:
        """Plays one evaluation for the report that is due."""
        section = self.config.evaluation
        intervals = {"shadow": section.shadow_interval_seconds, "tournament": section.full_tournament_interval_seconds}
        for runner in self._runners.values():
            for kind, interval in intervals.items():
                name = f"{kind}/{runner.game}"
                is_ready = runner.layout.champion.is_file() and runner.has_disk
                if is_ready and self._cadence.is_due(name, interval):
                    self._evaluate_once(name, runner, kind, interval)
                    return True
        return False

    def _evaluate_once(self, name: str, runner: GameRunner, kind: str, interval: float) -> None:
        """Plays an evaluation that is due: at the next look again if it is stopped, soon if it fails, and an interval
        later if the process is killed, perhaps by it.
        """
        last = self._cadence.last(name)
        self._cadence.done(name)
        try:
            if not self._work(runner, kind, functools.partial(self._report, runner, kind)):
                self._cadence.done(name, self._services.clock.now() - interval + min(RETRY_SECONDS, interval))
        except Interrupted:
            self._cadence.done(name, last)
            raise

    def _report(self, runner: GameRunner, kind: str) -> None:
        section = self.config.evaluation
        if kind == "shadow":
            shadow.shadow_evaluation(runner.pipeline, section.shadow_openings)
        else:
            each = runner.config.promotion.pairs_per_look
            sizes = section.tournament_candidates, section.tournament_openings
            tournament.play_tournament(runner.pipeline, *sizes, each)

    def _work(self, runner: GameRunner, state: str, work: Callable[[], object]) -> bool:
        """Does what is no stage, and counts its time; False if that fails, which is reported."""
        self._enter(state, runner.game)
        stop, began = self._services.stop, self._services.clock.monotonic()
        stop.set_deadline(time.monotonic() + self.config.health.stage_timeout_seconds)
        try:
            with begin.work_lock(runner.layout):
                work()
            return True
        except Interrupted:
            if not stop.go_on():
                raise
            self._services.reporter.warning(f"{runner.game}: {state} did not end in time")
        except Exception as error:
            text = failure_text(error, self._services.reporter)
            self._services.reporter.warning(f"{runner.game}: {state} failed: {text}")
        finally:
            stop.go_on()
            self._services.reporter.progress("")
            self.stats.seconds[runner.game] += self._services.clock.monotonic() - began
        return False

    def _play(self) -> bool:
        """Runs self-play of the game whose turn it is."""
        waiting = dict(self.stats.seconds)
        while waiting:
            runner = self._runners[curriculum.next_game(waiting, self.stats.weights)]
            del waiting[runner.game]
            found = self._look(runner)
            if found is not None and found[1].stage == "selfplay" and self._run_due(runner, found[1]):
                return True
        return False

    def _play_more(self) -> bool:
        """Plays a batch more for an iteration that waits to be trained on."""
        for runner in self._runners.values():
            if self._look(runner) is None or not runner.may_play_more(1 + self.config.loop.idle_batches):
                continue
            if self._timed(runner, "selfplay", runner.play_more).kind != "waits":
                return True
        return False

    def _note_weights(self) -> None:
        self.stats.weights, self.stats.on_plateau = self._weights.values, self._weights.on_plateau

    def _clean(self, runner: GameRunner) -> None:
        section = self.config.retention
        runner.clean(section.keep_windows, section.keep_candidates)
        day = 24.0 * 3600.0
        if self._cadence.is_due("events", day, at_first=True):
            self._cadence.done("events")
            self._services.log.remove_before(self._services.clock.now() - section.keep_event_days * day)

    def _enter(self, state: str, game: str | None) -> None:
        self.stats.current_state, self.stats.current_config = state, game
