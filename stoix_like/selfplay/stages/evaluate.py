"""The stage `evaluate`: candidate against champion over openings, each from every seat, until the rule has decided.

Games are written in pieces of `pairs_per_look` openings, with all their moves, below matches/, apart from the store:
they are evidence and never learned from. A match that was killed goes on after its last whole piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.config.checks.alphazero import anchor_names
from stoix_like.errors import CheckpointError
from stoix_like.evaluation.contests import matches, promotion
from stoix_like.evaluation.contests.matches import MatchResults
from stoix_like.evaluation.contests.promotion import MatchSubject, PromotionRule
from stoix_like.runtime.arena.match import MatchRunner
from stoix_like.runtime.hardware.numerics import numerics
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.run import StageResult, run_stage
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.storage.signed_json import json_digest
from stoix_like.selfplay.files.folders import ARRAYS
from stoix_like.selfplay.files.iteration import IterationFiles
from stoix_like.selfplay.files.stage_leaves import SPECIFICATION
from stoix_like.selfplay.pipeline import evidence
from stoix_like.selfplay.pipeline.candidates import NetworkVersion, read_candidate, read_opponent
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.types import role_key


def rule_of(pipeline: Pipeline) -> PromotionRule:
    """The rule of the configuration, of at most as many openings as the game has."""
    section = pipeline.config.promotion
    errors = section.promotion_elo_0, section.promotion_elo_1, section.promotion_alpha, section.promotion_beta
    most = min(section.most_pairs, len(pipeline.matches.book.moves))
    return PromotionRule(section.promotion_rule, *errors, most, section.pairs_per_look)


def subject_of(pipeline: Pipeline, candidate: str, champion: str) -> MatchSubject:
    """What a match of these two is evidence of, here and now."""
    return MatchSubject(candidate, champion, json_digest(pipeline.leaves(SPECIFICATION)), pipeline.matches.book.hash)


def match_folder(pipeline: Pipeline, subject: MatchSubject) -> Path:
    """Where the games of a match are."""
    return pipeline.layout.matches / json_digest(subject._asdict())[:16]


def evaluate_stage(pipeline: Pipeline, files: IterationFiles) -> Manifest:
    """Plays the match. Facts: the subject, the score, and matches against anchors."""
    call = pipeline.call("evaluate", files)
    candidate = read_candidate(pipeline, files.number, files.done("train"))
    champion = read_opponent(pipeline, files.number)
    return run_stage(files.folder("evaluate"), call, lambda: _evaluate(pipeline, candidate, champion))


def _evaluate(pipeline: Pipeline, candidate: NetworkVersion, champion: NetworkVersion) -> StageResult:
    rule, section = rule_of(pipeline), pipeline.config.promotion
    subject = subject_of(pipeline, candidate.hash, champion.hash)
    params = candidate.params, champion.params
    match = PlannedMatch(subject, match_folder(pipeline, subject), pipeline.matches.runner, params)
    played: dict[Path, str] = {}
    if candidate.hash != champion.hash:
        played = play_match(pipeline, match, rule.most_groups, rule.groups_per_look, rule)
    scores = evidence.read_evidence(pipeline, list(played.items()), subject).scores
    files = _names(pipeline, played)
    facts: dict[str, Any] = {"subject": subject._asdict(), "games": int(scores.size), "match": sorted(files)}
    facts["pairs"], facts["anchors"] = len(scores), {}
    if len(scores):
        score = matches.group_interval(scores.mean(axis=1), scores.shape[1])
        facts["score"] = list(map(float, score))
    for name in anchor_names(section.match_anchors):
        against = subject._replace(champion=name)
        player = pipeline.matches.against(name)
        match = PlannedMatch(against, match_folder(pipeline, against), player, (candidate.params, None))
        number = min(section.anchor_pairs, len(pipeline.matches.book.moves))
        played = play_match(pipeline, match, number, number, None)
        scores = evidence.read_evidence(pipeline, list(played.items()), against).scores
        found = _names(pipeline, played)
        facts["anchors"][name] = {"subject": against._asdict(), "match": sorted(found)}
        facts["anchors"][name]["score"] = list(map(float, matches.group_interval(scores.mean(axis=1), scores.shape[1])))
        files |= found
    return StageResult(files, facts)


def _names(pipeline: Pipeline, files: Mapping[Path, str]) -> dict[str, str]:
    """{file, as seen from the folder of a stage: hash}."""
    root = pipeline.layout.root
    return {f"../../../{path.relative_to(root).as_posix()}": found for path, found in files.items()}


class PlannedMatch(NamedTuple):
    """A match that is played in pieces."""

    subject: MatchSubject
    folder: Path  # of the pieces
    player: MatchRunner
    params: tuple[Any, Any]


def play_match(
    pipeline: Pipeline, match: PlannedMatch, num_openings: int, per_piece: int, rule: PromotionRule | None
) -> dict[Path, str]:
    """{file: hash} of the pieces of a match. Those that are there are kept.

    It ends when the rule has decided, if there is one, or when the openings are used up.
    """
    found, seats = dict[Path, str](), pipeline.game.num_players
    label = "evaluate" if rule is not None else f"evaluate against {match.subject.champion[:12]}"
    progress = Progress(pipeline.reporter, pipeline.stop, label, "games", num_openings * seats)
    scores = np.zeros((0, seats))
    for index, first in enumerate(range(0, num_openings, per_piece)):
        path = match.folder / f"piece_{index:04d}{ARRAYS}"
        rows = np.arange(first, min(first + per_piece, num_openings))
        arrays = _finished_piece(pipeline, path, match.subject, rows)
        if arrays is None:
            if not match.player.has_played:
                pipeline.reporter.progress(f"{label}: compiling its program, unless it is in the cache")
            arrays = _piece(match.subject, rows, play_piece(pipeline, match, rows, index, progress))
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_json(evidence.notes_of(path), {"numerics": numerics()})
            write_arrays(path, arrays)
        found[path] = array_hash(arrays)
        scores = np.concatenate([scores, arrays["score"]])
        progress.update(scores.size)
        if rule is not None and promotion.is_decided(scores, rule):
            break
    return found


def play_piece(
    pipeline: Pipeline, match: PlannedMatch, rows: np.ndarray, index: int, progress: Progress
) -> MatchResults:
    """The games of a piece, by its openings and its number: the same ones, wherever results are the same."""
    key = jax.random.fold_in(role_key(pipeline.root, "match"), index)
    moves = pipeline.matches.book.moves[rows]
    before = progress.done
    return match.player.play(*match.params, key, moves=moves, check=lambda over: progress.update(before + over))


def _piece(subject: MatchSubject, rows: np.ndarray, results: MatchResults) -> dict[str, np.ndarray]:
    texts = {"kind": evidence.KIND, **subject._asdict()}
    arrays = {name: np.asarray(value) for name, value in results._asdict().items()}
    return arrays | {"opening": rows.astype(np.int32)} | {f"text_{key}": np.array(text) for key, text in texts.items()}


def _finished_piece(
    pipeline: Pipeline, path: Path, subject: MatchSubject, rows: np.ndarray
) -> dict[str, np.ndarray] | None:
    """The arrays of a piece that an earlier process has finished, or None."""
    if not path.is_file():
        return None
    try:
        arrays = read_arrays(path)
    except CheckpointError:
        return None  # torn: it is played again
    is_ours = evidence.form_problem(pipeline, arrays, subject) is None
    return arrays if is_ours and np.array_equal(arrays["opening"], rows) else None
