"""The command `play_board.py`: a person plays a run or an engine in the terminal, or looks at what it thinks."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from stoix_like.config.checks.board_games import is_game
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.arena.contestants import FORMS, parse_contestant
from stoix_like.runtime.console.arguments import (
    ArgumentParser,
    add_checkpoint_flag,
    add_device_flag,
    positive_int,
    seed_number,
)
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices

DEFAULT_OPPONENT = "heuristic"

if TYPE_CHECKING:
    from stoix_like.runtime.arena.session import BoardSession


def main(argv: list[str]) -> int:
    """Plays until the person quits, or prints the analysis; returns the exit code."""
    arguments = _with_opponent(make_parser().parse_args(argv))
    spec = parse_contestant(arguments.opponent)
    if arguments.simulations is not None:
        if spec.run is None:
            raise ConfigError(f"--simulations: {spec.text} is an engine", "write mcts-N for an engine that searches")
        spec = spec._replace(num_simulations=arguments.simulations)
    devices.select(HardwareConfig(device_type=arguments.device_type))
    from stoix_like.runtime.arena.analysis import analyzer
    from stoix_like.runtime.arena.board_text import split_moves
    from stoix_like.runtime.arena.contestants import common_game, load_contestant
    from stoix_like.runtime.arena.session import BoardSession
    from stoix_like.runtime.runs.saved import load_run

    game = common_game([] if spec.run is None else [spec.run], arguments.checkpoint, arguments.game)
    seat = arguments.seat - 1
    if not 0 <= seat < game.num_players:
        raise ConfigError(f"--seat: {game.name} has {game.num_players} players", f"give 1 to {game.num_players}")
    run = None if spec.run is None else load_run(spec.run, arguments.checkpoint)
    session = BoardSession(game, load_contestant(spec, game, run), seat, analyzer(spec, game, run), arguments.seed)
    try:
        session.set_up(split_moves(game, arguments.moves))
    except ValueError as error:
        hint = "write moves from the start of the game, such as '4 4 3' or 'place 2 e5, e5 to e7'"
        raise ConfigError(f"--moves: {error}", hint) from error
    if arguments.analyze:
        print("\n".join([session.drawing(), *session.analysis()]))
        return 0
    return _converse(session)


def _with_opponent(arguments: Namespace) -> Namespace:
    """A game alone is played against the heuristic."""
    if not is_game(arguments.opponent) or Path(arguments.opponent).is_dir():
        return arguments
    if arguments.game is not None:
        what = f"two games, {arguments.opponent} and --game {arguments.game}"
        raise ConfigError(what, "name one game, and the opponent: play_board.py mcts-64 --game hex8")
    return Namespace(**vars(arguments) | {"game": arguments.opponent, "opponent": DEFAULT_OPPONENT})


def _converse(session: BoardSession) -> int:
    print("\n".join([*session.begin(), "help lists what can be written"]), flush=True)
    while True:
        print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line or line.strip().lower() in ("quit", "exit"):
            return 0
        print("\n".join(session.enter(line)), flush=True)


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("play-board"), "Play a run or an engine of a board game in the terminal.")
    parser.add_argument("opponent", help=f"who you play: {FORMS}; or a game, to play its heuristic")
    parser.add_argument("--game", help="such as connect_four (default: the run's own)")
    parser.add_argument(
        "--seat", type=positive_int, default=1, metavar="N", help="your player (default: 1, who begins)"
    )
    help_text = "of the run's search for each move (default: the run's own)"
    parser.add_argument("--simulations", type=positive_int, metavar="N", help=help_text)
    parser.add_argument("--moves", default="", help="moves played before you begin, such as '4 4 3'")
    help_text = "print policy, values, visits and best line of the position after --moves, and end"
    parser.add_argument("--analyze", action="store_true", help=help_text)
    parser.add_argument("--seed", type=seed_number, default=0, help="of players that choose at random (default: 0)")
    add_checkpoint_flag(parser)
    add_device_flag(parser)
    return parser
