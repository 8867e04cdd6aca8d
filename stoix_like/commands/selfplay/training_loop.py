"""The command `run_training_loop.py`: self-play, sync, export, train, evaluate, promote, once or several times."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stoix_like.config.checks.access import get_leaf, leaf_types
from stoix_like.config.checks.board_games import game_key, is_game, parse_game
from stoix_like.config.checks.selfplay import SET_BY_PIPELINE
from stoix_like.config.checks.values import nearest
from stoix_like.config.sections.runs import EvaluationConfig
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser, positive_int
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.loading import flags, help
from stoix_like.runtime.loading.config import LoadedConfig, preset_note
from stoix_like.runtime.loading.documents import print_yaml
from stoix_like.runtime.loading.presets import DEFAULT_PRESETS, preset_of_game
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout
from stoix_like.selfplay.files.iteration_start import SKIPPED, IterationStart, read_start
from stoix_like.selfplay.watch.status import layouts

ALGORITHM = "selfplay"  # in the names of presets
COMMAND = "run-training-loop"
#: {option: (metavar, description)} of what is no leaf of the configuration.
OPTIONS = {
    "board_type": (
        "GAME",
        "such as connect_four, as --task-id; without --config its own preset is used, if it has one",
    ),
    "num_players": ("N", "of the game (default: its own)"),
    "max_iterations": ("N", "iterations to finish (default: 1)"),
    "skip_selfplay": ("", "learn from the games that the store has"),
    "skip_evaluation": ("", "play no match; nothing is then promoted"),
    "data_path": ("FILE", "learn from a window.npz that an export stage has written elsewhere"),
    "stage": ("NAME", f"run this stage of the iteration alone, if it is due, and exit: {', '.join(STAGE_NAMES)}"),
    "new_iteration": ("", "leave an unfinished iteration as it is, and begin the next one"),
    "resume": ("", "go on with the settings of the last iteration; flags overwrite them; never begins a pipeline"),
    "rollback": ("", "make the champion before the present one champion again, and exit"),
    "dry_run": ("", "print which stages are to do, and exit"),
}
#: Leaves of a run's evaluations, of which a pipeline makes none: its matches are its own.
OF_EVALUATIONS = ("opening_plies", "anchors")
SWITCHES = [name for name, (metavar, _) in OPTIONS.items() if not metavar]


def main(argv: list[str]) -> int:
    """Runs the iterations; returns the exit code."""
    arguments, rest = make_parser().parse_known_args(argv)
    rest += _game_flags(arguments)
    if {"-h", "--help"} & set(rest):
        print(help_text())
        return 0
    if arguments.stage is not None:
        _check_stage(arguments)
    if arguments.resume or arguments.rollback:
        rest += _game_of_folder(rest)
    loaded, skipped, taken_over = _resumed(arguments, rest) if arguments.resume else (_load(rest), [], "")
    if loaded.options.print_config:
        print_yaml(loaded.given, loaded.notes)
        return 0
    _refuse_flags_of_the_pipeline(loaded.overridden)
    root = _folder_of(loaded.config)
    if arguments.rollback:
        _refuse_beside_rollback(arguments)
        return _roll_back(root)
    config = loaded.config
    devices.select(config.hardware, config.logging, compile_cache=loaded.options.is_cached)
    from stoix_like.selfplay.iterations import sequence
    from stoix_like.selfplay.iterations.begin import IterationOptions

    data_path = None if arguments.data_path is None else Path(arguments.data_path)
    each = IterationOptions(arguments.skip_selfplay, arguments.skip_evaluation, data_path, arguments.new_iteration)
    same = [word for word in argv if word != "--new-iteration"]
    first = each._replace(
        skip_selfplay=each.skip_selfplay or "skip_selfplay" in skipped,
        skip_evaluation=each.skip_evaluation or "skip_evaluation" in skipped,
    )
    number = arguments.max_iterations or 1
    options = sequence.LoopOptions(first, each, number, arguments.dry_run, arguments.stage, tuple(same))
    reporter = Reporter()
    for said in filter(None, (taken_over, *loaded.notes)):
        reporter.note(said)
    if not arguments.resume and (note := preset_note(loaded, ALGORITHM)):
        reporter.note(note)
    return sequence.run(config, options, reporter)


def _load(argv: list[str], leaves: Mapping[str, Any] = MappingProxyType({})) -> LoadedConfig:
    own = list(map(flags.flag_name, OPTIONS))
    return load_config(SelfPlayConfig, ALGORITHM, argv, _preset_of_game(argv), own, leaves)


def _resumed(arguments: argparse.Namespace, words: list[str]) -> tuple[LoadedConfig, list[str], str]:
    """(the configuration with the settings of the last iteration, what that skips, which settings are taken over)."""
    if _has_config(words):
        raise ConfigError("--resume: the pipeline has its own configuration", "leave out --config")
    preset = _load(words)
    start = _last_start(_folder_of(preset.config))
    loaded = _load(words, {} if start is None else start[2].leaves)
    skipped = _skipped_of(start, new=arguments.new_iteration)
    return loaded, skipped, _taken_over_text(start, preset.config, loaded.config)


def _has_config(words: Sequence[str]) -> bool:
    return any(word.partition("=")[0] == "--config" for word in words)


def _check_stage(arguments: argparse.Namespace) -> None:
    """Raises ConfigError for a stage that does not exist, or beside what means several."""
    if arguments.stage not in STAGE_NAMES:
        what = f"--stage: no stage '{arguments.stage}'{nearest(arguments.stage, STAGE_NAMES)}"
        raise ConfigError(what, f"stages are {', '.join(STAGE_NAMES)}")
    if beside := [name for name in ("max_iterations", "dry_run") if getattr(arguments, name)]:
        what = f"--stage: it cannot go with {flags.flag_name(beside[0])}"
        raise ConfigError(what, "leave out one of them")


def _game_of_folder(words: list[str]) -> list[str]:
    """The game that is meant where none is named, as flags: the only one of the folder.

    Raises ConfigError if there are several, and none is the game of the default preset.
    """
    layer = flags.parse_flags(words, SelfPlayConfig).layer
    if "task_id" in layer or _has_config(words):
        return []
    save_dir = Path(layer["save_dir"][0] if "save_dir" in layer else SelfPlayConfig().checkpointing.save_dir)
    found = [parse_game(one.root.name) for one in layouts(save_dir) if is_game(one.root.name)]
    if not found or _folder_of(_load(words).config) in [save_dir / game_key(*game) for game in found]:
        return []
    if len(found) > 1:
        what = f"{save_dir} has {', '.join(game_key(*game) for game in found)}: which of them?"
        raise ConfigError(what, "name one: --board-type GAME")
    return ["--task-id", game_key(*found[0])]


def _taken_over_text(
    last: tuple[Layout, int, IterationStart] | None, preset: SelfPlayConfig, config: SelfPlayConfig
) -> str:
    """What an iteration has that its preset has not, and that holds again; empty if there is nothing."""
    leaves = {} if last is None else last[2].leaves
    changed = {leaf: get_leaf(config, leaf) for leaf in leaves if get_leaf(config, leaf) != get_leaf(preset, leaf)}
    words = {leaf: value if isinstance(value, str) else json.dumps(value) for leaf, value in changed.items()}
    text = " ".join(f"{flags.flag_name(leaf)} {word}" for leaf, word in words.items())
    return f"as in iteration {last[1]}: {text}" if last is not None and changed else ""


def _folder_of(config: SelfPlayConfig) -> Path:
    """Of the game. Raises ConfigError if the folder of all games is that of one."""
    save_dir = Path(config.checkpointing.save_dir)
    if Layout(save_dir).champion.is_file():
        what = f"--save-dir: {save_dir} is the folder of one game"
        raise ConfigError(what, f"give the one that it is in: --save-dir {shlex.quote(str(save_dir.parent))}")
    return save_dir / game_key(*parse_game(config.environment.task_id))


def _last_start(root: Path) -> tuple[Layout, int, IterationStart] | None:
    """The newest iteration that was begun, and with what. Raises CheckpointError if there is no pipeline."""
    layout = Layout(root)
    if not layout.champion.is_file():
        folder = root if layouts(root.parent) else root.parent
        raise CheckpointError(f"--resume: no pipeline in {folder}", "leave out --resume to begin one")
    for number in layout.newest_first():
        if (start := read_start(layout, number)) is not None:
            return layout, number, start
    return None


def _skipped_of(last: tuple[Layout, int, IterationStart] | None, *, new: bool) -> list[str]:
    """What the last iteration skips, if it is unfinished and gone on with."""
    if last is None or new or read_manifest(last[0].stage(last[1], "promote")) is not None:
        return []
    return [name for name in SKIPPED if last[2].settings[name]]


def _refuse_beside_rollback(arguments: argparse.Namespace) -> None:
    """Raises ConfigError if a flag is given that means nothing beside --rollback."""
    beside = [name for name in ("data_path", "stage", *SWITCHES) if name != "rollback" and getattr(arguments, name)]
    if arguments.max_iterations is not None:
        beside.append("max_iterations")
    if beside:
        raise ConfigError(f"--rollback: it cannot go with {flags.flag_name(beside[0])}", "leave out one of them")


def help_text() -> str:
    """What `--help` prints."""
    general = {name: flags.OPTION_HELP[name] for name in ("config", "print_config", "debug", "help", "version")}
    options = OPTIONS | general
    preset, left_out = DEFAULT_PRESETS[ALGORITHM], {*SET_BY_PIPELINE, *leaf_types(EvaluationConfig), *OF_EVALUATIONS}
    return help.help_text(SelfPlayConfig, ALGORITHM, preset, command=COMMAND, options=options, left_out=left_out)


def _game_flags(arguments: argparse.Namespace) -> list[str]:
    """The game in the words of this command, as a flag of the configuration."""
    if arguments.board_type is None:
        if arguments.num_players is not None:
            raise ConfigError("--num-players: of which game?", "give --board-type as well")
        return []
    name, num_players = parse_game(arguments.board_type)
    if arguments.num_players not in (None, num_players) and arguments.board_type != name:
        what = f"--board-type {arguments.board_type} and --num-players {arguments.num_players} differ"
        raise ConfigError(what, f"give --board-type {name}")
    key = game_key(name, num_players if arguments.num_players is None else arguments.num_players)
    parse_game(key)  # raises for a number of players that the game does not have
    return ["--task-id", key]


def _preset_of_game(argv: list[str]) -> str:
    task_id = flags.parse_flags(argv, SelfPlayConfig).layer.get("task_id", ("connect_four", ""))[0]
    return preset_of_game(ALGORITHM, *parse_game(task_id)) if is_game(task_id) else DEFAULT_PRESETS[ALGORITHM]


def _refuse_flags_of_the_pipeline(overridden: frozenset[str]) -> None:
    given = [f"--{leaf.replace('_', '-')}: {why}" for leaf, why in SET_BY_PIPELINE.items() if leaf in overridden]
    if given:
        raise ConfigError(given, "leave it out")


def _roll_back(root: Path) -> int:
    from stoix_like.runtime.stages.hashes import array_hash
    from stoix_like.runtime.weights.parameters import stored_arrays
    from stoix_like.selfplay.files import records
    from stoix_like.selfplay.files.folders import find_layout
    from stoix_like.selfplay.iterations.begin import work_lock

    layout = find_layout(str(root))
    with work_lock(layout):
        before, now = records.roll_back(layout, lambda path: array_hash(stored_arrays(path)))
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
            parser.add_argument(flag, type=positive_int, metavar=metavar, help=text)
        elif metavar:
            parser.add_argument(flag, metavar=metavar, help=text)
        else:
            parser.add_argument(flag, action="store_true", help=text)
    return parser
