"""Where metrics go: the record of a run (JSONL), the terminal, and every sink that is switched on in `logging:`.
Imports console, storage and runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stoix_like.runtime.telemetry.hub import TelemetryHub
from stoix_like.runtime.telemetry.jsonl import JsonlSink, read_rows
from stoix_like.runtime.telemetry.marl_eval import MarlEvalSink
from stoix_like.runtime.telemetry.queued_sink import QueuedSink
from stoix_like.runtime.telemetry.sink import Row, RunMeta, Sink, Span

__all__ = [
    "JsonlSink",
    "MarlEvalSink",
    "QueuedSink",
    "Row",
    "RunMeta",
    "Sink",
    "Span",
    "TelemetryHub",
    "open_telemetry",
    "read_rows",
]


def open_telemetry(
    run_dir: Path, meta: RunMeta, sinks: Sequence[Sink] = (), queued: Sequence[QueuedSink] = ()
) -> TelemetryHub:
    """The open fan-out of a run: metrics.jsonl in `run_dir`, and the given sinks, each dropped if it fails.

    Raises:
        RunError: metrics.jsonl cannot be written, or belongs to another run.
        StoixError: a sink refuses what the configuration asks for.
    """
    telemetry = TelemetryHub(JsonlSink(), sinks, queued)
    telemetry.open(run_dir, meta)
    return telemetry
