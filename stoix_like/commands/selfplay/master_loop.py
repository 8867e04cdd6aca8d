"""The command `master_loop.py`: games by self-play for as long as it is let, and what such a loop is doing."""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stoix_like.config.layers import Layer
from stoix_like.config.sections.master_loop import UnifiedLoopConfig, games_of, with_game_leaves
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import command_line, prog
from stoix_like.runtime.loading import flags, help
from stoix_like.runtime.loading.documents import print_yaml
from stoix_like.runtime.loading.partial import read_partial
from stoix_like.runtime.storage.atomic import json_text
from stoix_like.selfplay.loops import games
from stoix_like.selfplay.watch import status, status_text
from stoix_like.selfplay.watch.last_games import games_note, last_games
from stoix_like.selfplay.watch.lines import conclude
from stoix_like.selfplay.watch.presence import MASTER

if TYPE_CHECKING:
    from stoix_like.runtime.loading.partial import PartialConfig

COMMAND, KIND, PRESET = "master-loop", "selfplay", "selfplay/unified_loop"
WATCH_SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"  # moves to the top of a terminal, and empties it
#: {option: description}.
OPTIONS = {
    "status": "show what the loops in save_dir are doing, and exit: 0 healthy, 1 not running or unhealthy",
    "watch": "show that again every two seconds, until Ctrl-C; starts nothing",
    "json": "with --status: as JSON",
}


def main(argv: list[str]) -> int:
    """Runs the loop, or shows what one is doing; returns the exit code."""
    arguments, words = make_parser().parse_known_args(argv)
    if {"-h", "--help"} & set(words):
        print(help_text())
        return 0
    loaded = load(words)
    if loaded.options.resume is not None:
        raise ConfigError("--resume: a loop goes on by itself", "leave it out")
    config: UnifiedLoopConfig = loaded.config
    save_dir = Path(config.loop.save_dir)
    if arguments.json and not arguments.status:
        raise ConfigError("--json: of what?", "give --status as well")
    if arguments.status or arguments.watch:
        if loaded.rest:
            raise ConfigError(f"unexpected argument '{loaded.rest[0]}'", f"{prog(COMMAND)} --help lists its arguments")
        return show_status(save_dir, arguments)
    config, notes = _with_last_games(loaded)
    layer = _game_flags(loaded)
    if loaded.options.print_config:
        print_yaml(with_game_leaves(config, {leaf: value for leaf, (value, _) in layer.items()}), notes)
        return 0
    from stoix_like.selfplay.loops.start import run_master

    reporter = Reporter()
    for note in notes:
        reporter.note(note)
    stats = run_master(config, words=loaded.rest, reporter=reporter)
    return conclude(stats, command_line(COMMAND, *argv), reporter)


def _with_last_games(loaded: PartialConfig) -> tuple[UnifiedLoopConfig, list[str]]:
    """(the configuration, notes): without a file and `--games`, with the games of the folder's last master loop."""
    config: UnifiedLoopConfig = loaded.config
    save_dir = Path(config.loop.save_dir)
    is_told = loaded.options.config is not None or "games" in loaded.flags
    found = [] if is_told else last_games(save_dir, MASTER)
    if not found or found == games_of(config.loop.games):
        return config, loaded.notes
    names = ",".join(f"{name}:{players}" for name, players in found)
    section = dataclasses.replace(config.loop, games=names)
    return dataclasses.replace(config, loop=section), [*loaded.notes, games_note(save_dir, found)]


def check(argv: list[str]) -> None:
    """Raises ConfigError or UnsupportedEnvironmentError for a command line that the loop would refuse."""
    _game_flags(load(make_parser().parse_known_args(argv)[1]))


def _game_flags(loaded: PartialConfig) -> Layer:
    """The flags that are leaves of the games' configurations."""
    games_of(loaded.config.loop.games)
    own_flags = [*flags.flag_table(UnifiedLoopConfig), *map(flags.flag_name, OPTIONS)]
    return games.check_words(loaded.rest, {"selfplay_games": "it is a flag of this loop"}, own_flags).layer


def load(words: list[str]) -> PartialConfig:
    """The configuration of a command line. Raises ConfigError with all that is wrong."""
    return read_partial(UnifiedLoopConfig, KIND, words, PRESET)


def show_status(save_dir: Path, arguments: argparse.Namespace) -> int:
    """Prints the status once, or again and again; returns its exit code. Reads only."""
    found = status.read_status(save_dir)
    if not arguments.watch:
        print(json_text(found).rstrip() if arguments.json else "\n".join(status_text.status_lines(found)))
        return status.exit_code(found)
    import sys

    while True:
        lines = status_text.status_lines(status.read_status(save_dir))
        print((CLEAR if sys.stdout.isatty() else "") + "\n".join(lines), flush=True)
        time.sleep(WATCH_SECONDS)


def help_text() -> str:
    """What `--help` prints."""
    general = {name: flags.OPTION_HELP[name] for name in ("config", "print_config", "debug", "help", "version")}
    options = {name: ("", text) for name, text in OPTIONS.items()} | general
    first = f"Without --config the preset {PRESET} is used. Flags of games, such as --num-simulations, hold for all of"
    first += f" them: {prog('run-continuous-training')} --help lists them."
    intro = "[--config FILE|PRESET]", first
    return help.help_text(UnifiedLoopConfig, KIND, PRESET, command=COMMAND, options=options, intro=intro)


def make_parser() -> ArgumentParser:
    """The parser of the arguments that are no leaves."""
    parser = ArgumentParser(prog(COMMAND), "Self-play of several games, with all that belongs to it.", add_help=False)
    for name, text in OPTIONS.items():
        parser.add_argument(flags.flag_name(name), action="store_true", help=text)
    return parser
