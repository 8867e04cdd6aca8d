"""Board games by name. Making one computes nothing, so it does not start the JAX backend."""

from __future__ import annotations

import functools
from collections.abc import Callable

from stoix_like.config.checks.board_games import parse_game
from stoix_like.envs.boards.connect_four import make_connect_four
from stoix_like.envs.boards.go_9x9 import make_go_9x9
from stoix_like.envs.boards.hex_11x11 import make_hex_11x11
from stoix_like.envs.boards.othello import make_othello
from stoix_like.envs.boards.ringrift import make_ringrift
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.errors import ConfigError
from stoix_like.games import BoardGame

MAKERS: dict[str, Callable[[], BoardGame]] = {
    "tic_tac_toe": make_tic_tac_toe,
    "connect_four": make_connect_four,
    "othello": make_othello,
    "hex_11x11": make_hex_11x11,
    "go_9x9": make_go_9x9,
}
"""Games of one number of players by name. A program may add its own, with that number in `board_games.GAMES`."""
BY_PLAYERS: dict[str, Callable[[int], BoardGame]] = {
    "square8": functools.partial(make_ringrift, "square8"),
    "hex8": functools.partial(make_ringrift, "hex8"),
    "square8_swap": functools.partial(make_ringrift, "square8", has_swap=True),
    "hex8_swap": functools.partial(make_ringrift, "hex8", has_swap=True),
}
"""Games that several numbers of players can play."""


def make_game(text: str) -> BoardGame:
    """The game of a name such as `connect_four`, `connect_four:2` or `connect_four_2p`.

    Raises:
        UnsupportedEnvironmentError: an unknown game, or one that is not available yet.
        ConfigError: a number of players that the game does not have.
    """
    name, num_players = parse_game(text)
    game = BY_PLAYERS[name](num_players) if name in BY_PLAYERS else MAKERS[name]()
    if game.num_players != num_players:
        what = f"'{text}': the maker of {name} makes a game of {game.num_players} players"
        raise ConfigError(what, "give each number of players a name and a maker of its own")
    return game
