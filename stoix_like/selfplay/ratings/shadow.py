"""The shadow evaluation: the champion against its anchors, for the report. It never promotes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from stoix_like.config.checks.alphazero import anchor_names
from stoix_like.evaluation.contests import matches
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.selfplay.pipeline.candidates import read_champion
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.ratings.report_matches import match_folder, scores_of
from stoix_like.selfplay.stages import evaluate
from stoix_like.selfplay.stages.evaluate import PlannedMatch

SHADOW = "shadow.json"  # in the folder `evaluations` of a game


def shadow_evaluation(pipeline: Pipeline, openings: int) -> dict[str, Any]:
    """What is written to `shadow.json`: the scores of the champion against its anchors, with so many openings more."""
    record, champion = read_champion(pipeline)
    found: dict[str, Any] = {
        "champion": champion.hash,
        "iteration": record.iteration,
        "time": time.time(),
        "anchors": {},
    }
    for name in anchor_names(pipeline.config.promotion.match_anchors):
        subject = evaluate.subject_of(pipeline, champion.hash, name)
        folder = match_folder(pipeline.layout, subject, openings)
        number = _next_openings(pipeline, folder, openings)
        match = PlannedMatch(subject, folder, pipeline.matches.against(name), (champion.params, None))
        scores = scores_of(pipeline, match, number, openings)
        score, low, high = map(float, matches.group_interval(scores.mean(axis=1), scores.shape[1]))
        found["anchors"][name] = {"score": score, "low": low, "high": high, "games": int(scores.size)}
    atomic_write_json(pipeline.layout.evaluations / SHADOW, found)
    return found


def _next_openings(pipeline: Pipeline, folder: Path, openings: int) -> int:
    """How many openings a match has when it is played on, at most all of the book."""
    pieces = len(list(folder.glob("piece_*.npz")))
    return min((pieces + 1) * openings, len(pipeline.matches.book.moves))
