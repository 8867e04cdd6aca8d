"""The sinks that `logging:` enables, each on its own thread."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stoix_like.config.sections.runs import LoggingConfig
from stoix_like.runtime.storage.sqlite_files import sqlite_url
from stoix_like.runtime.telemetry.mlflow_sink import MlflowSink, experiment_name
from stoix_like.runtime.telemetry.otlp_sink import OtlpSink
from stoix_like.runtime.telemetry.queued_sink import QueuedSink
from stoix_like.runtime.telemetry.tensorboard_sink import TensorboardSink
from stoix_like.runtime.telemetry.wandb_sink import WandbSink

_ANSWER_SECONDS = 30.0  # the run waits for MLflow to find the run named by mlflow_run_id


def sinks_from_config(config: LoggingConfig, save_dir: str) -> list[QueuedSink]:
    """The enabled sinks, not opened yet. Raises MissingExtraError if one needs a library that is not installed."""
    sinks = []
    mlflow = None
    # a tracking URI or a run enables it too
    if config.mlflow or config.mlflow_tracking_uri is not None or config.mlflow_run_id is not None:
        uri = config.mlflow_tracking_uri or default_tracking_uri(save_dir, os.environ)
        mlflow = MlflowSink(uri, config.mlflow_run_id)
        answer_seconds = 0.0 if config.mlflow_run_id is None else _ANSWER_SECONDS
        sinks.append(QueuedSink(mlflow, "MLflow", answer_seconds=answer_seconds))
    if config.otlp_endpoint is not None:
        find_run = None if mlflow is None else mlflow.find_run_id
        sinks.append(QueuedSink(OtlpSink(config.otlp_endpoint, experiment_name(), find_run), "OTLP"))
    if config.tensorboard:
        sinks.append(QueuedSink(TensorboardSink(), "TensorBoard"))
    if config.wandb:
        sinks.append(QueuedSink(WandbSink(), "Weights & Biases"))
    return sinks


def default_tracking_uri(save_dir: str, environ: Mapping[str, str]) -> str:
    """MLFLOW_TRACKING_URI if it is set, otherwise a SQLite file next to the run folders.

    Raises ConfigError if there can be no such file, see `sqlite_url`.
    """
    own = environ.get("MLFLOW_TRACKING_URI")
    return own or sqlite_url(
        Path(save_dir).resolve() / "mlflow.db", "give --mlflow-tracking-uri, or another --save-dir"
    )
