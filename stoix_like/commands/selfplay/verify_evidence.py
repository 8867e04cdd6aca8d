"""The command `verify_evidence.py`: plays the match that decided on a candidate again, and compares move by move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoix_like.config.layers import resolve
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser, add_device_flag, positive_int
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.console.text import aligned, plural
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import Layout, find_layout
from stoix_like.selfplay.files.iteration_start import IterationStart, read_start

if TYPE_CHECKING:
    from stoix_like.selfplay.stages.verification import CheckedPiece

_VERDICTS = ("confirmed", "false", "not comparable")


def main(argv: list[str]) -> int:
    """Prints what came of each piece of the match; returns the exit code: 0 if all are confirmed, else 1."""
    arguments = make_parser().parse_args(argv)
    layout = find_layout(arguments.pipeline)
    number, evaluated, start = _evaluation(layout, arguments.iteration)
    devices.select(HardwareConfig(device_type=arguments.device_type))
    from stoix_like.selfplay.pipeline.programs import Pipeline
    from stoix_like.selfplay.stages import verification

    leaves = start.leaves | evaluated.settings | {"save_dir": str(layout.root.parent)}
    pipeline = Pipeline(resolve(SelfPlayConfig(), leaves), Reporter())
    pipeline.layout = layout  # whose folder may have another name than the game
    match = verification.recorded_match(layout, number, evaluated)
    players = verification.players_of(pipeline, number, match.subject)
    names = f"candidate {players[0].hash[:12]} against champion {players[1].hash[:12]}"
    print(f"iteration {number}: {names}, {len(match.files)} {plural('piece', len(match.files))}", flush=True)
    checked = []
    for piece in verification.check_match(pipeline, match, players):
        checked.append(piece)
        verdict = f"{piece.verdict}: {piece.reason}" if piece.reason else piece.verdict
        print("\n".join(aligned([[piece.path.name, f"{piece.games:,} games", verdict]])), flush=True)
    print(_summary(checked))
    return 0 if all(piece.verdict == "confirmed" for piece in checked) else 1


def _evaluation(layout: Layout, given: int | None) -> tuple[int, Manifest, IterationStart]:
    """(iteration, manifest of its match, what it was begun with) of what is to be verified.

    Raises:
        ConfigError: no match has decided on the champion, or there is no such iteration.
        CheckpointError: the manifest of the match is missing or damaged, or no match was played.
    """
    number = records.read_record(layout.champion).iteration if given is None else given
    if number == 0:
        what = f"the champion of {layout.root} is the random network of iteration 0, on which no match has decided"
        raise ConfigError(what, "name an iteration: --iteration N")
    if (start := read_start(layout, number)) is None:
        raise ConfigError(f"--iteration: {layout.root} has no iteration {number}", f"1 to {layout.last_iteration()}")
    evaluated = read_manifest(layout.stage(number, "evaluate"))
    if evaluated is None or not evaluated.facts["match"]:
        raise CheckpointError(f"iteration {number} has no match", "name an iteration that has evaluated its candidate")
    return number, evaluated, start


def _summary(checked: Sequence[CheckedPiece]) -> str:
    counts = [(verdict, sum(piece.verdict == verdict for piece in checked)) for verdict in _VERDICTS]
    return ", ".join(f"{number} {verdict}" for verdict, number in counts if number)


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    what = "Plays the match of a candidate and its champion again, and compares move by move."
    parser = ArgumentParser(prog("verify-evidence"), what)
    parser.add_argument("pipeline", metavar="PIPELINE", help="folder of a game, or its name under runs/")
    help_text = "whose match is played again (default: that of the champion)"
    parser.add_argument("--iteration", type=positive_int, metavar="N", help=help_text)
    add_device_flag(parser)
    return parser
