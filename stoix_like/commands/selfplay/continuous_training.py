"""The command `run_continuous_training.py`: self-play of several games, an iteration each in turn, until stopped."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from stoix_like.config.checks.access import leaf_types
from stoix_like.config.checks.board_games import parse_game
from stoix_like.config.checks.selfplay import SET_BY_PIPELINE
from stoix_like.config.sections.continuous_loop import DEFAULT_GAMES, MIN_SAMPLES, LoopConfig, check_games
from stoix_like.config.sections.runs import CheckpointingConfig, EvaluationConfig
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser, positive_int
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import command_line, prog
from stoix_like.runtime.loading import flags, help
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.loading.flags import ParsedFlags
from stoix_like.runtime.loading.presets import DEFAULT_PRESETS
from stoix_like.selfplay.loops import games
from stoix_like.selfplay.watch.last_games import games_note, last_games
from stoix_like.selfplay.watch.lines import conclude
from stoix_like.selfplay.watch.presence import CONTINUOUS

COMMAND = "run-continuous-training"
_GAMES = " and ".join(f"{name}:{players}" for name, players in DEFAULT_GAMES)
#: {option: (short form, metavar, description)} of what is no leaf of the games' configurations.
OPTIONS = {
    "config": (
        "-c",
        "GAME[:N]",
        "a game and its number of players; give it once for each game"
        f" (default: those of the last such loop in the folder, or {_GAMES})",
    ),
    "games": ("-n", "N", "games of a batch of self-play, as --selfplay-games (default: 1000)"),
    "max_iterations": ("-i", "N", "iterations of all games together, after which the loop ends (default: no end)"),
    "cooldown": ("", "SECONDS", "pause after an iteration (default: 60)"),
    "timeout": ("", "SECONDS", "that the stages after self-play may take together (default: 7200)"),
    "max_failures": ("", "N", "failures of a stage in a row, after which it is left alone for a while (default: 3)"),
    "backoff": ("", "SECONDS", "for how long; twice as long after each failed trial, up to an hour (default: 300)"),
    "defer_interval": ("", "SECONDS", "between two looks whether a master loop has ended (default: 60)"),
    "verbose": ("-v", "", "log more: --log-level debug"),
    "force": ("-f", "", "never wait for a master loop; refused where one runs in the same --save-dir"),
}
#: {option: the field of LoopConfig}.
_FIELDS = {
    "games": "selfplay_games_per_iteration",
    "max_iterations": "max_iterations",
    "cooldown": "iteration_cooldown_seconds",
    "timeout": "pipeline_timeout_seconds",
    "max_failures": "max_consecutive_failures",
    "backoff": "failure_backoff_seconds",
    "defer_interval": "defer_check_interval_seconds",
    "force": "force",
}
#: Further flags of options: in the master loop, --games names games.
FURTHER_FLAGS = {"games": ("--selfplay-games",)}
_INTRO = "[--config GAME[:N] ...]", "Each game has the leaves of its own preset, selfplay/GAME."
SHORT_ENGINE = "-e"  # of the leaf --engine


def main(argv: list[str]) -> int:
    """Runs the loop; returns the exit code: 130 if a signal ended it."""
    arguments, words = make_parser().parse_known_args(argv)
    if {"-h", "--help"} & set(words):
        print(help_text())
        return 0
    if asked := {"--status", "--watch"} & set(words):
        hint = f"{command_line('master-loop', *sorted(asked))} shows what loops of either kind are doing"
        raise ConfigError(f"{' '.join(sorted(asked))}: this command starts a loop", hint)
    config, parsed, chosen = _read(arguments, words)
    if parsed.options.print_config:
        print("---\n".join(map(to_yaml, chosen.values())), end="")
        return 0
    from stoix_like.selfplay.loops.start import run_games

    save_dir, reporter = Path(next(iter(chosen.values())).checkpointing.save_dir), Reporter()
    if not arguments.config and list(config.configs) != list(DEFAULT_GAMES):
        reporter.note(games_note(save_dir, config.configs))
    stats = run_games(config, save_dir, chosen, reporter=reporter)
    return conclude(stats, command_line(COMMAND, *argv), reporter)


def check(argv: list[str]) -> None:
    """Raises ConfigError or UnsupportedEnvironmentError for a command line that the loop would refuse."""
    _read(*make_parser().parse_known_args(argv))


def _read(
    arguments: argparse.Namespace, words: list[str]
) -> tuple[LoopConfig, ParsedFlags, dict[tuple[str, int], SelfPlayConfig]]:
    """(the loop's configuration, the flags of its games, the configuration of each game)."""
    config = loop_config(arguments)
    parsed = _leaf_flags(arguments, words)
    if not arguments.config and (found := last_games(_save_dir(parsed), CONTINUOUS)):
        config = dataclasses.replace(config, configs=found)
    check_games(config.configs)
    return (
        config,
        parsed,
        {game: games.game_config(*game, games.leaves_of(config), parsed.layer) for game in config.configs},
    )


def _save_dir(parsed: ParsedFlags) -> Path:
    """The folder of all pipelines."""
    default = CheckpointingConfig().save_dir
    return Path(str(parsed.layer["save_dir"][0]) if "save_dir" in parsed.layer else default)


def loop_config(arguments: argparse.Namespace) -> LoopConfig:
    """The configuration of the loop in the words of this command. Raises ConfigError with all that is wrong."""
    values = {field: getattr(arguments, name) for name, field in _FIELDS.items()}
    for text in arguments.config or ():
        if "/" in text or text.endswith((".yaml", ".yml")):
            hint = (
                "here --config names a game, such as connect_four:2; leaves are flags, and master_loop.py takes files"
            )
            raise ConfigError(f"--config: '{text}' is no game", hint)
    if arguments.config:
        values["configs"] = [parse_game(text) for text in arguments.config]
    return LoopConfig(**{field: value for field, value in values.items() if value is not None})


def _leaf_flags(arguments: argparse.Namespace, words: list[str]) -> ParsedFlags:
    """The flags that are leaves of the games' configurations. Raises ConfigError for those that a loop sets itself."""
    words = ["--engine" if word == SHORT_ENGINE else word for word in words]
    refused = {"task_id": "--config names the games"}
    parsed = games.check_words(words, refused, list(map(flags.flag_name, OPTIONS)))
    if arguments.verbose:
        parsed.layer.setdefault("log_level", ("debug", "--verbose"))
    return parsed


def help_text() -> str:
    """What `--help` prints."""
    general = {"print_config": ("", "print the configuration of each game as YAML, and exit")}
    general |= {name: flags.OPTION_HELP[name] for name in ("debug", "help", "version")}
    own = {
        name: (metavar, f"{text} (also {short})" if short else text) for name, (short, metavar, text) in OPTIONS.items()
    }
    left_out = {
        *SET_BY_PIPELINE,
        *leaf_types(EvaluationConfig),
        "opening_plies",
        "anchors",
        "task_id",
        "selfplay_games",
    }
    preset = DEFAULT_PRESETS[games.ALGORITHM]
    return help.help_text(
        SelfPlayConfig,
        games.ALGORITHM,
        preset,
        command=COMMAND,
        options=own | general,
        left_out=left_out,
        intro=_INTRO,
        set_here={"min_samples": MIN_SAMPLES},
    )


def make_parser() -> ArgumentParser:
    """The parser of the arguments that are no leaves of the games' configurations."""
    parser = ArgumentParser(prog(COMMAND), "Several games by self-play in turn, until it is stopped.", add_help=False)
    for name, (short, metavar, text) in OPTIONS.items():
        names = [flags.flag_name(name), *([short] if short else []), *FURTHER_FLAGS.get(name, ())]
        if not metavar:
            parser.add_argument(*names, action="store_true", default=None, help=text)
        elif metavar.startswith("GAME"):
            parser.add_argument(*names, action="append", metavar=metavar, help=text)
        else:
            parser.add_argument(*names, type=positive_int if metavar == "N" else float, metavar=metavar, help=text)
    return parser
