"""One game of a loop: runs the stage that is due, and tells what happened.

What is due is read from disk each time, so a loop may stop between any two stages, and another one may go on.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import traceback
from collections.abc import Callable
from typing import Any

from stoix_like.config.selfplay_section import SelfPlayConfig
from stoix_like.errors import ConfigError, LockedError, RunError, StoixError
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay import foreign, iteration, store
from stoix_like.selfplay.due import Needs, Step, due_step, num_batches
from stoix_like.selfplay.folders import Layout
from stoix_like.selfplay.iteration import IterationOptions
from stoix_like.selfplay.iteration_start import read_start
from stoix_like.selfplay.orchestration import derive, events, history, retention
from stoix_like.selfplay.orchestration.breaker import open_text, retry_at
from stoix_like.selfplay.orchestration.events import PipelineEvent
from stoix_like.selfplay.orchestration.reports import held_text
from stoix_like.selfplay.orchestration.retention import RetentionRule
from stoix_like.selfplay.orchestration.services import LoopServices, Outcome
from stoix_like.selfplay.orchestration.timing import LoopStop
from stoix_like.selfplay.pipeline import Pipeline
from stoix_like.selfplay.progress import Interrupted
from stoix_like.selfplay.tuned_leaves import with_tuned_leaves

GIGABYTE = 1e9
#: What breakers call beginning an iteration, reading the files of a game, and looking whether a plateau hook is due.
BEGIN, LOOK, PLATEAU_HOOK = "begin", "look", "plateau_hook"


class GameRunner:
    """The pipeline of a game in a loop.

    Args:
        configured: of its pipeline; leaves that were found while it ran take the place of some.
        layout: its folder.
        services: of the loop.
    """

    def __init__(self, configured: SelfPlayConfig, layout: Layout, services: LoopServices) -> None:
        self.configured, self.layout, self._services = configured, layout, services
        self._taken: int | None = None  # the iteration that this process has begun, or taken up

    @property
    def game(self) -> str:
        """Such as connect_four_2p."""
        return self.layout.root.name

    @property
    def stop(self) -> LoopStop:
        """What ends its stages."""
        return self._services.stop

    @functools.cached_property
    def config(self) -> SelfPlayConfig:
        """The configuration of iterations that begin now. Raises CheckpointError if found leaves cannot be read."""
        return with_tuned_leaves(self.configured, self.layout)

    def read_tuned_leaves(self) -> None:
        """Reads the configuration anew, and compiles its programs again if it has changed."""
        self.__dict__.pop("config", None)
        if "pipeline" in self.__dict__ and self.pipeline.config != self.config:
            del self.pipeline

    @functools.cached_property
    def pipeline(self) -> Pipeline:
        """Its programs, from the first use on."""
        reporter = self._services.reporter

        def show(line: str) -> None:
            reporter.progress(f"{self.game}: {line}")

        show("its programs are compiled, each at its first use")
        return Pipeline(self.config, reporter._replace(progress=show), self._services.stop)

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
        if (outcome := self.take_up()) is not None:
            return outcome
        number, step = self.due()
        if (held := self._held_back(step.stage)) is not None:
            return held
        return self._attempt(number, step.stage, lambda: self._run(number, step))

    def take_up(self) -> Outcome | None:
        """Begins the iteration that is due, or the next one, if this process has not yet; what came of it otherwise.

        Raises Interrupted if a signal or a stop came between two stages.
        """
        number, step = self.due()
        if self._services.stop.is_set:
            if not self._services.stop.go_on():
                raise Interrupted(step.stage)
            return self._failed(number, step.stage, "the stages before it have taken all the time")
        if self._taken == number:
            return None
        if (held := self._held_by_breaker(BEGIN)) is not None:
            return held
        outcome = self._attempt(number, BEGIN, lambda: self._begin(number))
        return None if outcome.kind == "ran" else outcome

    def _attempt(self, number: int, stage: str, work: Callable[[], object]) -> Outcome:
        """What came of running a stage, of which the breaker and the log are told."""
        services = self._services
        try:
            work()
        except LockedError as error:
            services.breakers.release(self.game, stage)
            return Outcome("waits", stage, error.what)
        except Interrupted:
            services.breakers.release(self.game, stage)
            if not services.stop.go_on():
                raise
            return self._failed(number, stage, "it did not end in time")
        except Exception as error:
            return self.failed(number, stage, error)
        finally:
            services.reporter.progress("")  # it is no longer that far
        return self._succeeded(number, stage)

    def _succeeded(self, number: int, stage: str) -> Outcome:
        """Closes the breaker, tells, and asks for the next stage."""
        services = self._services
        is_finished = stage != BEGIN and iteration.next_iteration(self.layout) > number
        try:
            services.breakers.succeed(self.game, stage)
            self._append(derive.events_of(self.layout, number, services.watch))
        except RunError as error:  # the disk is full: it is told when the game is looked at again
            services.reporter.warning(error.line)
        if not is_finished and stage != BEGIN:
            services.wiring.requests.add(self.game, number)
        return Outcome("finished" if is_finished else "ran", stage)

    def may_look(self, what: str = LOOK) -> Outcome | None:
        """Why the files of the game are not looked at now: they could not be read, and are looked at again later."""
        return self._held_by_breaker(what)

    def failed_to_look(self, error: Exception, what: str = LOOK) -> Outcome:
        """Notes that the files of the game cannot be read."""
        number = 0
        with contextlib.suppress(OSError):
            number = self.layout.last_iteration()
        return self.failed(number, what, error)

    def looked(self, what: str = LOOK) -> None:
        """Notes that they can."""
        self._services.breakers.succeed(self.game, what)

    def failed(self, number: int, stage: str, error: Exception) -> Outcome:
        """Notes a failure; one that no user can cause with its traceback."""
        if not isinstance(error, StoixError):
            self._services.reporter.warning("".join(traceback.format_exception(error)))
        text = error.line if isinstance(error, StoixError) else repr(error)
        return self._failed(number, stage, text)

    def clean(self, keep_windows: float, keep_candidates: int) -> None:
        """Removes the files that nothing will read again, unless another process works on the game."""
        try:
            rule = RetentionRule(int(keep_windows * self.config.alphazero.replay_buffer_size), keep_candidates)
            with contextlib.suppress(LockedError), iteration.work_lock(self.layout):
                retention.clean(self.layout, rule)
        except (StoixError, OSError) as error:  # it is tried again after the next iteration
            self._services.reporter.warning(f"{self.game}: old files are not removed: {error}")

    def clean_if_full(self, keep_windows: float, keep_candidates: int) -> None:
        """`clean`, if there is too little free disk to run a stage: nothing else would give it back."""
        with contextlib.suppress(OSError):
            if not self.has_disk:
                self.clean(keep_windows, keep_candidates)

    def poll(self) -> None:
        """Takes in new shards of other folders, if they still count for the present iteration.

        Called under the lock of the game.
        """
        number, step = self.due()
        is_synced = read_manifest(self.layout.stage(number, "sync")) is not None
        if not (is_synced and step.stage in ("selfplay", "export") and foreign.has_unseen(self.pipeline)):
            return
        store.sync_stage(self.pipeline, number, again=True)
        self._append(derive.events_of(self.layout, number, self._services.watch))

    def may_play_more(self, most_batches: int) -> bool:
        """Whether an iteration that waits to be trained on has room for another batch of games."""
        number, step = self.due()
        played = read_manifest(self.layout.stage(number, "selfplay"))
        is_waiting = step.stage in ("sync", "export", "train") and played is not None
        return is_waiting and num_batches(played) < most_batches and self.has_disk

    def play_more(self) -> Outcome:
        """Plays another batch into the present iteration."""
        number, step = self.due()
        more = Step("selfplay", step.batches + 1)
        if (held := self._held_back(more.stage)) is not None:
            return held
        return self._attempt(number, more.stage, lambda: iteration.run_step(self.pipeline, number, more))

    def _run(self, number: int, step: Step) -> None:
        if step.stage == "train":
            self._append([derive.training_started(self.layout, number, self._services.clock.now())])
        iteration.run_step(self.pipeline, number, step)

    def _held_back(self, stage: str) -> Outcome | None:
        """Why a stage is not run now, for a reason that is no failure."""
        if not self._services.wiring.triggers.allows(stage):
            return Outcome("waits", stage, held_text(self.layout, self.configured.environment.task_id))
        if (free := self._free_disk()) < self._services.gates.min_free_disk:
            return Outcome("waits", stage, f"{free:.1f} GB of disk are free")
        return self._held_by_breaker(stage)

    def _held_by_breaker(self, stage: str) -> Outcome | None:
        services = self._services
        if services.breakers.acquire(self.game, stage, services.clock.now()):
            return None
        breaker = services.breakers.read(self.game, stage)
        return Outcome("waits", stage, open_text(breaker), retry_at(breaker))

    @property
    def has_disk(self) -> bool:
        """Whether there is enough free disk to play, or to search."""
        return self._free_disk() >= self._services.gates.min_free_disk

    def _free_disk(self) -> float:
        """In gigabytes, where the folder is, or will be."""
        folder = next(path for path in (self.layout.root, *self.layout.root.absolute().parents) if path.exists())
        return shutil.disk_usage(folder).free / GIGABYTE

    def _begin(self, number: int) -> None:
        """Begins an iteration, or takes up the begun one: the next one instead, if its settings were others."""
        self.read_tuned_leaves()  # another loop may have tuned some
        if read_start(self.layout, number) is None:
            derive.derive_missing(self._services.log, self.layout, self._services.watch)
            boost = history.exploration_boost(history.results(self.layout))
            self._taken = iteration.begin_iteration(self.pipeline, IterationOptions(exploration_boost=boost))
            return
        try:
            self._taken = iteration.begin_iteration(self.pipeline)
        except ConfigError as error:
            self._services.reporter.note(f"{self.game}: {error.problems[0]}; iteration {number + 1} is begun instead")
            self._taken = iteration.begin_iteration(self.pipeline, IterationOptions(new_iteration=True))

    def _failed(self, number: int, stage: str, error: str) -> Outcome:
        """Notes a failure, in the breaker and as events."""
        services = self._services
        services.reporter.warning(f"{self.game}: {stage} of iteration {number} failed: {error}")
        retry = None
        try:
            breaker = services.breakers.fail(self.game, stage, services.clock.now(), error)
            retry = retry_at(breaker)
            self.tell_failure(number, stage, error, is_open=breaker.opened > 0)
        except StoixError as problem:  # the disk is full, or there is no pipeline that an event could name
            services.reporter.warning(problem.line)
        return Outcome("failed", stage, error, retry)

    def tell_failure(self, number: int, stage: str, error: str, *, is_open: bool) -> None:
        """Tells that a stage, or a plateau hook, has failed."""
        services, run = self._services, ""
        with contextlib.suppress(StoixError, OSError):
            run = derive.pipeline_run(self.layout)
        part = services.log.count(self.game, number, events.StageFailed.kind) + 1
        base: dict[str, Any] = {"game": self.game, "iteration": number, "run": run, "part": part}
        base["time"] = services.clock.now()
        state = "open" if is_open else "closed"
        told: list[PipelineEvent] = [events.StageFailed(**base, failed_stage=stage, error=error, breaker=state)]
        if stage == "train":
            told.append(events.TrainingFailed(**base, error=error))
        self._append(told)

    def _append(self, told: list[PipelineEvent]) -> None:
        for event in self._services.log.append(told):
            if isinstance(event, events.PlateauDetected):
                gained = f"champions have gained {event.gain:.0f} Elo in {event.iterations} iterations"
                self._services.reporter.note(f"{self.game}: a plateau after iteration {event.iteration}: {gained}")
            elif isinstance(event, events.RegressionDetected):
                below = f"the last {event.iterations} candidates lie {event.drop:.0f} Elo below the champion"
                self._services.reporter.note(f"{self.game}: {below}")
        self._services.router.dispatch()
