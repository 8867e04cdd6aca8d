"""Metrics and traces of a run: metrics.jsonl, the terminal, and the sinks that `logging:` enables.
Imports console, storage and runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stoix_like.runtime.telemetry.hub import TelemetryHub
from stoix_like.runtime.telemetry.jsonl import JsonlSink, read_rows
from stoix_like.runtime.telemetry.marl_eval import MarlEvalSink
from stoix_like.runtime.telemetry.queued_sink import QueuedSink
from stoix_like.runtime.telemetry.sink import Clock, Report, RunMeta, Sink, Span, event

__all__ = [
    "Clock",
    "JsonlSink",
    "MarlEvalSink",
    "QueuedSink",
    "Report",
    "RunMeta",
    "Sink",
    "Span",
    "TelemetryHub",
    "event",
    "open_telemetry",
    "read_rows",
]


def open_telemetry(
    run_dir: Path, meta: RunMeta, sinks: Sequence[Sink] = (), async_sinks: Sequence[QueuedSink] = ()
) -> TelemetryHub:
    """An open TelemetryHub that writes metrics.jsonl in `run_dir` and to the given sinks.

    Raises RunError if metrics.jsonl cannot be written or exists, and any StoixError of a sink.
    """
    telemetry = TelemetryHub(JsonlSink(), sinks, async_sinks)
    telemetry.open(run_dir, meta)
    return telemetry
