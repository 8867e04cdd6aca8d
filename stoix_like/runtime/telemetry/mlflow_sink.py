"""Logs metrics to MLflow: a local SQLite store or a tracking server. The only module that imports mlflow.

`mlflow.json` in the run folder names the MLflow run, so that a resumed run continues it. Metrics logged after the
checkpoint stay in MLflow, which keeps all values of a step and shows the last one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from stoix_like.errors import ConfigError
from stoix_like.runtime.console.installation import require_extra
from stoix_like.runtime.runs.folder import display_name
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.telemetry.scalars import flat_config, reports
from stoix_like.runtime.telemetry.sink import Row, RunMeta

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

FILE_NAME = "mlflow.json"
EXPERIMENT = "stoix_like"  # unless MLFLOW_EXPERIMENT_NAME is set
_MOST_METRICS, _MOST_PARAMS, _LONGEST_PARAM = 1000, 100, 6000  # limits of MLflow's API for one request
#: Retries and timeout of the client, unless the environment sets them. At the start an unreachable server must be
#: reported at once. Later the sink's thread waits for a server that restarts: 5 retries, about a minute.
_AT_START = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "3"}
_LATER = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


class MlflowRun(NamedTuple):
    """The MLflow run of a training run: the content of mlflow.json."""

    tracking_uri: str  # without user and password
    experiment_id: str
    run_id: str


class MlflowSink:
    """Logs numbers as metrics, the configuration as parameters, and texts as tags.

    The constructor raises MissingExtraError if MLflow is not installed.

    Args:
        tracking_uri: `sqlite:///...` or `http://...`.
        run_id: of an existing MLflow run; None = that of the run folder, or a new one.

    Attributes:
        run: a future of the MLflow run.
    """

    def __init__(self, tracking_uri: str, run_id: str | None = None) -> None:
        needed = ("sqlalchemy", "alembic") if tracking_uri.startswith("sqlite:") else ()
        require_extra("MLflow", "mlflow", "mlflow", *needed)
        self.run: Future[MlflowRun] = Future()
        self._uri, self._given_run_id = tracking_uri, run_id
        self._client: MlflowClient | None = None
        self._limits = _RequestLimits()
        self._limits.set(_AT_START)  # before the thread starts: adding a variable is unsafe while other threads read
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")  # no message per migration of a new SQLite file
        self._texts: dict[str, str] = {}
        self._has_failed = False
        self._last = (0, 0)  # (update logged last, last update of the run)

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Finds or creates the MLflow run and writes mlflow.json.

        Raises:
            ConfigError: there is no MLflow run with the given id.
            Exception: of the client, if the store cannot be reached.
        """
        try:
            self.run.set_result(self._open(run_dir, meta))
        except Exception as error:
            self.run.set_exception(error)
            self._limits.restore()
            raise

    def write(self, rows: Sequence[Row]) -> None:
        """Logs the numbers of a report in one request, and each new text in another."""
        client, run_id = self._opened()
        moment = time.time_ns() // 1_000_000
        for report in reports(rows):
            metrics = [_metric(key, value, moment, report.step) for key, value in report.numbers.items()]
            for batch in _batches(metrics, _MOST_METRICS):
                client.log_batch(run_id, metrics=batch)
            for key, text in report.texts.items():
                if self._texts.get(key) != text:
                    client.set_tag(run_id, key, text)
                    self._texts[key] = text
        self._has_failed |= any(row.values.get("misc/event") == "failed" for row in rows)
        self._last = (max((row.update for row in rows), default=0), self._last[1])

    def close(self) -> None:
        """Ends the MLflow run as FINISHED after its last update, FAILED after an error, else KILLED.

        Safe to call twice.
        """
        client, self._client = self._client, None
        try:
            if client is not None:
                status = "FINISHED" if self._last[0] >= self._last[1] else "KILLED"
                status = "FAILED" if self._has_failed else status
                client.set_terminated(self.run.result().run_id, status=status)
        finally:
            self._limits.restore()

    def _opened(self) -> tuple[MlflowClient, str]:
        if self._client is None:
            raise ValueError("the sink is not open")
        return self._client, self.run.result().run_id

    def _open(self, run_dir: Path, meta: RunMeta) -> MlflowRun:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self._uri)
        run = self._existing_run(client, run_dir, meta) or self._new_run(client, run_dir, meta)
        self._limits.set(_LATER)
        atomic_write_json(run_dir / FILE_NAME, run._asdict())
        self._client, self._last = client, (meta.resumed_update or 0, meta.num_updates)
        return run

    def _existing_run(self, client: MlflowClient, run_dir: Path, meta: RunMeta) -> MlflowRun | None:
        stored = _stored_run(run_dir) if meta.resumed_update is not None else None
        if stored is not None and stored.tracking_uri != without_secrets(self._uri):
            stored = None
        run_id = self._given_run_id or (stored.run_id if stored else None)
        if run_id is None:
            return None
        from mlflow.exceptions import MlflowException

        try:
            info = client.get_run(run_id).info
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            info = None
        if info is None or info.lifecycle_stage == "deleted":
            if self._given_run_id is None:  # deleted in MLflow: a new one is created
                return None
            what = "there is no run" if info is None else "somebody has deleted the run"
            raise ConfigError(
                f"logging.mlflow_run_id: {what} '{run_id}' at {without_secrets(self._uri)}",
                "copy it from the run's page, or leave it null for a new one",
            )
        client.update_run(run_id, status="RUNNING")
        return MlflowRun(without_secrets(self._uri), info.experiment_id, run_id)

    def _new_run(self, client: MlflowClient, run_dir: Path, meta: RunMeta) -> MlflowRun:
        from mlflow.entities import Param

        experiment_id = _experiment(client, run_dir, self._uri)
        tags = {f"version_{library}": version for library, version in meta.versions.items()}
        tags |= {"algorithm": meta.algorithm, "task_id": meta.task_id, "device": meta.device}
        run_id = client.create_run(experiment_id, run_name=display_name(run_dir), tags=tags).info.run_id
        params = [Param(name, value[:_LONGEST_PARAM]) for name, value in flat_config(meta.config).items()]
        for batch in _batches(params, _MOST_PARAMS):
            client.log_batch(run_id, params=batch)
        return MlflowRun(without_secrets(self._uri), experiment_id, run_id)


class _RequestLimits:
    """Retries and timeout of the client, which reads them from the environment at every request."""

    _ours: ClassVar[set[str]] = set()  # variables set by this process; those of the user are left alone

    def set(self, values: Mapping[str, str]) -> None:
        self._ours.update(name for name in values if name not in os.environ)
        os.environ.update({name: value for name, value in values.items() if name in self._ours})

    def restore(self) -> None:
        """Restores the environment for the next run of this process."""
        while self._ours:
            os.environ.pop(self._ours.pop(), None)


def default_tracking_uri(save_dir: str, environ: Mapping[str, str]) -> str:
    """MLFLOW_TRACKING_URI if it is set, otherwise a SQLite file next to the run folders."""
    return environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path(save_dir).resolve() / 'mlflow.db'}"


def without_secrets(uri: str) -> str:
    """The address without `user:password@`, for files and messages."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if parts.netloc else uri


def experiment_name() -> str:
    """MLFLOW_EXPERIMENT_NAME, or EXPERIMENT."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT


def _experiment(client: MlflowClient, run_dir: Path, uri: str) -> str:
    """The id of the experiment, which is created if missing. Two runs that start together may both create it."""
    from mlflow.exceptions import MlflowException

    name = experiment_name()
    if (experiment := client.get_experiment_by_name(name)) is not None:
        return str(experiment.experiment_id)
    # without a server, MLflow would store artifacts in the current folder
    location = (run_dir.resolve().parent / "mlartifacts").as_uri() if uri.startswith("sqlite:") else None
    try:
        return str(client.create_experiment(name, artifact_location=location))
    except MlflowException:
        if (experiment := client.get_experiment_by_name(name)) is None:
            raise
        return str(experiment.experiment_id)


def _stored_run(run_dir: Path) -> MlflowRun | None:
    try:
        return MlflowRun(**json.loads((run_dir / FILE_NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _metric(key: str, value: float, moment: int, step: int) -> Metric:
    from mlflow.entities import Metric

    return Metric(key, value, moment, step)


def _batches(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + most] for start in range(0, len(items), most))
