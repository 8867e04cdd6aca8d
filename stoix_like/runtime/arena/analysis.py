"""What a player thinks of a position: policy, values, visits and the best line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from stoix_like.config.checks.engines import parse_engine
from stoix_like.games import BoardGame, GameState
from stoix_like.runtime.arena.board_text import moves_text
from stoix_like.runtime.arena.contestants import ContestantSpec
from stoix_like.runtime.console.text import DASH, aligned
from stoix_like.runtime.runs.saved import SavedRun
from stoix_like.types import Key

Analyze = Callable[[GameState, Key], list[str]]  # (state, key) -> lines
LINE_LENGTH = 8  # plies of the best line
_MOST_ROWS = 12


def analyzer(spec: ContestantSpec, game: BoardGame, run: SavedRun | None) -> Analyze | None:
    """The analysis of a contestant's search; None if it does not search, as a network alone."""
    if run is None:
        engine = parse_engine(spec.text)
        return None if engine.kind != "mcts" else _of_mcts(game, engine.num_simulations)
    searches = run.meta.algorithm == "alphazero" and spec.num_simulations != 0
    return _of_run(game, run, spec.num_simulations) if searches else None


def _of_mcts(game: BoardGame, num_simulations: int) -> Analyze:
    from stoix_like.search import mcts

    search = jax.jit(lambda states, key: mcts.search(game, key, states, num_simulations))

    def analyze(state: GameState, key: Key) -> list[str]:
        found = jax.device_get(search(_batched(state), key))
        legal, mover = np.asarray(game.legal_actions(state)), int(game.player(state))
        return [
            f"mcts-{num_simulations}: expected outcome {found.values[0, mover]:+.2f} for the player to move",
            *_table(game, legal, {"visits": found.visits[0]}),
        ]

    return analyze


def _of_run(game: BoardGame, run: SavedRun, num_simulations: int | None) -> Analyze:
    from stoix_like.algorithms import alphazero
    from stoix_like.search import gumbel
    from stoix_like.search.gumbel import GameModel

    config = alphazero.match_search(run.config, num_simulations)
    model, params = GameModel(game, run.network.actor_critic), run.network_params(run.seed_params(0))
    search = jax.jit(lambda states, key: gumbel.search_lines(model, params, key, states, config, LINE_LENGTH))

    def analyze(state: GameState, key: Key) -> list[str]:
        found, line = jax.device_get(search(_batched(state), key))
        legal = np.asarray(game.legal_actions(state))
        prior = np.exp(found.prior_logits[0] - np.logaddexp.reduce(found.prior_logits[0]))
        values = np.where(found.visits[0] > 0, found.q_values[0], np.nan)
        moves = [game.layout.action_names[action] for action in line[0] if action >= 0]
        return [
            f"network {found.network_values[0, 0]:+.2f}, after {config.num_simulations} simulations"
            f" {found.values[0, 0]:+.2f}: expected outcome for the player to move",
            *_table(
                game,
                legal,
                {"policy": prior, "improved": found.action_weights[0], "visits": found.visits[0], "value": values},
            ),
            f"best line: {moves_text(game, moves)}",
        ]

    return analyze


def _batched(state: GameState) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[None], state)


def _table(game: BoardGame, legal: np.ndarray, columns: dict[str, np.ndarray]) -> list[str]:
    """A line for the head and for each legal move, the most visited first. Without a policy those with visits alone."""
    shown = legal if "policy" in columns else legal & (columns["visits"] > 0)
    order = sorted(np.flatnonzero(shown), key=lambda a: (-columns["visits"][a], a))[:_MOST_ROWS]
    rows = [[game.layout.action_names[a], *(_cell(name, values[a]) for name, values in columns.items())] for a in order]
    return aligned([["move", *columns], *rows], right=True)


def _cell(name: str, value: float) -> str:
    if name == "visits":
        return f"{int(value):,}"
    if np.isnan(value):
        return DASH
    return f"{value:+.2f}" if name == "value" else f"{value:.1%}"
