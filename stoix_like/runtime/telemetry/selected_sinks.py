"""The sinks that `logging:` switches on, each on a thread of its own."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable

from stoix_like.config.sections import LoggingConfig
from stoix_like.runtime.telemetry.mlflow_sink import MlflowSink, default_tracking_uri, experiment_name
from stoix_like.runtime.telemetry.otlp_sink import OtlpSink
from stoix_like.runtime.telemetry.queued_sink import QueuedSink
from stoix_like.runtime.telemetry.tensorboard_sink import TensorboardSink
from stoix_like.runtime.telemetry.wandb_sink import WandbSink

_RUN_SECONDS = 30.0  # that the first trace waits for the MLflow run it belongs to
_ANSWER_SECONDS = 30.0  # that a run waits to hear whether there is the MLflow run it is to write to


def sinks_from_config(config: LoggingConfig, save_dir: str) -> list[QueuedSink]:
    """What is switched on; nothing is opened yet.

    Raises:
        MissingExtraError: a library that one of them needs is not installed.
    """
    found = []
    mlflow = None
    if uses_mlflow(config):
        uri = config.mlflow_tracking_uri or default_tracking_uri(save_dir, os.environ)
        mlflow = MlflowSink(uri, config.mlflow_run_id)
        asked = config.mlflow_run_id is not None
        found.append(QueuedSink(mlflow, "MLflow", answer_seconds=_ANSWER_SECONDS if asked else 0.0))
    if config.otlp_endpoint is not None:
        find_run = _run_id(mlflow) if mlflow is not None else None
        found.append(QueuedSink(OtlpSink(config.otlp_endpoint, experiment_name(), find_run), "OTLP"))
    if config.tensorboard:
        found.append(QueuedSink(TensorboardSink(), "TensorBoard"))
    if config.wandb:
        found.append(QueuedSink(WandbSink(), "Weights & Biases"))
    return found


def uses_mlflow(config: LoggingConfig) -> bool:
    """Whether MLflow is told: switched on, or somewhere to go is given."""
    return config.mlflow or config.mlflow_tracking_uri is not None or config.mlflow_run_id is not None


def _run_id(sink: MlflowSink) -> Callable[[], str | None]:
    def find() -> str | None:
        try:
            return sink.run.result(_RUN_SECONDS).run_id
        except (Exception, concurrent.futures.CancelledError):  # its own sink tells what is wrong
            return None

    return find
