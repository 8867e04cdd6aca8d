"""Matches for the report, which never promote. Their games stand below `evaluations/`, and are never learned from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stoix_like.evaluation.contests.promotion import MatchSubject
from stoix_like.runtime.stages.damage import DamagedOutputError
from stoix_like.runtime.storage.signed_json import json_digest
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.pipeline import evidence
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages import evaluate, restoring
from stoix_like.selfplay.stages.evaluate import PlannedMatch


def match_path(layout: Layout, subject: MatchSubject, per_piece: int) -> Path:
    """The folder of a match in pieces of so many openings."""
    return layout.evaluations / json_digest(subject._asdict() | {"openings": per_piece})[:16]


def match_folder(layout: Layout, subject: MatchSubject, per_piece: int) -> Path:
    """`match_path`, made if it is missing."""
    folder = match_path(layout, subject, per_piece)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def scores_of(pipeline: Pipeline, match: PlannedMatch, num_openings: int, per_piece: int) -> np.ndarray:
    """[M, P] scores of a match of so many openings."""
    files = evaluate.play_match(pipeline, match, num_openings, per_piece, None)
    try:
        return evidence.read_evidence(pipeline, list(files.items()), match.subject).scores
    except DamagedOutputError as damage:
        restoring.set_aside(pipeline, damage)
        return scores_of(pipeline, match, num_openings, per_piece)
