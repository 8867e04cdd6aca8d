"""Logs metrics as TensorBoard events in the run folder. The only module that imports tensorboardX.

tensorboardX does not need TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stoix_like.runtime.console.installation import require_extra
from stoix_like.runtime.telemetry import scalars
from stoix_like.runtime.telemetry.sink import Report, RunMeta

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

FOLDER = "tensorboard"
_FLUSH_SECONDS = 2  # by the writer's own thread, so that TensorBoard shows a running run


class TensorboardSink:
    """Logs numbers as scalars over environment steps, and the configuration as a text table.

    On resume, TensorBoard hides values later than the checkpoint (`purge_step`). The constructor raises
    MissingExtraError if tensorboardX is not installed.
    """

    def __init__(self) -> None:
        require_extra("TensorBoard", "telemetry", "tensorboardX")
        self._writer: SummaryWriter | None = None

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Creates the folder with an event file."""
        from tensorboardX import SummaryWriter

        resumed = meta.resumed_update
        purge_step = None if resumed is None else resumed * meta.steps_per_update + 1
        self._writer = SummaryWriter(
            str(run_dir / FOLDER),
            purge_step=purge_step,
            flush_secs=_FLUSH_SECONDS,
            filename_suffix=f".{resumed or 0}",  # unique, even if the run is resumed within a second
        )
        if purge_step is None:
            leaves = "\n".join(f"| {name} | {value} |" for name, value in scalars.flat_config(meta.config).items())
            self._writer.add_text("config", f"| leaf | value |\n| --- | --- |\n{leaves}", 0)

    def write(self, reports: Sequence[Report]) -> None:
        """Logs the numbers of reports. They are in the file some seconds later."""
        if self._writer is None:
            raise ValueError("the sink is not open")
        for report in reports:
            for key, value in scalars.numbers(report).items():
                self._writer.add_scalar(key, value, report.clock.timesteps)

    def close(self) -> None:
        """Closes the event file. Safe to call twice."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
