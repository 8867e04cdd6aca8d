"""A board as text, and moves as people write them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from stoix_like.config.checks.values import nearest_and
from stoix_like.games import BoardGame
from stoix_like.runtime.console.text import aligned

MARKS = "XO#@"  # of the players, in order
EMPTY = "."
_LEGEND = (
    "X2: a stack of two rings that X controls; O4:1: a stack of four, of which only the top one is O's",
    "(O): a marker of O; =O=: territory of O; .: an empty cell",
)


def board_text(game: BoardGame, state: Any, last_action: int | None = None) -> str:
    """The board with the names of its columns and rows, and who is to move or how it ended."""
    rows = _rows(game, _cell_texts(game, state))
    width = max(len(text) for row in rows for text in row)
    lines = [_row_text(game, row, index, width) for index, row in enumerate(rows)]
    head = "   " + " ".join(f"{name:<{width}}" for name in _column_names(game)).rstrip()
    last = "" if last_action is None else f", last move {game.layout.action_names[last_action]}"
    beside = [] if game.wording is None else [game.wording.status(state, MARKS)]
    return "\n".join([head, *lines, *beside, f"{status_text(game, state)}{last}"])


def _cell_texts(game: BoardGame, state: Any) -> list[str]:
    """What each cell shows: an owner, or of games of stacks `X3`, `X3:2` if the cap is lower, `(X)` for a marker and
    `=X=` for territory."""
    if game.picture is None:
        return [EMPTY if owner < 0 else MARKS[owner] for owner in np.asarray(game.cells(state))]
    rings, markers, territory = (np.asarray(leaf) for leaf in game.picture(state))
    texts = []
    for stack, marker, owner in zip(rings, markers, territory, strict=True):
        height = int((stack >= 0).sum())
        texts.append(_stack_text(stack[:height]) if height else _flat_text(int(marker), int(owner)))
    return texts


def _stack_text(stack: np.ndarray) -> str:
    others = np.flatnonzero(stack != stack[-1])
    cap = len(stack) - 1 - int(others[-1]) if len(others) else len(stack)
    return f"{MARKS[stack[-1]]}{len(stack)}" + (f":{cap}" if cap < len(stack) else "")


def _flat_text(marker: int, owner: int) -> str:
    if marker >= 0:
        return f"({MARKS[marker]})"
    return EMPTY if owner < 0 else f"={MARKS[owner]}="


def _rows(game: BoardGame, texts: list[str]) -> list[list[str]]:
    """The texts of the cells by row, empty where the board has none."""
    rows, columns = game.layout.shape
    found = [[""] * columns for _ in range(rows)]
    for (row, column), text in zip(game.layout.places, texts, strict=True):
        found[row][column] = text
    return found


def _row_text(game: BoardGame, row: list[str], index: int, width: int) -> str:
    shift = " " * (index * (width + 1) // 2) if game.layout.kind == "hex" else ""
    name = "" if _is_by_columns(game) else str(index + 1)
    return f"{shift}{name:>2} " + " ".join(f"{text:<{width}}" for text in row).rstrip()


def _column_names(game: BoardGame) -> list[str]:
    columns = game.layout.shape[1]
    return list(game.layout.action_names) if _is_by_columns(game) else [chr(ord("a") + i) for i in range(columns)]


def _is_by_columns(game: BoardGame) -> bool:
    """Whether a move is a column, as in connect four."""
    rows, columns = game.layout.shape
    return rows > 1 and game.num_actions == columns


def status_text(game: BoardGame, state: Any) -> str:
    """`X to move`, `X has won` or `draw`, with what decided it and the places of more than two players."""
    if not bool(game.is_over(state)):
        return f"{MARKS[int(game.player(state))]} to move"
    outcome = np.asarray(game.outcome(state))
    winners = np.flatnonzero(outcome == outcome.max())
    who = " and ".join(MARKS[winner] for winner in winners)
    won = "draw" if len(winners) == game.num_players else f"{who} {'has' if len(winners) == 1 else 'have'} won"
    by = f" {game.wording.result(state)}" if game.wording is not None and game.wording.result is not None else ""
    return f"{won}{by}{_places_text(outcome) if game.num_players > 2 else ''}"


def _places_text(outcome: np.ndarray) -> str:
    """`; places: 1 X, 2 #, 3 O`; players who share a place have the same number."""
    places = [1 + int((outcome > own).sum()) for own in outcome]
    order = sorted(range(len(outcome)), key=places.__getitem__)
    return f"; places: {', '.join(f'{places[player]} {MARKS[player]}' for player in order)}"


def help_lines(game: BoardGame) -> list[str]:
    """How moves are written and what is drawn, of a game that has more to say than the names of its cells."""
    moves = () if game.wording is None else game.wording.moves
    lines = aligned([(f"  {name}", what) for name, what in moves]) if moves else []
    if moves and has_spaces(game):
        lines.append(f"several moves have commas between them: {moves_text(game, [name for name, _ in moves[:2]])}")
    return lines + (list(_LEGEND) if game.picture is not None else [])


def parse_move(game: BoardGame, state: Any, text: str) -> tuple[int | None, str]:
    """(the legal action that a person wrote, or None; why there is none, else an empty text)."""
    names, text = [name.lower() for name in game.layout.action_names], " ".join(text.split())
    legal = np.asarray(game.legal_actions(state))
    if text.lower() not in names:
        parts = _moves_without_commas(text.lower(), names) if has_spaces(game) else []
        if parts:
            written = moves_text(game, parts)
            return None, f"'{text}' is {len(parts)} moves; write commas between moves of {game.name}: '{written}'"
        return None, f"no move is called '{text}'{nearest_and(text.lower(), names, legal_text(game, state))}"
    action = names.index(text.lower())
    if legal[action]:
        return action, ""
    return None, f"{text} is not legal: {_why_illegal(game, state, action)}; {legal_text(game, state)}"


def split_moves(game: BoardGame, text: str) -> list[str]:
    """The moves of `4 4 3` or `d3, c5`; of games whose moves have spaces, such as `place 2 e5, e5 to e7`, at commas."""
    parts = text.split(",") if has_spaces(game) else text.replace(",", " ").split()
    return [part.strip() for part in parts if part.strip()]


def has_spaces(game: BoardGame) -> bool:
    """Whether the names of moves have spaces, so that commas separate moves."""
    return any(" " in name for name in game.layout.action_names)


def _moves_without_commas(text: str, names: Collection[str]) -> list[str]:
    """The moves of a text of several with spaces between, of which the last may be misspelt; empty of another text."""
    words, starts, moves = text.split(), {name.split()[0] for name in names}, []
    while words and words[0] in starts:
        fitting = [length for length in range(len(words), 0, -1) if " ".join(words[:length]) in names]
        length = fitting[0] if fitting else len(words)
        moves.append(" ".join(words[:length]))
        words = words[length:]
    return moves if len(moves) > 1 and not words else []


def _why_illegal(game: BoardGame, state: Any, action: int) -> str:
    if game.wording is not None:
        return game.wording.why_illegal(state, action)
    cells = np.asarray(game.cells(state))
    if _is_by_columns(game):
        return "the column is full"
    if action < len(cells) and cells[action] >= 0:
        return f"{MARKS[cells[action]]} is there"
    return "the rules forbid it here"


def legal_text(game: BoardGame, state: Any, most: int = 20) -> str:
    """`legal moves: 1 2 3 5`; of many the first `most`, those without a cell, such as `pass`, before all others."""
    legal = legal_names(game, state)
    if not legal:
        return "no move is legal: the game is over"
    more = f" and {len(legal) - most} more" if len(legal) > most else ""
    return f"legal moves: {moves_text(game, legal[:most])}{more}"


def moves_text(game: BoardGame, moves: Sequence[str]) -> str:
    """Moves in a row, as `split_moves` reads them."""
    return (", " if has_spaces(game) else " ").join(moves)


def legal_names(game: BoardGame, state: Any) -> list[str]:
    """The names of the legal moves, those without a cell first; none after the end."""
    if bool(game.is_over(state)):
        return []
    names = [game.layout.action_names[i] for i in np.flatnonzero(np.asarray(game.legal_actions(state)))]
    return sorted(names, key=lambda name: any(letter.isdigit() for letter in name))
