"""Evidence played again: the same players from the same openings, in the batch in which it was played, move by move.

The rules confirm that the games of a match can have been played. Only playing them again shows that these two players
play them. Where versions and device are those that a piece was played with, its moves have to come out; elsewhere
floating-point results may differ, so that another move proves nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from stoix_like.errors import CheckpointError
from stoix_like.evaluation.contests.promotion import MatchSubject
from stoix_like.runtime.hardware.numerics import numerics
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.damage import DamagedOutputError
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.pipeline import candidates, evidence
from stoix_like.selfplay.pipeline.candidates import NetworkVersion
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages.evaluate import PlannedMatch, play_piece

Verdict = Literal["confirmed", "false", "not comparable"]
_AGAIN = "this device does not repeat its results: leave out --verify-evidence"


class CheckedPiece(NamedTuple):
    """What came of playing a piece of a match again. `reason` is empty of one that is confirmed."""

    path: Path
    games: int
    verdict: Verdict
    reason: str = ""


class RecordedMatch(NamedTuple):
    """The match of a candidate against a champion, as its manifest names it."""

    subject: MatchSubject
    files: list[tuple[Path, str]]  # (piece, hash), in their order


def recorded_match(layout: Layout, iteration: int, evaluated: Manifest) -> RecordedMatch:
    """The match of an evaluation. Raises CheckpointError if its manifest names none."""
    folder = layout.stage(iteration, evaluated.stage)
    try:
        names = sorted(evaluated.facts["match"])
        files = [(Path(os.path.normpath(folder / name)), evaluated.outputs[name]) for name in names]
        return RecordedMatch(MatchSubject(**evaluated.facts["subject"]), files)
    except (KeyError, TypeError) as error:
        what = f"the manifest of the match of iteration {iteration} names no subject"
        raise CheckpointError(what, "put it back as it was written") from error


def players_of(pipeline: Pipeline, iteration: int, subject: MatchSubject) -> tuple[NetworkVersion, NetworkVersion]:
    """The candidate and the champion of a match. Raises CheckpointError if one is missing, or is not who played."""
    layout = pipeline.layout
    trained = read_manifest(layout.stage(iteration, "train"))
    if trained is None or trained.facts["candidate"] != subject.candidate:
        what = f"iteration {iteration} has another candidate than the one that its match is of"
        raise CheckpointError(what, "put its manifests back as they were written")
    for number in range(iteration - 1, -1, -1):
        path = records.record_path(layout, number)
        if path.is_file() and (record := records.read_record(path)).hash == subject.champion:
            champion = candidates.read_version(pipeline, layout.root / record.parameters, record.hash)
            return candidates.read_candidate(pipeline, iteration, trained), champion
    what = f"no iteration before {iteration} has made the champion {subject.champion[:12]}"
    raise CheckpointError(what, "put their records back as they were written")


def check_match(pipeline: Pipeline, match: RecordedMatch, players: Sequence[NetworkVersion]) -> Iterator[CheckedPiece]:
    """Plays each piece again, one after the other. Raises Interrupted if a signal came."""
    planned = PlannedMatch(match.subject, Path(), pipeline.matches.runner, (players[0].params, players[1].params))
    total = sum(_num_games(path) for path, _ in match.files)
    progress = Progress(pipeline.reporter, pipeline.stop, "verify", "games", total)
    for path, found in match.files:
        try:
            arrays = evidence.read_piece(pipeline, path, found, match.subject)
        except DamagedOutputError as damage:
            yield CheckedPiece(path, 0, "false", damage.what)
            continue
        played = play_piece(pipeline, planned, arrays["opening"], _number(path), progress)
        games = int(arrays["score"].size)
        progress.update(progress.done + games)
        if (difference := first_difference(arrays, np.asarray(played.moves))) is None:
            yield CheckedPiece(path, games, "confirmed")
        elif (other := _other_numerics(path)) is None:
            yield CheckedPiece(path, games, "false", difference)
        else:
            yield CheckedPiece(path, games, "not comparable", f"{difference}; {other}")


def _num_games(path: Path) -> int:
    try:
        return int(read_arrays(path)["score"].size)
    except (CheckpointError, KeyError):
        return 0


def _number(path: Path) -> int:
    """Which piece of its match a file is: its key depends on it."""
    return int(path.stem.rpartition("_")[2])


def first_difference(arrays: dict[str, np.ndarray], moves: np.ndarray) -> str | None:
    """The first move that came out as another one, of the recorded ones [M, P, H]; None if there is none."""
    recorded = arrays["moves"]
    places = np.argwhere(recorded != moves)
    if not len(places):
        return None
    row, seat, ply = map(int, places[0])
    where = f"opening {int(arrays['opening'][row])}, seat {seat}, ply {ply}"
    return f"{where}: {_move(recorded[row, seat, ply])} is recorded, and {_move(moves[row, seat, ply])} is played"


def _move(action: Any) -> str:
    return "no move" if action < 0 else f"move {int(action)}"


def _other_numerics(path: Path) -> str | None:
    """What else a piece was played with; None if with the same as here."""
    try:
        then: dict[str, str] = dict(json.loads(evidence.notes_of(path).read_bytes())["numerics"])
    except (OSError, ValueError, KeyError, TypeError):
        return "it does not say what it was played with"
    now = numerics()
    if now.get("processor") == "":
        return "this system does not name its processor"
    name = next((name for name in (*now, *then) if now.get(name) != then.get(name)), None)
    return None if name is None else f"it was played with {name} {then.get(name)}, and here it is {now.get(name)}"


def require_confirmed(
    pipeline: Pipeline, iteration: int, evaluated: Manifest, players: Sequence[NetworkVersion]
) -> int:
    """Plays the match of an evaluation again; returns the number of its games.

    A piece that this process has confirmed once is not played again. Raises DamagedOutputError that names the pieces
    which are not confirmed: they are played again, on this machine.
    """
    match = recorded_match(pipeline.layout, iteration, evaluated)
    new = match._replace(files=[file for file in match.files if file[1] not in pipeline.memory.confirmed])
    checked = list(check_match(pipeline, new, players))
    hashes = dict(new.files)
    pipeline.memory.confirmed.update(hashes[one.path] for one in checked if one.verdict == "confirmed")
    if unconfirmed := [one for one in checked if one.verdict != "confirmed"]:
        first = unconfirmed[0]
        what = f"{first.path.name} of iteration {iteration} is not confirmed ({first.verdict}): {first.reason}"
        raise DamagedOutputError(evidence.STAGE, [one.path for one in unconfirmed], what, _AGAIN)
    return sum(_num_games(path) for path, _ in match.files)
