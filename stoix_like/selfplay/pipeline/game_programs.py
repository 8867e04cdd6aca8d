"""Self-play of a shard of whole games, compiled once for each number of slots."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from stoix_like.algorithms import alphazero
from stoix_like.algorithms.alphazero import AlphaZeroSettings, PlaySetup, whole_games
from stoix_like.algorithms.alphazero.whole_games import GameBatch
from stoix_like.config.checks.engines import parse_engine
from stoix_like.config.checks.selfplay import NETWORK_ENGINE
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.games import BoardGame
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.search.gumbel import GameModel
from stoix_like.types import Array, Key, Network, NetworkParams

HALVED_SLOTS = 256  # so many slots or more go on as half as many, once half have no game any more


class GamePrograms:
    """The programs of self-play.

    Args:
        game: its rules.
        network: of the player, unless an engine plays.
        config: of the pipeline.
        settings: the fixed part of self-play.
        reporter: is told that programs are compiled.
    """

    def __init__(
        self,
        game: BoardGame,
        network: Network,
        config: SelfPlayConfig,
        settings: AlphaZeroSettings,
        reporter: Reporter,
    ) -> None:
        self.game, self.network, self.config, self.settings = game, network, config, settings
        self.reporter = reporter

    @functools.cached_property
    def advance(self) -> Callable[[NetworkParams, Any, GameBatch, Key, Any], GameBatch]:
        """`whole_games.advance` with the parameters, and the boost of exploration, as arguments."""

        def advance(params: NetworkParams, boost: Array, batch: GameBatch, key: Key, steps: Any) -> GameBatch:
            if (name := self.config.selfplay.engine) == NETWORK_ENGINE:
                model = GameModel(self.game, self.network.actor_critic)
                search = alphazero.self_play_search(model, self._boosted(boost), params)
            else:
                search = whole_games.mcts_search(self.game, parse_engine(name).num_simulations)
            num_idle = batch.ply.shape[0] - fewer_slots(batch.ply.shape[0])
            temperature = self.config.alphazero.play_temperature * boost
            setup = PlaySetup(self.game, search, self.settings, temperature)
            return whole_games.advance(setup, batch, key, steps, num_idle)

        return jax.jit(advance, donate_argnums=2)

    def _boosted(self, boost: Array) -> AlphaZeroSettings:
        """`settings` with that much more noise at the root of both searches."""
        scale, quick = self.config.alphazero.gumbel_scale * boost, self.settings.quick_search
        return self.settings._replace(
            search=self.settings.search._replace(gumbel_scale=scale),
            quick_search=None if quick is None else quick._replace(gumbel_scale=scale),
        )

    @functools.cached_property
    def begin(self) -> Callable[[int], Callable[[Key], GameBatch]]:
        """By number of games: `whole_games.begin` of so many. Says once why nothing is heard for a while."""
        self.reporter.progress("selfplay: compiling its programs")

        def begin(num_games: int) -> Callable[[Key], GameBatch]:
            slots = min(self.config.environment.num_envs, num_games)
            return jax.jit(functools.partial(whole_games.begin, self.game, self.settings, num_games, slots))

        return functools.cache(begin)


def fewer_slots(num_slots: int) -> int:
    """The slots in which the rest is played once no more of them have a game; few slots stay as many."""
    return num_slots - num_slots // 2 if num_slots >= HALVED_SLOTS else num_slots
