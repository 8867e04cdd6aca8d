"""One game of a loop: runs the stage that is due, and emits its events.

What is due is read from disk each time, so a loop may stop between any two stages, and another one may go on.
"""

from __future__ import annotations

import functools
import shutil
from typing import NamedTuple

from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import ConfigError, LockedError
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.selfplay.events import derive, history
from stoix_like.selfplay.events.kinds import PipelineEvent
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.iteration_start import read_start
from stoix_like.selfplay.files.manifests import num_batches
from stoix_like.selfplay.files.tuned_leaves import with_tuned_leaves
from stoix_like.selfplay.iterations import begin, steps
from stoix_like.selfplay.iterations.begin import IterationOptions
from stoix_like.selfplay.iterations.due import WAITING, Needs, Step, due_step
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.loops.attempts import BEGIN, Attempts
from stoix_like.selfplay.loops.services import LoopServices, Outcome
from stoix_like.selfplay.loops.stop import LoopStop
from stoix_like.selfplay.pipeline import foreign
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages import sync
from stoix_like.selfplay.watch.lines import held_text

GIGABYTE = 1e9


class Look(NamedTuple):
    """What the files of a game say: the iteration that is worked on, and its stage that is due."""

    number: int
    step: Step


class GameRunner:
    """The pipeline of a game in a loop.

    Args:
        configured: of its pipeline; leaves that were found while it ran take the place of some.
        layout: its folder.
        services: of the loop.
    """

    def __init__(self, configured: SelfPlayConfig, layout: Layout, services: LoopServices) -> None:
        self.configured, self.layout, self._services = configured, layout, services
        self.attempts = Attempts(layout, services)
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

        return Pipeline(self.config, reporter._replace(progress=show), self._services.stop)

    def recover(self) -> list[PipelineEvent]:
        """Adds the events that a killed process did not write."""
        return derive.derive_missing(self._services.log, self.layout, self._services.watch)

    def due(self) -> Look:
        """The iteration that is worked on, and its stage that is due; of an iteration that was not begun, selfplay."""
        number = begin.next_iteration(self.layout)
        min_samples, max_age = self.config.selfplay.min_samples, self._services.limits.max_data_age
        step = due_step(self.layout, number, Needs(min_samples, max_age, self._services.clock.now()))
        return Look(number, step or Step("selfplay"))

    def is_taken(self, found: Look) -> bool:
        """Whether this process has begun the iteration, or taken it up."""
        return self._taken == found.number

    def take_up(self, found: Look) -> Outcome:
        """Begins the iteration, or takes it up; or the next one instead, if its settings were others."""
        if (held := self.attempts.held(BEGIN)) is not None:
            return held
        return self.attempts.attempt(found.number, BEGIN, lambda: self._begin(found.number))

    def run(self, found: Look) -> Outcome:
        """Runs the stage that is due, if nothing holds it back. Raises Interrupted if a signal or a stop ended it."""
        if (held := self._held_back(found.step.stage)) is not None:
            return held
        return self.attempts.attempt(found.number, found.step.stage, lambda: self._run(found.number, found.step))

    def poll(self) -> None:
        """Takes in new shards of other folders, if they still count for the present iteration.

        Called under the lock of the game.
        """
        number, step = self.due()
        is_synced = read_manifest(self.layout.stage(number, "sync")) is not None
        if not (is_synced and step.stage in ("selfplay", "export") and foreign.has_unseen(self.pipeline)):
            return
        sync.sync_stage(self.pipeline, files_of(self.layout, number), again=True)
        self.attempts.append(derive.events_of(self.layout, number, self._services.watch))

    def may_play_more(self, found: Look, most_batches: int) -> bool:
        """Whether an iteration that waits to be trained on has room for another batch of games."""
        played = read_manifest(self.layout.stage(found.number, "selfplay"))
        is_waiting = found.step.stage in WAITING and played is not None
        return is_waiting and num_batches(played) < most_batches and self.has_disk

    def play_more(self, found: Look) -> Outcome:
        """Plays another batch into the iteration."""
        return self.run(found._replace(step=Step("selfplay", found.step.batches + 1)))

    def _run(self, number: int, step: Step) -> Manifest | None:
        if step.stage == "train":
            self.attempts.append([derive.training_started(self.layout, number, self._services.clock.now())])
        return steps.run_step(self.pipeline, number, step)

    def _held_back(self, stage: str) -> Outcome | None:
        """Why a stage is not run now, for a reason that is no failure."""
        if not self._services.wiring.triggers.allows(stage):
            return Outcome("waits", stage, held_text(self.layout, self.configured.environment.task_id, stage))
        if (free := self._free_disk()) < self._services.limits.min_free_disk:
            return Outcome("waits", stage, f"{free:.1f} GB of disk are free")
        return self.attempts.held(stage)

    @property
    def has_disk(self) -> bool:
        """Whether there is enough free disk to play, or to search."""
        return self._free_disk() >= self._services.limits.min_free_disk

    def _free_disk(self) -> float:
        """In gigabytes, where the folder is, or will be."""
        folder = next(path for path in (self.layout.root, *self.layout.root.absolute().parents) if path.exists())
        return shutil.disk_usage(folder).free / GIGABYTE

    def _begin(self, number: int) -> int:
        """Begins an iteration, or takes up the begun one: the next one instead, if its settings were others."""
        self.read_tuned_leaves()  # another loop may have tuned some
        if read_start(self.layout, number) is None:
            derive.derive_missing(self._services.log, self.layout, self._services.watch)
            self._taken = begin.begin_iteration(self.pipeline, IterationOptions(exploration_boost=self._boost))
            return self._taken
        try:
            self._taken = begin.begin_iteration(self.pipeline)
        except ConfigError as error:
            self._services.reporter.note(f"{self.game}: {error.problems[0]}; iteration {number + 1} is begun instead")
            self._taken = begin.begin_iteration(self.pipeline, IterationOptions(new_iteration=True), last=number)
        return self._taken

    def _boost(self, layout: Layout) -> float:
        """Of an iteration that is begun now. Raises LockedError if leaves were tuned since this process has read them.

        Called under the lock of the game.
        """
        if with_tuned_leaves(self.configured, layout) != self.config:
            raise LockedError(f"leaves of {self.game} have just been tuned", "they are read at the next look")
        return history.exploration_boost(history.results(layout))
