"""What is on disk of an iteration: its manifests, and what it was begun with. Imports no JAX."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from stoix_like.errors import RunError
from stoix_like.runtime.stages.table import Stage, StageFiles
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout
from stoix_like.selfplay.files.iteration_start import IterationStart, read_start


class IterationFiles(StageFiles):
    """The manifests of an iteration, and what it was begun with.

    Args:
        layout: of the pipeline.
        number: of the iteration.
        stages: of the pipeline, in their order.
    """

    def __init__(self, layout: Layout, number: int, stages: Sequence[Stage]) -> None:
        self.layout, self.number = layout, number
        super().__init__(layout.iteration(number), stages)

    @functools.cached_property
    def begun(self) -> IterationStart | None:
        """What the iteration was begun with; None if it was not. Raises CheckpointError if that cannot be read."""
        return read_start(self.layout, self.number)

    @property
    def start(self) -> IterationStart:
        """What the iteration was begun with. Raises RunError if it was not."""
        if self.begun is None:
            raise RunError(f"iteration {self.number} was not begun", "begin it first")
        return self.begun

    @property
    def is_finished(self) -> bool:
        """Whether the iteration is over: its last stage is done."""
        return self.manifests[STAGE_NAMES[-1]] is not None
