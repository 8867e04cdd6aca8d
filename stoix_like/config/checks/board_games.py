"""The names of board games in flags and YAML: `connect_four`, `connect_four:2` and `connect_four_2p` are one game.

Read before the JAX backend starts, so it imports only the standard library.
"""

from __future__ import annotations

import re

from stoix_like.config.checks.values import nearest, nearest_word
from stoix_like.errors import ConfigError, StoixError, UnsupportedEnvironmentError

#: The numbers of players of each game; a name without a number means the first.
GAMES: dict[str, tuple[int, ...]] = {
    "tic_tac_toe": (2,),
    "connect_four": (2,),
    "othello": (2,),
    "hex_11x11": (2,),
    "go_9x9": (2,),
    "square8": (2, 3, 4),
    "hex8": (2, 3, 4),
    "square8_swap": (2,),
    "hex8_swap": (2,),
}
#: Known names of games that cannot be played yet.
COMING: dict[str, tuple[int, ...]] = dict.fromkeys(("square19", "hexagonal"), (2, 3, 4))
_NAME = re.compile(r"(?P<name>.+?)(?::(?P<after_colon>\d+)|_(?P<after_line>\d+)p)?")


def is_game(text: str) -> bool:
    """Whether a task id means a board game, playable or not, with any number of players."""
    name, _ = _split(text)
    return name in GAMES or name in COMING


def parse_game(text: str) -> tuple[str, int]:
    """(name, number of players) of a game that can be played.

    Raises:
        UnsupportedEnvironmentError: an unknown game, or one that is not available yet.
        ConfigError: a number of players that the game does not have.
    """
    name, num_players = _split(text)
    players = (GAMES | COMING).get(name)
    if players is None:
        what = f"unknown game '{text}'{nearest(name.lower(), GAMES | COMING)}"
        raise UnsupportedEnvironmentError(what, f"known games: {', '.join(GAMES)}")
    if num_players is not None and num_players not in players:
        raise ConfigError(f"'{text}': {name} is a game of {players_text(name)}", f"write {_spellings(name, players)}")
    if name in COMING:
        raise UnsupportedEnvironmentError(f"{name} is not available yet", f"known games: {', '.join(GAMES)}")
    return name, num_players or players[0]


def players_text(name: str) -> str:
    """`2 players`, or `2 to 4 players` of a game for several numbers of them."""
    players = (GAMES | COMING)[name]
    return f"{players[0]} players" if len(players) == 1 else f"{players[0]} to {players[-1]} players"


def nearest_game(text: str) -> str | None:
    """The name that is nearest to a text which names no game, with any number of players; None if none is near."""
    name, _ = _split(text)
    return nearest_word(name.lower(), GAMES)


def canonical_name(text: str) -> str:
    """The one spelling of a task id that means a game: `connect_four` of `connect_four:2`. Others are unchanged."""
    try:
        name, num_players = parse_game(text)
    except StoixError:
        return text
    return name if num_players == GAMES[name][0] else game_key(name, num_players)


def is_named(text: str, name: str, num_players: int) -> bool:
    """Whether a text means this game: `hex8` does with any number of players, `hex8:2` and `hex8_2p` with two."""
    found, players = _split(text)
    return found == name and players in (None, num_players)


def game_key(name: str, num_players: int) -> str:
    """The one way that folders and tables write a game: `connect_four_2p`."""
    return f"{name}_{num_players}p"


def _spellings(name: str, players: tuple[int, ...]) -> str:
    """What a game may be called: `hex8, hex8:3 or hex8:4`."""
    if len(players) == 1:
        return f"{name} or {game_key(name, players[0])}"
    *first, last = [name, *(f"{name}:{number}" for number in players[1:])]
    return f"{', '.join(first)} or {last}"


def _split(text: str) -> tuple[str, int | None]:
    match = _NAME.fullmatch(text)
    if match is None:
        return text, None
    digits = match["after_colon"] or match["after_line"]
    return match["name"], None if digits is None else int(digits)
