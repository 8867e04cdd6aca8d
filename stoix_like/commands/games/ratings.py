"""The command `ratings.py`: rates the checkpoints of runs of a board game, with engines as anchors."""

from __future__ import annotations

import argparse
from pathlib import Path

from stoix_like.config.checks.alphazero import anchor_names, engine_problems
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import (
    ArgumentParser,
    add_device_flag,
    add_json_flag,
    add_runs_argument,
    output_file,
    positive_int,
    seed_number,
)
from stoix_like.runtime.console.messages import print_to_stderr, reported_if_slow
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.storage.atomic import write_output_json
from stoix_like.selfplay.files.folders import is_pipeline

ANCHORS = "heuristic, random, mcts-32, mcts-128"


def main(argv: list[str]) -> int:
    """Plays the league, prints the ratings and draws them; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    if len(arguments.runs) == 1 and not arguments.lineage and is_pipeline(arguments.runs[0]):
        arguments.lineage, arguments.runs = arguments.runs[0], []
    if arguments.lineage:
        _refuse_beside_lineage(arguments)
        return _print_lineage(arguments.lineage, arguments.out, arguments.json)
    if not arguments.runs:
        raise ConfigError("no runs are named", "name runs of a board game, or the folder of a self-play pipeline")
    anchors = anchor_names(arguments.anchors)
    if problems := engine_problems("--anchors", anchors):
        raise ConfigError(problems, "anchors are engines, such as heuristic, random, mcts-128")
    if not anchors:
        raise ConfigError("--anchors: without anchors ratings have no scale", "give at least one, such as heuristic")
    devices.select(HardwareConfig(device_type=arguments.device_type))
    from stoix_like.algorithms.tasks import book
    from stoix_like.runtime.arena import league, tables
    from stoix_like.runtime.arena.figure import plot_ratings
    from stoix_like.runtime.figures.style import check_format

    if arguments.out:
        check_format(arguments.out)
    simulations = 0 if arguments.network else arguments.simulations
    game, members = league.members_of(arguments.runs, anchors, simulations)
    with reported_if_slow(f"making openings of {game.name}", print_to_stderr):
        openings = book(game, arguments.opening_plies, arguments.openings)
    print(f"{game.name}: {len(members)} players, {tables.book_text(openings)} a match", flush=True)
    played = league.play_league(game, members, openings, arguments.seed, print_to_stderr)
    print("\n".join(tables.rating_table(played.table)))
    if note := tables.disconnected_note(played.table.disconnected):
        print(f"note: {note}")
    runs = list(dict.fromkeys(member.run for member in members if member.run))
    out = arguments.out or (_folder(arguments.runs[0]) / "ratings.png" if len(runs) == 1 else Path("ratings.png"))
    if arguments.json:
        facts = tables.book_json(openings) | {"anchors": anchors, "simulations": simulations, "seed": arguments.seed}
        write_output_json(arguments.json, facts | tables.league_json(members, played.table, played.records))
    print(f"ratings {plot_ratings(played, out)}")
    return 0


def _refuse_beside_lineage(arguments: argparse.Namespace) -> None:
    """Raises ConfigError if something is given that only matches could follow: the games of a lineage were played."""
    defaults = make_parser().parse_args([])
    names = ("runs", "anchors", "simulations", "network", "openings", "opening_plies", "seed")
    if beside := [name for name in names if getattr(arguments, name) != getattr(defaults, name)]:
        what = "runs" if beside[0] == "runs" else f"--{beside[0].replace('_', '-')}"
        raise ConfigError(f"--lineage: it cannot go with {what}, because nothing is played", "leave out one of them")


def _print_lineage(folder: str, out: Path | None, json_file: Path | None) -> int:
    from stoix_like.runtime.console.text import aligned
    from stoix_like.runtime.figures.panels import plot_panels
    from stoix_like.runtime.figures.style import check_format
    from stoix_like.selfplay.files.folders import find_layout
    from stoix_like.selfplay.ratings.lineage import as_json, panel_of, read_ancestry, table_rows

    if out:
        check_format(out)
    layout = find_layout(folder)
    ancestry = read_ancestry(layout)
    print("\n".join(aligned(table_rows(ancestry))))
    if json_file:
        write_output_json(json_file, as_json(ancestry))
    panel = panel_of(f"{layout.root.name}: ratings with 95 % intervals", ancestry)
    figure = plot_panels([panel], out or layout.root / "ratings.png", "iteration", "Elo", log_x=False)
    print(f"ratings {figure}")
    return 0


def _folder(run: str) -> Path:
    from stoix_like.runtime.runs.find import find_run

    return find_run(run)


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    what = "Rates every checkpoint of runs of a board game: Bradley-Terry over all matches, 95 % intervals."
    parser = ArgumentParser(prog("ratings"), what)
    add_runs_argument(parser, nargs="*")
    help_text = (
        "rate the candidates of a self-play pipeline from the games that decided on them; nothing is played; the"
    )
    help_text += " folder alone means the same"
    parser.add_argument("--lineage", metavar="FOLDER", help=help_text)
    help_text = f"engines, the first with the fixed rating 1000 (default: {ANCHORS})"
    parser.add_argument("--anchors", default=ANCHORS, metavar="A,B,…", help=help_text)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--simulations", type=positive_int, metavar="N", help="of the runs' searches (default: own)")
    group.add_argument("--network", action="store_true", help="rate the networks alone, without search")
    help_text = "most openings of a match, each of which is played from every seat (default: 64)"
    parser.add_argument("--openings", type=positive_int, default=64, metavar="N", help=help_text)
    parser.add_argument("--opening-plies", type=int, metavar="N", help="plies of the openings (default: by game)")
    parser.add_argument("--seed", type=seed_number, default=0, help="of players that choose at random (default: 0)")
    help_text = "figure: .png, .pdf or .svg (default: ratings.png, for one run or pipeline in its folder)"
    parser.add_argument("--out", type=output_file, help=help_text)
    add_json_flag(parser)
    add_device_flag(parser)
    return parser
