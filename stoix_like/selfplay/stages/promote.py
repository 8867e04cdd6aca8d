"""The stage `promote`: the one place where the champion changes, and only by a decision from evidence on disk."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stoix_like.errors import CheckpointError
from stoix_like.evaluation.contests import promotion
from stoix_like.evaluation.contests.promotion import Decision, Evidence
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.run import StageResult, run_stage
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import PARAMETERS
from stoix_like.selfplay.files.iteration import IterationFiles
from stoix_like.selfplay.files.records import ChampionRecord
from stoix_like.selfplay.pipeline import candidates
from stoix_like.selfplay.pipeline.evidence import read_evidence
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages.evaluate import rule_of, subject_of
from stoix_like.selfplay.stages.verification import recorded_match, require_confirmed


class _Case(NamedTuple):
    """What is to be decided."""

    iteration: int
    trained: Manifest
    evaluated: Manifest | None

    @property
    def candidate(self) -> str:
        """Its hash."""
        return str(self.trained.facts["candidate"])


def promote_stage(pipeline: Pipeline, files: IterationFiles) -> Manifest:
    """Decides on the candidate. Facts: the verdict, whether it was carried out, and the reasons.

    Without a match, because it was skipped, nothing is promoted.
    """
    case = _Case(files.number, files.done("train"), files.find("evaluate"))
    return run_stage(files.folder("promote"), pipeline.call("promote", files), lambda: _promote(pipeline, case))


def _promote(pipeline: Pipeline, case: _Case) -> StageResult:
    layout = pipeline.layout
    champion = records.read_record(layout.champion)
    evidence_hash = None if case.evaluated is None else case.evaluated.digest
    if champion.iteration == case.iteration and champion.evidence == evidence_hash and champion.hash == case.candidate:
        previous = records.promoted_record(layout, champion.previous or 0)
        decision = decide(pipeline, case, previous.hash)  # carried out by a process that was killed before it said so
        return StageResult({}, _facts(decision, previous, is_promoted=True))
    decision, recorded = decide(pipeline, case, champion.hash), dict[str, Any]()
    is_promoted = decision.promotes and pipeline.config.promotion.auto_promote
    if is_promoted:
        candidate = candidates.read_candidate(pipeline, case.iteration, case.trained)
        if case.evaluated is not None and pipeline.config.promotion.verify_evidence:
            players = candidate, candidates.read_champion(pipeline)[1]
            recorded = {"verified_games": require_confirmed(pipeline, case.iteration, case.evaluated, players)}
        path = layout.stage(case.iteration, "train") / PARAMETERS
        place = path.relative_to(layout.root).as_posix()
        record = ChampionRecord(case.candidate, case.iteration, place, evidence_hash, champion.iteration)
        records.write_record(records.record_path(layout, case.iteration), record)
        records.write_record(layout.champion, record)
    return StageResult({}, _facts(decision, champion, is_promoted=is_promoted), recorded)


def decide(pipeline: Pipeline, case: _Case, champion: str) -> Decision:
    """The decision on a candidate against the present champion, from the games on disk.

    Raises DamagedOutputError if a piece of the match is damaged: it is played again before anything is decided.
    """
    expected = subject_of(pipeline, case.candidate, champion)
    nothing = Evidence(expected, np.zeros((0, pipeline.game.num_players)), np.zeros(0))
    if case.evaluated is None:
        return promotion.decide(nothing, rule_of(pipeline), expected)
    try:
        match = recorded_match(pipeline.layout, case.iteration, case.evaluated)
    except CheckpointError as error:
        return promotion.decide(nothing._replace(error=error.what), rule_of(pipeline), expected)
    evidence = read_evidence(pipeline, match.files, match.subject)
    return promotion.decide(evidence, rule_of(pipeline), expected)


def _facts(decision: Decision, champion: ChampionRecord, *, is_promoted: bool) -> dict[str, Any]:
    return {
        "promoted": is_promoted,
        "verdict": decision.verdict,
        "reasons": list(decision.reasons),
        "pairs": decision.num_groups,
        "score": [_json_number(value) for value in decision.score],
        "log_likelihood_ratio": _json_number(decision.log_likelihood_ratio),
        "champion": champion.hash,
        "champion_iteration": champion.iteration,
    }


def _json_number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
