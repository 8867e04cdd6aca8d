"""The games of a match as evidence: what their files say is confirmed by the rules, or they are played again.

A piece that is missing, damaged, or not true says nothing of its candidate, neither for it nor against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stoix_like.errors import CheckpointError
from stoix_like.evaluation.contests.promotion import Evidence, MatchSubject
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.damage import DamagedOutputError
from stoix_like.selfplay.files.shards import form_problems, shape_problems, text_of
from stoix_like.selfplay.pipeline.programs import Pipeline

KIND, STAGE = "match", "evaluate"
#: {name: (type, axes)} of a piece: M openings, P seats and players, H plies.
_ARRAYS = {
    "score": ("float32", "MP"),
    "outcome": ("float32", "MPP"),
    "plies": ("int32", "MP"),
    "first": ("int32", "M"),
    "is_unfinished": ("bool", "MP"),
    "moves": ("int16", "MPH"),
    "opening": ("int32", "M"),
}


def notes_of(path: Path) -> Path:
    """The file beside a piece that says by what it was played, which no hash covers."""
    return path.with_suffix(".json")


def read_evidence(pipeline: Pipeline, files: Sequence[tuple[Path, str]], subject: MatchSubject) -> Evidence:
    """The evidence of a match from its files and their hashes; its games are played again by the rules.

    Raises DamagedOutputError if a piece is missing, is not what the manifest names, or is not confirmed.
    """
    pieces = [
        read_piece(pipeline, path, found, subject) for path, found in sorted(files, key=lambda file: file[0].name)
    ]
    if not pieces:
        return Evidence(subject, np.zeros((0, pipeline.game.num_players)), np.zeros(0, int))
    scores, openings = (np.concatenate([arrays[name] for arrays in pieces]) for name in ("score", "opening"))
    return Evidence(subject, scores.astype(np.float64), openings)


def read_piece(pipeline: Pipeline, path: Path, expected_hash: str, subject: MatchSubject) -> dict[str, np.ndarray]:
    """The arrays of a piece. Raises as `read_evidence`."""
    try:
        arrays = read_arrays(path, expected_hash)
    except CheckpointError as error:
        raise DamagedOutputError(STAGE, [path], error.what) from error
    if problem := form_problem(pipeline, arrays, subject) or _game_problem(pipeline, arrays):
        raise DamagedOutputError(STAGE, [path], f"{path} is no evidence: {problem}")
    return arrays


def form_problem(pipeline: Pipeline, arrays: dict[str, np.ndarray], subject: MatchSubject) -> str | None:
    """Why arrays are no piece of this match; None if they are one. What they say of their games is not looked at."""
    return next(_form_problems(pipeline, arrays, subject), None)


def _form_problems(pipeline: Pipeline, arrays: dict[str, np.ndarray], subject: MatchSubject) -> Iterator[str]:
    for name, value in {"kind": KIND, **subject._asdict()}.items():
        if (text := text_of(arrays, name)) != value:
            yield f"games of another {name}: {text[:16]}, not {value[:16]}"
    yield from form_problems(_ARRAYS, arrays)
    sizes = {"M": len(arrays["opening"]), "P": pipeline.game.num_players, "H": pipeline.game.max_plies}
    yield from shape_problems(_ARRAYS, arrays, sizes)
    if sizes["M"] == 0:
        yield "it has no games"


def _game_problem(pipeline: Pipeline, arrays: dict[str, np.ndarray]) -> str | None:
    """What the rules do not confirm of the games of a piece."""
    moves, opening, book = arrays["moves"], arrays["opening"], pipeline.matches.book.moves  # [M, P, H], [M], [K, k]
    if opening.min() < 0 or opening.max() >= len(book):
        return "games of an opening that the list does not have"
    if (moves[:, :, : book.shape[1]] != book[opening][:, None]).any():
        return "a game does not begin with its opening"
    replayed = pipeline.play_to_end(moves.reshape(-1, moves.shape[-1]))
    is_played = np.arange(moves.shape[2]) < arrays["plies"][:, :, None]
    if (is_played != (moves >= 0)).any() or (moves < -1).any():
        return "a game does not have as many moves as it says"
    if not (replayed["is_legal"].all() and replayed["is_over"].all()) or arrays["is_unfinished"].any():
        return "a game breaks the rules, or is not played to its end"
    outcome = replayed["outcome"].reshape(*moves.shape[:2], -1)  # [M, P, P]
    own = np.diagonal(outcome, axis1=1, axis2=2)
    if not (np.abs((own + 1.0) / 2.0 - arrays["score"]) <= 1e-6).all():
        return "a score is not that of the moves"
    return None if (np.abs(outcome - arrays["outcome"]) <= 1e-6).all() else "an outcome is not that of the moves"
