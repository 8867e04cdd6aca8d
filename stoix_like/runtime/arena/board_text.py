"""A board as text, and moves as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from stoix_like.config.checks.values import nearest
from stoix_like.games import BoardGame

MARKS = "XO#@"  # of the players, in order
EMPTY = "."


def board_text(game: BoardGame, state: Any, last_action: int | None = None) -> str:
    """The board with the names of its columns and rows, and who is to move or how it ended."""
    cells = np.asarray(game.cells(state)).reshape(game.layout.shape)
    lines = [_row_text(game, row, index) for index, row in enumerate(cells)]
    head = "   " + " ".join(_column_names(game))
    last = "" if last_action is None else f", last move {game.layout.action_names[last_action]}"
    return "\n".join([head, *lines, f"{status_text(game, state)}{last}"])


def _row_text(game: BoardGame, row: np.ndarray, index: int) -> str:
    shift = " " * index if game.layout.kind == "hex" else ""
    name = "" if _is_by_columns(game) else str(index + 1)
    return f"{shift}{name:>2} " + " ".join(EMPTY if owner < 0 else MARKS[owner] for owner in row)


def _column_names(game: BoardGame) -> list[str]:
    columns = game.layout.shape[1]
    return list(game.layout.action_names) if _is_by_columns(game) else [chr(ord("a") + i) for i in range(columns)]


def _is_by_columns(game: BoardGame) -> bool:
    """Whether a move is a column, as in connect four."""
    rows, columns = game.layout.shape
    return rows > 1 and game.num_actions == columns


def status_text(game: BoardGame, state: Any) -> str:
    """`X to move`, `X has won` or `draw`."""
    if not bool(game.is_over(state)):
        return f"{MARKS[int(game.player(state))]} to move"
    outcome = np.asarray(game.outcome(state))
    winners = np.flatnonzero(outcome == outcome.max())
    return "draw" if len(winners) == game.num_players else f"{', '.join(MARKS[w] for w in winners)} has won"


def parse_move(game: BoardGame, state: Any, text: str) -> tuple[int | None, str]:
    """(the legal action that a person wrote, or None; why there is none, else an empty text)."""
    names = [name.lower() for name in game.layout.action_names]
    legal = np.asarray(game.legal_actions(state))
    if text.lower() not in names:
        return None, f"no move is called '{text}'{nearest(text.lower(), names)}; {legal_text(game, state)}"
    action = names.index(text.lower())
    if legal[action]:
        return action, ""
    return None, f"{text} is not legal: {_why_illegal(game, state, action)}; {legal_text(game, state)}"


def _why_illegal(game: BoardGame, state: Any, action: int) -> str:
    cells = np.asarray(game.cells(state))
    if _is_by_columns(game):
        return "the column is full"
    if action < len(cells) and cells[action] >= 0:
        return f"{MARKS[cells[action]]} is there"
    return "the rules forbid it here"


def legal_text(game: BoardGame, state: Any) -> str:
    """`legal moves: 1 2 3 5`; of many the first twenty."""
    legal = [game.layout.action_names[i] for i in np.flatnonzero(np.asarray(game.legal_actions(state)))]
    more = f" and {len(legal) - 20} more" if len(legal) > 20 else ""
    return f"legal moves: {' '.join(legal[:20])}{more}"
