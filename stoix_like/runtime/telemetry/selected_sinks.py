"""The sinks that `logging:` enables, each on its own thread."""

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

_RUN_SECONDS = 30.0  # the first trace waits for its MLflow run
_ANSWER_SECONDS = 30.0  # the run waits for MLflow to find the run named by mlflow_run_id


def sinks_from_config(config: LoggingConfig, save_dir: str) -> list[QueuedSink]:
    """The enabled sinks, not opened yet. Raises MissingExtraError if one needs a library that is not installed."""
    sinks = []
    mlflow = None
    if uses_mlflow(config):
        uri = config.mlflow_tracking_uri or default_tracking_uri(save_dir, os.environ)
        mlflow = MlflowSink(uri, config.mlflow_run_id)
        names_run = config.mlflow_run_id is not None
        sinks.append(QueuedSink(mlflow, "MLflow", answer_seconds=_ANSWER_SECONDS if names_run else 0.0))
    if config.otlp_endpoint is not None:
        find_run = _run_id(mlflow) if mlflow is not None else None
        sinks.append(QueuedSink(OtlpSink(config.otlp_endpoint, experiment_name(), find_run), "OTLP"))
    if config.tensorboard:
        sinks.append(QueuedSink(TensorboardSink(), "TensorBoard"))
    if config.wandb:
        sinks.append(QueuedSink(WandbSink(), "Weights & Biases"))
    return sinks


def uses_mlflow(config: LoggingConfig) -> bool:
    """Whether metrics are logged to MLflow: it is enabled, or a tracking URI or a run is given."""
    return config.mlflow or config.mlflow_tracking_uri is not None or config.mlflow_run_id is not None


def _run_id(sink: MlflowSink) -> Callable[[], str | None]:
    def find() -> str | None:
        try:
            return sink.run.result(_RUN_SECONDS).run_id
        except (Exception, concurrent.futures.CancelledError):  # the MLflow sink reports the error
            return None

    return find
