"""The master loop: all that a folder of pipelines needs, one thing at a time, in the one process that owns the device.

Stages that are due come first, then matches for the report, then self-play of the game that has had the least time for
its share. When everything waits, a game plays more games than its iteration needs, within a budget.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator, Sequence

from stoix_like.config.sections.master_loop import UnifiedLoopConfig
from stoix_like.errors import CheckpointError, RunError
from stoix_like.selfplay.loops import plateau
from stoix_like.selfplay.loops.attempts import PLATEAU_HOOK
from stoix_like.selfplay.loops.engine import Looker, Pause, Plan, Task
from stoix_like.selfplay.loops.evaluations import ReportMatches
from stoix_like.selfplay.loops.game_shares import GameShares
from stoix_like.selfplay.loops.runner import GameRunner, Look
from stoix_like.selfplay.loops.services import LoopServices, Outcome
from stoix_like.selfplay.tuning import curriculum
from stoix_like.selfplay.watch.stats import LoopState, LoopStats

IDLE_SECONDS = 10.0  # between two looks when everything waits
RETRY_SECONDS = 300.0  # before a plateau hook whose result could not be kept is started again

#: Whether something was done, so that the round is over.
_Part = Generator[Task | Pause, Outcome, bool]


class MasterPolicy:
    """The most urgent thing first.

    Args:
        config: what the loop does.
        runners: its games.
        services: that they share.
    """

    def __init__(self, config: UnifiedLoopConfig, runners: Sequence[GameRunner], services: LoopServices) -> None:
        self.config, self._services = config, services
        self._runners = {runner.game: runner for runner in runners}
        self._shares = GameShares(config.curriculum, self._runners, services)
        self._matches = ReportMatches(config.evaluation, services)
        self._has_evaluated = False  # for the report, since the last stage or batch

    def plan(self, look: Looker, stats: LoopStats) -> Plan:
        """The first thing that is due, or a pause."""
        if not stats.weights:
            self._shares.take_up()
            self._note_shares(stats)
        yield from self._polls(look)
        if (yield from self._stages(look, stats)) or (yield from self._plateau_hooks(look)):
            self._has_evaluated = False
            return
        if not self._has_evaluated and (yield from self._evaluation()):  # one at a time, so that games go on
            self._has_evaluated = True
            return
        self._has_evaluated = False
        if (yield from self._self_play(look, stats)) or (yield from self._more_games(look)):
            return
        yield Pause(LoopState.IDLE, IDLE_SECONDS)

    def _task(self, runner: GameRunner, state: str, work: Callable[[], Outcome], *, is_counted: bool = True) -> Task:
        deadline = time.monotonic() + self.config.health.stage_timeout_seconds
        return Task(runner, state, work, deadline, is_counted)

    def _job(self, runner: GameRunner, name: str, work: Callable[[], object]) -> Task:
        """Work that is no stage."""
        return self._task(runner, name, functools.partial(runner.attempts.do, name, work), is_counted=False)

    def _polls(self, look: Looker) -> Generator[Task | Pause, Outcome, None]:
        """Takes in the shards of other folders, for the iterations that have not exported yet."""
        interval, cadence = self.config.data_ingestion.poll_interval_seconds, self._services.cadence
        for game, runner in self._runners.items():
            name = f"poll/{game}"
            if runner.configured.selfplay.sync_from and cadence.due_or_start(name, interval, at_first=True):
                cadence.done(name)
                if isinstance(look(runner), Look) and runner.has_disk:
                    yield self._job(runner, "sync", runner.poll)

    def _stages(self, look: Looker, stats: LoopStats) -> _Part:
        """Runs one stage that is due, of the first game in which nothing holds it back."""
        for runner in self._runners.values():
            if _is_due(look(runner), is_selfplay=False) and (yield from self._stage(runner, look, stats)):
                return True
        return False

    def _stage(self, runner: GameRunner, look: Looker, stats: LoopStats) -> _Part:
        """Runs the stage of a game that is due, or begins its iteration first; False if something holds it back."""
        while isinstance(found := look(runner), Look):
            is_taken = runner.is_taken(found)
            work = runner.run if is_taken else runner.take_up
            outcome = yield self._task(runner, found.step.stage, functools.partial(work, found))
            if outcome.kind == "finished":
                self._shares.rebalance()
                self._note_shares(stats)
            if is_taken or outcome.kind != "ran":
                return outcome.kind != "waits"
        return False

    def _self_play(self, look: Looker, stats: LoopStats) -> _Part:
        """Runs self-play of the game whose turn it is."""
        waiting = dict(stats.seconds)
        while waiting:
            runner = self._runners[curriculum.next_game(waiting, stats.weights)]
            del waiting[runner.game]
            if _is_due(look(runner), is_selfplay=True) and (yield from self._stage(runner, look, stats)):
                return True
        return False

    def _more_games(self, look: Looker) -> _Part:
        """Plays a batch more for an iteration that waits to be trained on."""
        for runner in self._runners.values():
            found = look(runner)
            if isinstance(found, Look) and runner.may_play_more(found, 1 + self.config.loop.idle_batches):
                outcome = yield self._task(
                    runner, "selfplay", functools.partial(runner.play_more, found), is_counted=False
                )
                if outcome.kind != "waits":
                    return True
        return False

    def _plateau_hooks(self, look: Looker) -> _Part:
        """Starts the function of one game whose champions no longer gain, if one is enabled."""
        options, cadence = self.config.plateau_hook, self._services.cadence
        for game, runner in self._runners.items() if options.plateau_hook else ():
            name = f"plateau_hook/{game}"
            if not isinstance(look(runner), Look) or not cadence.due_or_start(name, RETRY_SECONDS, at_first=True):
                continue
            if (last := (yield from self._plateau_of(runner, name))) is None:
                continue
            self._services.reporter.note(f"{game}: {options.plateau_function} is started after iteration {last}")
            search = functools.partial(plateau.run_if_due, runner, options, last, self._services.watch)
            if (yield self._job(runner, PLATEAU_HOOK, search)).kind == "ran":
                return True
            cadence.done(name)  # its result could not be kept, or another process works on the game
        return False

    def _plateau_of(self, runner: GameRunner, name: str) -> Generator[Task | Pause, Outcome, int | None]:
        """The iteration after which the function of a game is due; None if it is not, or that cannot be read."""
        if runner.attempts.held(PLATEAU_HOOK) is not None:
            return None
        try:
            last = plateau.due_iteration(runner.layout, self._services.watch) if runner.has_disk else None
        except (CheckpointError, RunError, OSError) as error:
            failed = functools.partial(runner.attempts.cannot_look, error, PLATEAU_HOOK)
            yield self._task(runner, PLATEAU_HOOK, failed)  # first: it gives back the permit that `held` has taken
            self._services.cadence.done(name)
            return None
        runner.attempts.looked(PLATEAU_HOOK)
        return last

    def _evaluation(self) -> _Part:
        """Plays one match for the report that is due."""
        for runner in self._runners.values():
            for kind in self._matches.due(runner):
                yield self._task(runner, kind, functools.partial(self._matches.play, runner, kind), is_counted=False)
                return True
        return False

    def _note_shares(self, stats: LoopStats) -> None:
        stats.weights, stats.on_plateau = self._shares.values, self._shares.on_plateau


def _is_due(found: Look | Outcome, *, is_selfplay: bool) -> bool:
    """Whether self-play is due in a game, or another stage."""
    return isinstance(found, Look) and (found.step.stage == "selfplay") == is_selfplay
