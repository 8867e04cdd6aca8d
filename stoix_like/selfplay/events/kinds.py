"""What happened in a pipeline, as typed events. Imports no JAX.

The fields of a kind carry their description, which docs/self-play-loops.md shows.

Events report and never decide: manifests are the truth, and an event that a killed process did not write is derived
from them again. So an event has a key, by which the log has it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from stoix_like.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class PipelineEvent:
    """What all events have.

    Attributes:
        game: such as connect_four_2p; empty of an event of all games.
        iteration: of the game.
        run: the first digits of the hash of the parameters that the pipeline began with.
        candidate: hash of the candidate of the iteration; None before there is one.
        time: when it happened, in seconds since 1970.
        part: which one of several of an iteration it is: of batches of games, of attempts. From 1.
    """

    kind: ClassVar[str]
    stage: ClassVar[str]  # that has ended, or that it is about; empty of none

    game: str
    iteration: int
    run: str
    candidate: str | None = None
    time: float
    part: int = 1

    @property
    def key(self) -> str:
        """What the log has once."""
        return "/".join((self.game, str(self.iteration), self.stage_name, self.kind, str(self.part)))

    @property
    def stage_name(self) -> str:
        """The stage; that of an event of any stage is one of its fields."""
        return self.stage


@dataclass(frozen=True, kw_only=True)
class SelfplayComplete(PipelineEvent):
    """A batch of games has been played, and stands in shards."""

    kind, stage = "SELFPLAY_COMPLETE", "selfplay"
    games: Annotated[int, "games of the iteration up to now"]
    positions: Annotated[int, "positions that were searched in them"]
    player: Annotated[str, "hash of whose network played, or the name of an engine"]


@dataclass(frozen=True, kw_only=True)
class DataSyncCompleted(PipelineEvent):
    """The store has the shards of the iteration, and those of other folders."""

    kind, stage = "DATA_SYNC_COMPLETED", "sync"
    new_shards: Annotated[int, "shards that were taken in"]
    games: Annotated[int, "games that the store has ever taken in"]
    positions: Annotated[int, "positions that the store has ever taken in"]


@dataclass(frozen=True, kw_only=True)
class NpzExportComplete(PipelineEvent):
    """The window that is learned from is written."""

    kind, stage = "NPZ_EXPORT_COMPLETE", "export"
    games: Annotated[int, "games in the window"]
    positions: Annotated[int, "positions that are learned from"]
    validation_positions: Annotated[int, "positions that are only validated on"]


@dataclass(frozen=True, kw_only=True)
class TrainingStarted(PipelineEvent):
    """The run goes on with the new window."""

    kind, stage = "TRAINING_STARTED", "train"
    window: Annotated[str, "hash of the window"]


@dataclass(frozen=True, kw_only=True)
class TrainingCompleted(PipelineEvent):
    """There is a candidate."""

    kind, stage = "TRAINING_COMPLETED", "train"
    update: Annotated[int, "updates of the run up to now"]
    gradient_steps: Annotated[int, "gradient steps of this iteration"]
    new_positions: Annotated[int, "positions that no candidate before could learn from"]


@dataclass(frozen=True, kw_only=True)
class TrainingFailed(PipelineEvent):
    """The run has failed; it is tried again as the breaker says."""

    kind, stage = "TRAINING_FAILED", "train"
    error: Annotated[str, "what was wrong"]


@dataclass(frozen=True, kw_only=True)
class EvaluationCompleted(PipelineEvent):
    """The match of candidate and champion is over."""

    kind, stage = "EVALUATION_COMPLETED", "evaluate"
    champion: Annotated[str, "hash of the champion"]
    games: Annotated[int, "games of the match"]
    score: Annotated[float | None, "the candidate's, from 0 to 1; null without games"]
    low: Annotated[float | None, "lower bound of its 95 % interval"]
    high: Annotated[float | None, "upper bound"]
    anchors: Annotated[dict[str, float], "scores against engines, for the report"]


@dataclass(frozen=True, kw_only=True)
class ModelPromoted(PipelineEvent):
    """The candidate is champion."""

    kind, stage = "MODEL_PROMOTED", "promote"
    previous: Annotated[str, "hash of the champion before"]
    previous_iteration: Annotated[int, "its iteration"]
    reasons: Annotated[list[str], "of the decision"]


@dataclass(frozen=True, kw_only=True)
class PromotionRejected(PipelineEvent):
    """The champion stays."""

    kind, stage = "PROMOTION_REJECTED", "promote"
    champion: Annotated[str, "hash of the champion"]
    status: Annotated[str, "rejected, inconclusive, not evaluated, no valid evidence, or not promoted"]
    reasons: Annotated[list[str], "of the decision"]


@dataclass(frozen=True, kw_only=True)
class IterationComplete(PipelineEvent):
    """All stages of an iteration are done."""

    kind, stage = "ITERATION_COMPLETE", "promote"
    promoted: Annotated[bool, "whether the candidate became champion"]
    seconds: Annotated[float, "of all its stages"]


@dataclass(frozen=True, kw_only=True)
class RegressionDetected(PipelineEvent):
    """Candidates have become weaker than the champion."""

    kind, stage = "REGRESSION_DETECTED", "promote"
    drop: Annotated[float, "Elo that the newest candidates lie below the champion, on average"]
    iterations: Annotated[int, "how many candidates that is the mean of"]


@dataclass(frozen=True, kw_only=True)
class PlateauDetected(PipelineEvent):
    """The champion has not gained for a while."""

    kind, stage = "PLATEAU_DETECTED", "promote"
    gain: Annotated[float, "Elo that champions gained over these iterations"]
    iterations: Annotated[int, "how many iterations"]


@dataclass(frozen=True, kw_only=True)
class CurriculumRebalanced(PipelineEvent):
    """The share of self-play of each game has changed."""

    kind, stage = "CURRICULUM_REBALANCED", ""
    weights: Annotated[dict[str, float], "by game, from 0.5 to 2"]


@dataclass(frozen=True, kw_only=True)
class StageFailed(PipelineEvent):
    """A stage has failed; it is tried again as its breaker says."""

    kind, stage = "STAGE_FAILED", ""
    failed_stage: Annotated[str, "the stage"]
    error: Annotated[str, "what was wrong"]
    breaker: Annotated[str, "its breaker's state since then: closed or open"]

    @property
    def stage_name(self) -> str:
        return self.failed_stage


EVENT_TYPES: dict[str, type[PipelineEvent]] = {
    kind.kind: kind
    for kind in (
        *(SelfplayComplete, DataSyncCompleted, NpzExportComplete, TrainingStarted, TrainingCompleted, TrainingFailed),
        *(EvaluationCompleted, ModelPromoted, PromotionRejected, IterationComplete, RegressionDetected),
        *(PlateauDetected, CurriculumRebalanced, StageFailed),
    )
}


def event_from(kind: str, fields: dict[str, Any]) -> PipelineEvent:
    """The event of a row of the log. Raises CheckpointError if this version does not know it."""
    try:
        return EVENT_TYPES[kind](**fields)
    except (KeyError, TypeError) as error:
        what = f"an event of kind {kind!r} cannot be read"
        raise CheckpointError(what, "it was written by another version: use that one, or another --save-dir") from error
