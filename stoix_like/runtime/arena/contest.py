"""Contests of several players, played by one compiled program for so many openings at a time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from stoix_like.evaluation.contests import seatings
from stoix_like.evaluation.contests.openings import OpeningBook
from stoix_like.evaluation.contests.seatings import ContestSummary, SeatedResults
from stoix_like.games import BoardGame
from stoix_like.runtime.arena.contestants import Contestant
from stoix_like.runtime.arena.match import MEMORY_HINT, Pieces
from stoix_like.runtime.evaluators.timing import ChunkSizer
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.types import Key

GAMES_AT_ONCE = 1024


def play_contest(
    game: BoardGame,
    contestants: Sequence[Contestant],
    book: OpeningBook,
    seed: int,
    report: Callable[[str], None] = lambda _: None,
) -> ContestSummary:
    """The summary of a contest of at least as many contestants as the game has seats, with names of their own.

    Every opening is played in every order in which they can sit. `report` receives the progress.

    Raises RunError if memory runs out.
    """
    seats, names = seatings.orders(len(contestants), game.num_players), [one.name for one in contestants]
    params = tuple(one.params for one in contestants)
    players = [one.player for one in contestants]

    def advance_games(params: Any, key: Key, playing: Any, steps: Any) -> Any:
        playing = seatings.advance(game, players, params, playing, key, steps)
        return playing, seatings.num_over(game, playing)

    advance = jax.jit(advance_games, donate_argnums=2)
    begin = jax.jit(lambda moves: seatings.begin(game, moves, seats))
    results = jax.jit(lambda playing: seatings.results(game, playing, len(seats)))
    batches, sizer, found = _batches(book.moves, len(seats)), ChunkSizer(), []
    with reraise_device_errors("the contest cannot be played", MEMORY_HINT):
        for number, moves in enumerate(batches):
            say = functools.partial(_report, report, number, len(batches))
            pieces = Pieces(len(moves) * len(seats), 2 * game.max_plies, sizer, say)
            key = jax.random.fold_in(jax.random.key(seed), number)
            found.append(jax.device_get(results(pieces.play(functools.partial(advance, params, key), begin(moves)))))
    return seatings.summarize(_joined(found, len(book.moves)), names)


def _report(report: Callable[[str], None], number: int, num_batches: int, text: str) -> None:
    report(f"batch {number + 1} of {num_batches}: {text}" if num_batches > 1 else text)


def _batches(moves: np.ndarray, num_orders: int) -> list[np.ndarray]:
    """The openings in parts of one size, so that one program plays all; the last is filled up with the first ones."""
    number = math.ceil(len(moves) * num_orders / GAMES_AT_ONCE)
    size = math.ceil(len(moves) / number)
    filled = np.resize(moves, (number * size, moves.shape[1]))  # goes on from the beginning
    return list(filled.reshape(number, size, -1))


def _joined(found: Sequence[SeatedResults], num_openings: int) -> SeatedResults:
    """The results of the first `num_openings` of all batches together."""
    whole: SeatedResults = jax.tree.map(lambda *parts: np.concatenate(parts)[:num_openings], *found)
    return whole._replace(seats=found[0].seats)
