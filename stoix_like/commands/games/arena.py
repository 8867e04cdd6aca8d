"""The command `arena.py`: a match or a contest on a board game, and strength against simulations."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoix_like.config.checks.engines import MOST_SIMULATIONS
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.arena.contestants import FORMS, ContestantSpec, parse_contestant
from stoix_like.runtime.console.arguments import (
    ArgumentParser,
    add_checkpoint_flag,
    add_device_flag,
    add_json_flag,
    positive_int,
    seed_number,
)
from stoix_like.runtime.console.messages import print_to_stderr, reported_if_slow
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.storage.atomic import write_output_json

if TYPE_CHECKING:
    from stoix_like.evaluation.contests.openings import OpeningBook
    from stoix_like.games import BoardGame
    from stoix_like.runtime.arena.contestants import Contestant


def main(argv: list[str]) -> int:
    """Plays the match and prints its scores; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    specs = _variants(parse_contestant(arguments.first), arguments.simulations)
    others = [parse_contestant(text) for text in (arguments.second, *arguments.others)]
    if arguments.others and arguments.simulations is not None:
        raise ConfigError("--simulations: it is of a match of two", "write gumbel-mcts-N:RUN for each contestant")
    devices.select(HardwareConfig(device_type=arguments.device_type))
    from stoix_like.algorithms.tasks import book
    from stoix_like.runtime.arena.contestants import load_contestants

    texts = [spec.text for spec in (*specs, *others)]
    game, contestants = load_contestants(texts, arguments.game, arguments.checkpoint)
    if arguments.others:
        _check_seats(game, contestants)
    with reported_if_slow(f"making openings of {game.name}", print_to_stderr):
        openings = book(game, arguments.opening_plies, arguments.openings)
    (_play_contest if arguments.others else _play_match)(arguments, game, contestants, openings)
    return 0


def _play_match(
    arguments: argparse.Namespace, game: BoardGame, contestants: Sequence[Contestant], openings: OpeningBook
) -> None:
    """All but the last, each against the last."""
    from stoix_like.runtime.arena import match, tables

    *firsts, second = contestants
    first_line = f"{game.name}: {tables.book_text(openings)}, each from every seat, against {second.name}"
    print("\n".join([first_line, *tables.origin_lines([firsts[0], second])]), flush=True)
    rows = match.play_each(game, firsts, second, openings, arguments.seed, print_to_stderr)
    print("\n".join(tables.match_table(rows)))
    if arguments.json:
        matches = {first.name: first.origin | tables.match_json(rows[first.name]) for first in firsts}
        facts = tables.book_json(openings) | {"opponent": {"name": second.name} | second.origin}
        write_output_json(arguments.json, facts | {"seed": arguments.seed, "matches": matches})


def _play_contest(
    arguments: argparse.Namespace, game: BoardGame, contestants: Sequence[Contestant], openings: OpeningBook
) -> None:
    """All against each other, in every order of seats."""
    from stoix_like.runtime.arena import contest, tables

    first_line = f"{game.name}: {tables.book_text(openings)}, each in every order of seats"
    print("\n".join([first_line, *tables.origin_lines(contestants)]), flush=True)
    summary = contest.play_contest(game, contestants, openings, arguments.seed, print_to_stderr)
    print("\n".join(tables.contest_table(summary)))
    if arguments.json:
        facts = tables.book_json(openings) | {"seed": arguments.seed}
        origins = {one.name: one.origin for one in contestants}
        write_output_json(arguments.json, facts | {"origins": origins} | tables.contest_json(summary))


def _check_seats(game: BoardGame, contestants: Sequence[Contestant]) -> None:
    """Raises ConfigError if not every seat could have a contestant of its own, or two have one name."""
    names = [one.name for one in contestants]
    if len(names) < game.num_players:
        what = f"{len(names)} contestants, and {game.name} has {game.num_players} seats"
        raise ConfigError(what, f"name two, of whom one has all other seats, or at least {game.num_players}")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{twice[0]} stands there twice", "name each contestant once; their games would be one's")


def _variants(first: ContestantSpec, simulations: list[int] | None) -> list[ContestantSpec]:
    """The first contestant, or one of it for each number of simulations."""
    if simulations is None:
        return [first]
    if first.run is None:
        raise ConfigError(f"--simulations: {first.text} is an engine", "it is of runs; write mcts-128 for engines")
    return [parse_contestant(f"gumbel-mcts-{n}:{first.run}" if n else f"policy:{first.run}") for n in simulations]


def _simulations(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part[:9]) <= MOST_SIMULATIONS for part in parts):
        raise argparse.ArgumentTypeError(f"expected numbers such as 1,8,32, got '{text}'; 0 is the network alone")
    return [int(part) for part in parts]


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("arena"), "Plays two or more players of a board game against each other.")
    parser.add_argument("first", metavar="A", help=f"who is scored: {FORMS}")
    parser.add_argument("second", metavar="B", help="the opponent, written in the same way")
    help_text = "more of them: all play all, in every order of seats, and are ranked"
    parser.add_argument("others", metavar="C", nargs="*", help=help_text)
    parser.add_argument("--game", help="such as connect_four (default: the runs' own)")
    help_text = "play A with each number, such as 1,8,32,128; 0 is its network alone (default: the run's own)"
    parser.add_argument("--simulations", type=_simulations, metavar="N,N,…", help=help_text)
    help_text = "most openings, each of which is played from every seat (default: 256)"
    parser.add_argument("--openings", type=positive_int, default=256, metavar="N", help=help_text)
    parser.add_argument("--opening-plies", type=int, metavar="N", help="plies of the openings (default: by game)")
    parser.add_argument("--seed", type=seed_number, default=0, help="of players that choose at random (default: 0)")
    add_checkpoint_flag(parser)
    add_json_flag(parser)
    add_device_flag(parser)
    return parser
