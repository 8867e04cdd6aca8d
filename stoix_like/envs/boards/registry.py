"""Board games by name. A game's module is imported when the game is made: some import pgx, which starts the backend."""

from __future__ import annotations

from stoix_like.config.board_games import parse_game
from stoix_like.games import BoardGame


def make_game(text: str) -> BoardGame:
    """The game of a name such as `connect_four`, `connect_four:2` or `connect_four_2p`.

    Raises:
        UnsupportedEnvironmentError: an unknown game, or one that is not available yet.
        ConfigError: a number of players that the game does not have.
        MissingExtraError: the game has pgx's rules, and pgx is not installed.
    """
    name, _ = parse_game(text)
    if name == "connect_four":
        from stoix_like.envs.boards.connect_four import make_connect_four as maker
    elif name == "othello":
        from stoix_like.envs.boards.othello import make_othello as maker
    elif name == "hex_11x11":
        from stoix_like.envs.boards.hex_11x11 import make_hex_11x11 as maker
    elif name == "go_9x9":
        from stoix_like.envs.boards.go_9x9 import make_go_9x9 as maker
    else:
        from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe as maker
    return maker()
