"""Matches of candidates, champions and engines from the openings of a pipeline, compiled once for each opponent."""

from __future__ import annotations

import functools
from collections.abc import Callable

from stoix_like.algorithms import alphazero, tasks
from stoix_like.config.checks.engines import parse_engine
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import ConfigError
from stoix_like.evaluation.contests.openings import OpeningBook
from stoix_like.games import BoardGame, Player
from stoix_like.runtime.arena.match import MatchRunner
from stoix_like.search import players
from stoix_like.search.gumbel import GameModel
from stoix_like.types import Network

LEAST_OPENINGS = 8  # of a match: fewer never decide anything


class MatchPrograms:
    """The programs of matches.

    Args:
        game: its rules.
        network: of candidates and champions.
        config: of the pipeline.
    """

    def __init__(self, game: BoardGame, network: Network, config: SelfPlayConfig) -> None:
        self.game, self.network, self.config = game, network, config

    @functools.cached_property
    def book(self) -> OpeningBook:
        """The openings of matches."""
        promotion = self.config.promotion
        return tasks.book(self.game, promotion.match_opening_plies, promotion.most_pairs)

    def check_book(self) -> None:
        """Raises ConfigError if the game has too few openings of so many plies for a match to decide anything."""
        book, name = self.book, self.game.name
        if len(book.moves) < min(LEAST_OPENINGS, self.config.promotion.most_pairs):
            what = f"promotion.match_opening_plies: {name} has {len(book.moves)} openings of {book.plies} plies"
            raise ConfigError(what, f"a match needs {LEAST_OPENINGS} or more: use other plies")

    @functools.cached_property
    def network_player(self) -> Player:
        """How candidates and champions play in matches: by search, without noise."""
        model = GameModel(self.game, self.network.actor_critic)
        number = self.config.promotion.match_simulations
        return players.gumbel_player(model, alphazero.match_search(self.config, number))

    @functools.cached_property
    def runner(self) -> MatchRunner:
        """Matches of two networks."""
        return MatchRunner(self.game, self.network_player, self.network_player, self.book)

    @functools.cached_property
    def against(self) -> Callable[[str], MatchRunner]:
        """By name of an engine: matches of a network against it."""

        def of_engine(name: str) -> MatchRunner:
            engine = players.engine_player(self.game, parse_engine(name))
            return MatchRunner(self.game, self.network_player, engine, self.book)

        return functools.cache(of_engine)
