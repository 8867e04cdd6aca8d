"""A game between a person and a player, as lines in and lines out, so that it needs no terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.games import BoardGame
from stoix_like.runtime.arena.analysis import Analyze
from stoix_like.runtime.arena.board_text import (
    MARKS,
    board_text,
    has_spaces,
    help_lines,
    legal_names,
    legal_text,
    parse_move,
    split_moves,
    status_text,
)
from stoix_like.runtime.arena.contestants import Contestant

HELP = "a move such as {move}, or: undo, moves, analyze, quit"
HELP_AT_THE_END = "the game is over; write undo or quit"


class HistoryEntry(NamedTuple):
    """A position and the move that led to it."""

    state: Any
    action: int | None


class BoardSession:
    """A game on its way.

    Args:
        game: its rules.
        opponent: plays all seats but the person's.
        seat: the person's player.
        analyze: of positions; None if the opponent does not search.
        seed: of the opponent's draws.
    """

    def __init__(
        self, game: BoardGame, opponent: Contestant, seat: int, analyze: Analyze | None = None, seed: int = 0
    ) -> None:
        self.game, self.opponent, self.seat = game, opponent, seat
        self._analyze, self._root = analyze, jax.random.key(seed)
        self._act = jax.jit(opponent.player)
        self._step = jax.jit(game.step)
        self.history = [HistoryEntry(game.init(), None)]

    @property
    def state(self) -> Any:
        return self.history[-1].state

    @property
    def is_over(self) -> bool:
        return bool(self.game.is_over(self.state))

    def set_up(self, moves: list[str]) -> None:
        """Plays the moves, of all seats. Raises ValueError with the reason if one of them is not legal."""
        for number, move in enumerate(moves, start=1):
            if self.is_over:
                raise ValueError(f"the game is over before move {number}")
            action, why = parse_move(self.game, self.state, move)
            if action is None:
                raise ValueError(f"move {number}: {why}")
            self._play(action)

    def begin(self) -> list[str]:
        """The lines before the person's first move: what the opponent plays before it, and the board."""
        return [*self._answer(), self.drawing()]

    def enter(self, line: str) -> list[str]:
        """The lines that answer what the person wrote."""
        text = line.strip()
        commands: dict[str, Callable[[], list[str]]] = {
            "undo": self._undo,
            "moves": lambda: [legal_text(self.game, self.state, self.game.num_actions)],
            "analyze": self.analysis,
        }
        if text.lower() in commands:
            return commands[text.lower()]()
        if text.lower() in ("help", "?", ""):
            return self._help()
        if self.is_over:
            return [f"the game is over: {status_text(self.game, self.state)}; undo, or quit"]
        return self._enter_moves(split_moves(self.game, text) if has_spaces(self.game) else [text])

    def _enter_moves(self, moves: list[str]) -> list[str]:
        """Plays the person's moves, one after the other, with the answers between; up to one that is not legal."""
        lines: list[str] = []
        for number, move in enumerate(moves):
            action, why = parse_move(self.game, self.state, move)
            if action is None:
                return [*lines, self.drawing(), why] if number else [why]
            self._play(action)
            lines += self._answer()
            if self.is_over:
                break
        return [*lines, self.drawing()]

    def _help(self) -> list[str]:
        names = legal_names(self.game, self.state)
        first = HELP.format(move=names[len(names) // 2]) if names else HELP_AT_THE_END
        return [first, *help_lines(self.game)]

    def drawing(self) -> str:
        """The board and what is next."""
        text = board_text(self.game, self.state, self.history[-1].action)
        return text if self.is_over else f"{text} (you are {MARKS[self.seat]})"

    def analysis(self) -> list[str]:
        """What the opponent thinks of the position."""
        if self._analyze is None:
            return [f"{self.opponent.name} does not search, so it has no analysis"]
        if self.is_over:
            return ["the game is over"]
        return self._analyze(self.state, self._key())

    def _key(self) -> Any:
        return jax.random.fold_in(self._root, len(self.history))

    def _play(self, action: int) -> None:
        self.history.append(HistoryEntry(self._step(self.state, np.int32(action)), action))

    def _answer(self) -> list[str]:
        """Lets the opponent move until it is the person's turn, or the game is over."""
        lines = []
        while not self.is_over and (player := int(self.game.player(self.state))) != self.seat:
            batch = jax.tree.map(lambda x: np.asarray(x)[None], self.state)
            action = int(self._act(self.opponent.params, batch, self._key())[0])
            name = self.opponent.name + (f" ({MARKS[player]})" if self.game.num_players > 2 else "")
            lines.append(f"{name} plays {self.game.layout.action_names[action]}")
            self._play(action)
        return lines

    def _undo(self) -> list[str]:
        """Takes back moves until it is the person's turn again, at an earlier position."""
        mine = [i for i, played in enumerate(self.history[:-1]) if int(self.game.player(played.state)) == self.seat]
        if not mine:
            return ["there is no move of yours to take back"]
        del self.history[mine[-1] + 1 :]
        return [self.drawing()]
