"""What a checkpoint stores of the host beside the state: the progress of the run, or the best scores.

`CheckpointMeta.host` holds them as plain JSON values. Only this module knows their names there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stoix_like.runtime.runs.checkpoint import CheckpointMeta


class RunProgress(NamedTuple):
    """The progress of a run at a checkpoint of its state."""

    elapsed_seconds: float = 0.0  # wall-clock, including the time before it was resumed
    evaluated_at: int = 0  # the last update that has been evaluated

    def to_host(self) -> dict[str, Any]:
        """As stored in a checkpoint; seconds to the millisecond."""
        return {"elapsed_seconds": round(self.elapsed_seconds, 3), "evaluated_at": self.evaluated_at}


def run_progress(meta: CheckpointMeta) -> RunProgress:
    """The progress stored in a checkpoint. Without it, the update counts as evaluated."""
    host = meta.host
    return RunProgress(float(host.get("elapsed_seconds", 0.0)), int(host.get("evaluated_at", meta.update)))


class BestScores(NamedTuple):
    """The scores of the best parameters of each seed."""

    scores: list[float]  # mean returns, [S]
    updates: list[int]  # the update each was scored at, [S]
    scored_on: dict[str, Any] | None = None  # identifies the levels; None in checkpoints of older versions

    def to_host(self) -> dict[str, Any]:
        """As stored in a checkpoint."""
        return self._asdict()


def best_scores(meta: CheckpointMeta) -> BestScores | None:
    """The scores stored in a checkpoint; None if it is not one of the best parameters."""
    host = meta.host
    return BestScores(host["scores"], host["updates"], host.get("scored_on")) if "scores" in host else None


def scored_updates(meta: CheckpointMeta, num_seeds: int) -> list[int]:
    """The update of each seed's parameters [S]. In the best checkpoint, they differ."""
    return list(meta.host.get("updates", [meta.update] * num_seeds))
