"""What loops say of themselves: what they are doing, and what they have done since they were started."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class LoopState(enum.Enum):
    """What a continuous loop is doing."""

    IDLE = "idle"
    RUNNING_SELFPLAY = "running_selfplay"
    WAITING_PIPELINE = "waiting_pipeline"  # the stages after self-play are running
    COOLING_DOWN = "cooling_down"
    DEFERRED = "deferred"  # a master loop is running
    STOPPED = "stopped"
    ERROR = "error"  # all games wait for their breakers


@dataclass
class LoopStats:
    """What a loop has done since it was started.

    Attributes:
        total_iterations: finished or failed.
        successful_iterations: finished.
        failed_iterations: in which a stage failed.
        consecutive_failures: since the last that was finished.
        last_iteration_time: seconds of the last one.
        last_config_trained: its game.
        current_state: what the loop is doing.
        current_config: the game that it is doing it for.
        start_time: of the loop, in seconds since 1970.
        last_error: what was wrong last.
        interrupted: whether a signal or a stop has ended it, before its last iteration.
    """

    total_iterations: int = 0
    successful_iterations: int = 0
    failed_iterations: int = 0
    consecutive_failures: int = 0
    last_iteration_time: float = 0.0
    last_config_trained: str | None = None
    current_state: LoopState = LoopState.IDLE
    current_config: str | None = None
    start_time: float = 0.0
    last_error: str | None = None
    interrupted: bool = False


@dataclass
class MasterStats:
    """What the loop is doing, and has done since it was started."""

    current_state: str = "idle"  # or a stage, shadow, tournament, plateau_hook; error; stopped
    current_config: str | None = None
    successful_iterations: int = 0
    failed_iterations: int = 0
    last_error: str | None = None
    waiting: dict[str, str] = field(default_factory=dict)  # by game, what its next stage waits for
    weights: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by game, of its stages
    on_plateau: list[str] = field(default_factory=list)  # games whose champions no longer gain
    errors_in_a_row: int = 0  # of no game
    interrupted: bool = False  # by a signal or a stop, before its last iteration

    @property
    def total_iterations(self) -> int:
        """Finished or failed."""
        return self.successful_iterations + self.failed_iterations
