"""What loops say of themselves: what they are doing, and what they have done since they were started."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any


class LoopState(enum.StrEnum):
    """What a loop is doing. Of the master loop it may also be a stage, `shadow`, `tournament` or `plateau_hook`."""

    IDLE = "idle"
    RUNNING_SELFPLAY = "running_selfplay"  # of the continuous loop
    WAITING_PIPELINE = "waiting_pipeline"  # the stages after self-play are running, in the continuous loop
    COOLING_DOWN = "cooling_down"
    DEFERRED = "deferred"  # a master loop is running
    STOPPED = "stopped"
    ERROR = "error"  # all games wait for their breakers, or no game can be looked at


@dataclass
class LoopStats:
    """What a loop is doing, and has done since it was started.

    Attributes:
        successful_iterations: finished.
        failed_iterations: trials of a stage, or looks at a game, that have failed.
        consecutive_failures: since the last iteration that was finished.
        last_iteration_time: seconds of the last iteration, or of the trial that has failed.
        last_config_trained: its game.
        current_state: a LoopState, or what the master loop runs.
        current_config: the game that it is doing it for.
        start_time: of the loop, in seconds since 1970.
        last_error: what was wrong last.
        waiting: by game, what its next stage waits for.
        seconds: by game, of all that was done for it.
        weights: by game, its share of self-play in a master loop.
        on_plateau: games of a master loop whose champions no longer gain.
        errors_in_a_row: of no game.
        interrupted: whether a signal or a stop has ended it, before its last iteration.
    """

    successful_iterations: int = 0
    failed_iterations: int = 0
    consecutive_failures: int = 0
    last_iteration_time: float = 0.0
    last_config_trained: str | None = None
    current_state: str = LoopState.IDLE
    current_config: str | None = None
    start_time: float = 0.0
    last_error: str | None = None
    waiting: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    on_plateau: list[str] = field(default_factory=list)
    errors_in_a_row: int = 0
    interrupted: bool = False

    @property
    def total_iterations(self) -> int:
        """Finished or failed."""
        return self.successful_iterations + self.failed_iterations

    def as_dict(self) -> dict[str, Any]:
        """All of it, for the status on disk. Mappings are copied in one step: a thread asks while they change."""
        copied = {name: dict(value) for name, value in vars(self).items() if isinstance(value, dict)}
        return vars(self) | copied | {"total_iterations": self.total_iterations}
