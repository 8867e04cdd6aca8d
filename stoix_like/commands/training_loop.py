"""The command `run_training_loop.py`: self-play, sync, export, train, evaluate, promote, once or several times."""

from __future__ import annotations

import argparse
from pathlib import Path

from stoix_like.config.board_games import game_key, is_game, parse_game
from stoix_like.config.selfplay_checks import SET_BY_PIPELINE
from stoix_like.config.selfplay_section import SelfPlayConfig
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser, positive_int
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.loading import flags
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.loading.presets import DEFAULT_PRESETS, preset_paths
from stoix_like.runtime.runs.sources import load_config

ALGORITHM = "selfplay"  # in the names of presets
COMMAND = "run-training-loop"
#: {option: (metavar, description)} of what is no leaf of the configuration.
OPTIONS = {
    "board_type": ("GAME", "such as connect_four; the same as --task-id"),
    "num_players": ("N", "of the game (default: its own)"),
    "max_iterations": ("N", "iterations to finish (default: 1)"),
    "skip_selfplay": ("", "learn from the games that the store has"),
    "skip_evaluation": ("", "play no match; nothing is then promoted"),
    "data_path": ("FILE", "learn from a window.npz that an export stage has written elsewhere"),
    "new_iteration": ("", "leave an unfinished iteration as it is, and begin the next one"),
    "resume": ("", "go on, and refuse to begin a pipeline"),
    "rollback": ("", "make the champion before the present one champion again, and exit"),
    "dry_run": ("", "print which stages are to do, and exit"),
}


def main(argv: list[str]) -> int:
    """Runs the iterations; returns the exit code."""
    arguments, rest = make_parser().parse_known_args(argv)
    rest += _game_flags(arguments)
    if {"-h", "--help"} & set(rest):
        print(help_text())
        return 0
    loaded = load_config(SelfPlayConfig, ALGORITHM, rest, _preset_of_game(rest))
    if loaded.options.print_config:
        print(to_yaml(loaded.given), end="")
        return 0
    _refuse_flags_of_the_pipeline(loaded.overridden)
    config = loaded.config
    root = Path(config.checkpointing.save_dir) / game_key(*parse_game(config.environment.task_id))
    if arguments.resume and not (root / "champion.json").is_file():
        raise CheckpointError(f"--resume: no pipeline in {root}", "leave out --resume to begin one")
    if arguments.rollback:
        if arguments.dry_run:
            raise ConfigError("--rollback: it cannot be tried with --dry-run", "leave out one of them")
        return _roll_back(root)
    devices.select(config.hardware, config.logging, compile_cache=loaded.options.is_cached)
    from stoix_like.selfplay import loop
    from stoix_like.selfplay.iteration import IterationOptions

    data_path = None if arguments.data_path is None else Path(arguments.data_path)
    each = IterationOptions(arguments.skip_selfplay, arguments.skip_evaluation, data_path, arguments.new_iteration)
    same = [word for word in argv if word != "--new-iteration"]
    options = loop.LoopOptions(each, arguments.max_iterations, arguments.dry_run, tuple(same))
    return loop.run(config, options, Reporter())


def help_text() -> str:
    """What `--help` prints."""
    general = {name: flags.OPTION_HELP[name] for name in ("config", "print_config", "debug", "help", "version")}
    options = OPTIONS | general
    return flags.help_text(SelfPlayConfig, ALGORITHM, DEFAULT_PRESETS[ALGORITHM], command=COMMAND, options=options)


def _game_flags(arguments: argparse.Namespace) -> list[str]:
    """The game in the words of this command, as a flag of the configuration."""
    if arguments.board_type is None:
        if arguments.num_players is not None:
            raise ConfigError("--num-players: of which game?", "give --board-type as well")
        return []
    name, num_players = parse_game(arguments.board_type)
    key = game_key(name, num_players if arguments.num_players is None else arguments.num_players)
    parse_game(key)  # raises for a number of players that the game does not have
    return ["--task-id", key]


def _preset_of_game(argv: list[str]) -> str:
    task_id = flags.parse_flags(argv, SelfPlayConfig).layer.get("task_id", ("connect_four", ""))[0]
    preset = f"{ALGORITHM}/{parse_game(task_id)[0]}" if is_game(task_id) else ""
    return preset if preset in preset_paths() else DEFAULT_PRESETS[ALGORITHM]


def _refuse_flags_of_the_pipeline(overridden: frozenset[str]) -> None:
    given = [f"--{leaf.replace('_', '-')}: {why}" for leaf, why in SET_BY_PIPELINE.items() if leaf in overridden]
    if given:
        raise ConfigError(given, "leave it out")


def _roll_back(root: Path) -> int:
    from stoix_like.runtime.stages.hashes import array_hash
    from stoix_like.runtime.storage.lock import RunLock
    from stoix_like.runtime.weights.parameters import stored_arrays
    from stoix_like.selfplay import records
    from stoix_like.selfplay.folders import LOCK, find_layout

    layout = find_layout(str(root))
    lock = RunLock(root, LOCK, "use another --save-dir")
    try:
        before, now = records.roll_back(layout, lambda path: array_hash(stored_arrays(path)))
    finally:
        lock.close()
    print(
        f"champion {before.hash[:12]} of iteration {before.iteration}, again; before {now.hash[:12]} of {now.iteration}"
    )
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the arguments that are no leaves of the configuration."""
    parser = ArgumentParser(prog(COMMAND), "Self-play in stages on disk, one iteration or several.", add_help=False)
    for name, (metavar, text) in OPTIONS.items():
        flag = f"--{name.replace('_', '-')}"
        if metavar == "N":
            default = 1 if name == "max_iterations" else None
            parser.add_argument(flag, type=positive_int, default=default, metavar=metavar, help=text)
        elif metavar:
            parser.add_argument(flag, metavar=metavar, help=text)
        else:
            parser.add_argument(flag, action="store_true", help=text)
    return parser
