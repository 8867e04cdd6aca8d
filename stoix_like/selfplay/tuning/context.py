"""What a function is given that is started when the champions of a game no longer gain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stoix_like.config.sections.master_loop import PlateauHookConfig
from stoix_like.config.sections.selfplay import SelfPlayConfig

if TYPE_CHECKING:
    from stoix_like.selfplay.pipeline.programs import Pipeline


class PlateauContext(NamedTuple):
    """What a function is given.

    Attributes:
        pipeline: of the game, with its programs and its present configuration.
        configured: the configuration without what was tuned before.
        iteration: the last one, which is finished; no other has begun.
        folder: where it may keep files; the same when it is started again after a kill.
        options: of the section `plateau_hook`.
    """

    pipeline: Pipeline
    configured: SelfPlayConfig
    iteration: int
    folder: Path
    options: PlateauHookConfig


#: Returns {leaf: value} for the next iterations; empty or None changes nothing. It looks at `pipeline.stop` at times.
PlateauFunction = Callable[[PlateauContext], Mapping[str, Any] | None]
