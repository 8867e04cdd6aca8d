"""Matches played by one compiled program in pieces of about two seconds, so that progress is seen and Ctrl-C works."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.evaluation.contests import matches
from stoix_like.evaluation.contests.matches import MatchResults, MatchSummary
from stoix_like.evaluation.contests.openings import OpeningBook
from stoix_like.games import BoardGame, Player
from stoix_like.runtime.arena.contestants import Contestant
from stoix_like.runtime.console.messages import Heartbeat, reported_if_slow
from stoix_like.runtime.evaluators.timing import ChunkSizer
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.types import Key, Params

MEMORY_HINT = "use fewer openings (--openings N), or fewer simulations"


class MatchRunner:
    """Plays matches of two players over a book. Parameters are arguments, so it compiles once for all that play alike.

    Args:
        game: what is played.
        player_a, player_b: how A and B choose their actions.
        book: every opening is played from all seats.
    """

    def __init__(self, game: BoardGame, player_a: Player, player_b: Player, book: OpeningBook) -> None:
        def advance(params_a: Params, params_b: Params, playing: Any, key: Key, steps: Any) -> Any:
            playing = matches.advance(game, (player_a, player_b), (params_a, params_b), playing, key, steps)
            return playing, matches.num_over(game, playing)

        self._moves, self._num_players = book.moves, game.num_players
        self._begin = jax.jit(lambda moves: matches.begin(game, moves))
        self._advance = jax.jit(advance, donate_argnums=2)
        self._results = jax.jit(lambda playing: matches.results(game, playing))
        self._most_steps = 2 * game.max_plies
        self._sizer = ChunkSizer()
        self.has_played = False  # so its program is compiled

    def play(
        self,
        params_a: Params,
        params_b: Params,
        key: Key,
        report: Callable[[str], None] = lambda _: None,
        *,
        moves: np.ndarray | None = None,
        check: Callable[[int], None] = lambda _: None,
    ) -> MatchResults:
        """The results of A against B. `report` receives the progress every ten seconds.

        With `moves` [M, k], other openings than the book's are played; another number of them compiles again. `check`
        is called after every piece with the number of games that are over, and may raise to end the match.

        Raises RunError if memory runs out.
        """

        def advance(playing: Any, steps: np.int32) -> tuple[Any, Any]:
            return self._advance(params_a, params_b, playing, key, steps)

        with reraise_device_errors("the match cannot be played", MEMORY_HINT):
            moves = self._moves if moves is None else moves
            pieces = Pieces(len(moves) * self._num_players, self._most_steps, self._sizer, report, check)
            results: MatchResults = jax.device_get(self._results(pieces.play(advance, self._begin(moves))))
        self.has_played = True
        return results


class Pieces(NamedTuple):
    """How games are played in pieces.

    Attributes:
        num_games: that are played.
        most_steps: after which they are cut.
        sizer: learns how many steps take two seconds.
        report: receives the progress every ten seconds.
        check: called after every piece with the number of games that are over; may raise to end the games.
    """

    num_games: int
    most_steps: int
    sizer: ChunkSizer
    report: Callable[[str], None]
    check: Callable[[int], None] = lambda _: None

    def play(self, advance: Callable[[Any, np.int32], tuple[Any, Any]], playing: Any) -> Any:
        """The games when all are over or cut. `advance` plays so many steps and counts the games that are over."""
        heartbeat, over, step = Heartbeat(self.report), 0, 0
        while over < self.num_games and step < self.most_steps:
            steps, began = self.sizer.next_length(self.most_steps - step), time.monotonic()
            with reported_if_slow("compiling", self.report) if step == 0 else contextlib.nullcontext():
                playing, found = advance(playing, np.int32(steps))
                jax.block_until_ready(found)
            over, before, step = int(found), step, int(playing.step)
            if before > 0:  # the first piece is compiled, too
                self.sizer.record(max(step - before, 1), time.monotonic() - began)
            heartbeat(f"{over:,} of {self.num_games:,} games over, step {step:,}")
            self.check(over)
        return playing


def play_each(
    game: BoardGame,
    firsts: Sequence[Contestant],
    second: Contestant,
    book: OpeningBook,
    seed: int,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, MatchSummary]:
    """{name: summary} of each of `firsts` against `second`. `report` receives the progress."""
    rows = {}
    for first in firsts:
        began, names = time.monotonic(), f"{first.name} against {second.name}"
        player = MatchRunner(game, first.player, second.player, book)

        def report_match(text: str, names: str = names) -> None:
            report(f"{names}: {text}")

        results = player.play(first.params, second.params, jax.random.key(seed), report_match)
        rows[first.name] = matches.summarize(results)
        report_match(f"played in {time.monotonic() - began:.1f} s")
    return rows
