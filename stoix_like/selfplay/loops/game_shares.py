"""The shares of the games of a master loop: they outlive it, and an event reports a change."""

from __future__ import annotations

from collections.abc import Mapping

from stoix_like.config.sections.master_loop import CurriculumConfig
from stoix_like.errors import CheckpointError
from stoix_like.selfplay.events import kinds
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import LoopServices
from stoix_like.selfplay.tuning import curriculum
from stoix_like.selfplay.tuning.curriculum import GameProgress

_REPORTED_CHANGE = 0.05  # of a weight, since the last event


class GameShares:
    """The weights of games, by which self-play is shared out.

    Args:
        config: how they are made.
        runners: the games, by name.
        services: of the loop.
    """

    def __init__(self, config: CurriculumConfig, runners: Mapping[str, GameRunner], services: LoopServices) -> None:
        self._config, self._runners, self._services = config, runners, services
        self.values: dict[str, float] = {}
        self.on_plateau: list[str] = []  # games whose champions no longer gain
        self._reported: dict[str, float] = {}  # the weights of the last event

    def take_up(self) -> None:
        """Goes on with the weights of the process before if it had the same games, and makes them otherwise."""
        self._reported = self._services.cadence.read_weights()
        if self._reported.keys() != self._runners.keys():
            self.rebalance()
            return
        self.values = dict(self._reported)
        self._note_plateaus(self._progress())

    def rebalance(self) -> None:
        """Makes the weights of all games anew, and emits an event if one has changed."""
        progress, now = self._progress(), self._services.clock.now()
        self._note_plateaus(progress)
        self.values = curriculum.rebalanced(self.values or self._reported, progress, self._config, now)
        self._services.cadence.write_weights(self.values)
        changes = [abs(weight - self._reported.get(game, 0.0)) for game, weight in self.values.items()]
        if len(changes) > 1 and max(changes) >= _REPORTED_CHANGE:
            self._reported = dict(self.values)
            part = self._services.log.end() + 1  # older ones are removed
            event = kinds.CurriculumRebalanced(game="", iteration=0, run="", time=now, part=part, weights=self.values)
            self._services.log.append([event])
            self._services.router.dispatch()

    def _note_plateaus(self, progress: Mapping[str, GameProgress]) -> None:
        self.on_plateau = [game for game, one in progress.items() if one.is_on_plateau]

    def _progress(self) -> dict[str, GameProgress]:
        """The progress of each game; of one whose files cannot be read, that of a game that has just been played."""
        found = {}
        for game, runner in self._runners.items():
            try:
                count = self._config.progress_iterations
                found[game] = curriculum.read_progress(runner.layout, count, self._services.watch)
            except (CheckpointError, OSError):
                found[game] = GameProgress(0.0, self._services.clock.now())
        return found
