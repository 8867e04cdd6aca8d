"""Matches for the report, from time to time: champions against anchors, and a tournament of kept candidates."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from stoix_like.config.sections.master_loop import LoopEvaluationConfig
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import LoopServices, Outcome
from stoix_like.selfplay.ratings import shadow, tournament

RETRY_SECONDS = 300.0  # before a match that has failed is played again


class ReportMatches:
    """The shadow evaluations and tournaments of games.

    Args:
        config: how often, and how much.
        services: of the loop.
    """

    def __init__(self, config: LoopEvaluationConfig, services: LoopServices) -> None:
        self._config, self._services = config, services
        self._intervals = {
            "shadow": config.shadow_interval_seconds,
            "tournament": config.full_tournament_interval_seconds,
        }

    def due(self, runner: GameRunner) -> Iterator[str]:
        """The kinds of matches that are due in a game."""
        for kind, interval in self._intervals.items():
            is_ready = runner.layout.champion.is_file() and runner.has_disk
            if is_ready and self._services.cadence.due_or_start(f"{kind}/{runner.game}", interval):
                yield kind

    def play(self, runner: GameRunner, kind: str) -> Outcome:
        """Plays what is due: at the next look again if it is stopped, soon if it fails, and an interval later if the
        process is killed, perhaps by it.
        """
        cadence, name, interval = self._services.cadence, f"{kind}/{runner.game}", self._intervals[kind]
        last = cadence.last(name)
        cadence.done(name)
        try:
            outcome = runner.attempts.do(kind, functools.partial(self._play, runner, kind))
        except Interrupted:
            cadence.done(name, last)
            raise
        if outcome.kind == "failed":
            cadence.done(name, self._services.clock.now() - interval + min(RETRY_SECONDS, interval))
        return outcome

    def _play(self, runner: GameRunner, kind: str) -> None:
        if kind == "shadow":
            shadow.shadow_evaluation(runner.pipeline, self._config.shadow_openings)
        else:
            each = runner.config.promotion.pairs_per_look
            sizes = self._config.tournament_candidates, self._config.tournament_openings
            tournament.play_tournament(runner.pipeline, *sizes, each)
