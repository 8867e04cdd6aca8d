"""The games that the last loop of a folder had, with which the next one goes on if it is told of none. No JAX."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from stoix_like.config.checks.board_games import parse_game
from stoix_like.errors import StoixError
from stoix_like.selfplay.events.database import reading

STATUS_KEY = "games"  # of a loop's status
_OLDER_KEY = "seconds"  # by game, in statuses of earlier versions


def last_games(save_dir: Path, loop: str) -> list[tuple[str, int]]:
    """(game, number of players) of each game of the last loop of this name; none if there was none.

    Raises CheckpointError or RunError if its database cannot be read.
    """
    with reading(save_dir) as connection:
        if connection is None:
            return []
        rows = connection.execute("SELECT status FROM heartbeats WHERE name = ?", (loop,)).fetchall()
    for (text,) in rows:
        with contextlib.suppress(ValueError, TypeError, AttributeError, StoixError):  # what this version cannot play
            status = json.loads(text)
            return [parse_game(key) for key in status.get(STATUS_KEY) or status.get(_OLDER_KEY) or ()]
    return []


def games_note(save_dir: Path, games: Sequence[tuple[str, int]]) -> str:
    """What a loop says that goes on with them."""
    names = ", ".join(f"{name}:{players}" for name, players in games)
    return f"the last loop in {save_dir} had {names}, and this one goes on with them"
