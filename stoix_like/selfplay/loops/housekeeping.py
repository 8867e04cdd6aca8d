"""The disk of a game in a loop: what gives some of it back."""

from __future__ import annotations

import contextlib

from stoix_like.errors import LockedError, StoixError
from stoix_like.selfplay.files import retention
from stoix_like.selfplay.files.retention import RetentionRule
from stoix_like.selfplay.iterations.begin import work_lock
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import LoopServices


def clean(runner: GameRunner, services: LoopServices) -> None:
    """Removes the files of a game that nothing will read again, unless another process works on it."""
    keep = services.retention
    try:
        positions = int(keep.keep_windows * runner.config.alphazero.replay_buffer_size)
        with contextlib.suppress(LockedError), work_lock(runner.layout):
            retention.clean(runner.layout, RetentionRule(positions, keep.keep_candidates))
    except (StoixError, OSError) as error:  # it is tried again after the next iteration
        services.reporter.warning(f"{runner.game}: old files are not removed: {error}")


def clean_if_full(runner: GameRunner, services: LoopServices) -> None:
    """`clean`, if there is too little free disk to run a stage: nothing else would give it back."""
    with contextlib.suppress(OSError):
        if not runner.has_disk:
            clean(runner, services)
