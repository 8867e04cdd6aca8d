"""Metrics to MLflow: a local SQLite store, or a tracking server. The door to mlflow.

A run folder knows its MLflow run (`mlflow.json`), so that a resumed run goes on in it. What was told after the
checkpoint that it goes on from stays there: MLflow keeps all values of a step and shows the last one.
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
EXPERIMENT = "stoix_like"  # unless MLFLOW_EXPERIMENT_NAME says otherwise
_MOST_METRICS, _MOST_PARAMS, _LONGEST_PARAM = 1000, 100, 6000  # of one request: the limits of MLflow's own API
#: How patient the client is, unless the environment says otherwise: at the start a server that is away must be told
#: at once; later one that is restarted (5 tries, about a minute) is waited for, on the sink's own thread.
_AT_START = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "3"}
_LATER = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


class MlflowRun(NamedTuple):
    """Where a run's metrics are: as it stands in mlflow.json."""

    tracking_uri: str  # without user and password
    experiment_id: str
    run_id: str


class MlflowSink:
    """Numbers become metrics, the configuration parameters, texts tags.

    Args:
        tracking_uri: `sqlite:///...` or `http://...`.
        run_id: of an MLflow run to go on in; None = that of the run folder, or a new one.

    Attributes:
        run: the MLflow run, once it is there; fails if it never is.

    Raises:
        MissingExtraError: MLflow is not installed.
    """

    def __init__(self, tracking_uri: str, run_id: str | None = None) -> None:
        needed = ("sqlalchemy", "alembic") if tracking_uri.startswith("sqlite:") else ()
        require_extra("MLflow", "mlflow", "mlflow", *needed)
        self.run: Future[MlflowRun] = Future()
        self._uri, self._asked_run_id = tracking_uri, run_id
        self._client: MlflowClient | None = None
        self._patience = _Patience()
        self._patience.set(_AT_START)  # here: a new variable moves the environment, which other threads read
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")  # it tells of each migration of a new SQLite file
        self._texts: dict[str, str] = {}
        self._has_failed = False
        self._last = (0, 0)  # (update told last, update that would be the last)

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Finds or makes the MLflow run, and notes it in the run folder.

        Raises:
            ConfigError: there is no MLflow run of the id that was asked for.
            Exception: what the client raises where the store cannot be reached.
        """
        try:
            self.run.set_result(self._open(run_dir, meta))
        except Exception as error:
            self.run.set_exception(error)
            self._patience.restore()
            raise

    def write(self, rows: Sequence[Row]) -> None:
        """One request for the numbers of a report, and one for each text that is new."""
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
        """Ends the MLflow run: FINISHED after its last update, FAILED after an error, otherwise KILLED. Safe to call
        twice.
        """
        client, self._client = self._client, None
        try:
            if client is not None:
                status = "FINISHED" if self._last[0] >= self._last[1] else "KILLED"
                status = "FAILED" if self._has_failed else status
                client.set_terminated(self.run.result().run_id, status=status)
        finally:
            self._patience.restore()

    def _opened(self) -> tuple[MlflowClient, str]:
        if self._client is None:
            raise ValueError("the sink is not open")
        return self._client, self.run.result().run_id

    def _open(self, run_dir: Path, meta: RunMeta) -> MlflowRun:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self._uri)
        found = self._run_to_continue(client, run_dir, meta) or self._new_run(client, run_dir, meta)
        self._patience.set(_LATER)
        atomic_write_json(run_dir / FILE_NAME, found._asdict())
        self._client, self._last = client, (meta.resumed_update or 0, meta.num_updates)
        return found

    def _run_to_continue(self, client: MlflowClient, run_dir: Path, meta: RunMeta) -> MlflowRun | None:
        noted = _noted(run_dir) if meta.resumed_update is not None else None
        if noted is not None and noted.tracking_uri != without_secrets(self._uri):
            noted = None
        run_id = self._asked_run_id or (noted.run_id if noted else None)
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
            if self._asked_run_id is None:  # deleted over there: it gets a new one
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


class _Patience:
    """How long the client waits, which it reads from the process's environment at every request."""

    _ours: ClassVar[set[str]] = set()  # of this process: what the user has set is left alone

    def set(self, values: Mapping[str, str]) -> None:
        self._ours.update(name for name in values if name not in os.environ)
        os.environ.update({name: value for name, value in values.items() if name in self._ours})

    def restore(self) -> None:
        """Leaves the environment as it was, for the next run of this process."""
        while self._ours:
            os.environ.pop(self._ours.pop(), None)


def default_tracking_uri(save_dir: str, environ: Mapping[str, str]) -> str:
    """MLFLOW_TRACKING_URI if it is set, otherwise a SQLite file beside the run folders."""
    return environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path(save_dir).resolve() / 'mlflow.db'}"


def without_secrets(uri: str) -> str:
    """The address without `user:password@`: it is written into files and messages."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if parts.netloc else uri


def experiment_name() -> str:
    """MLFLOW_EXPERIMENT_NAME, or ours."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT


def _experiment(client: MlflowClient, run_dir: Path, uri: str) -> str:
    """The id of the experiment, which two runs that begin together may both find missing."""
    from mlflow.exceptions import MlflowException

    name = experiment_name()
    if (found := client.get_experiment_by_name(name)) is not None:
        return str(found.experiment_id)
    # a store without a server would put files that somebody uploads into the folder it is used from
    location = (run_dir.resolve().parent / "mlartifacts").as_uri() if uri.startswith("sqlite:") else None
    try:
        return str(client.create_experiment(name, artifact_location=location))
    except MlflowException:
        if (found := client.get_experiment_by_name(name)) is None:
            raise
        return str(found.experiment_id)


def _noted(run_dir: Path) -> MlflowRun | None:
    try:
        return MlflowRun(**json.loads((run_dir / FILE_NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _metric(key: str, value: float, moment: int, step: int) -> Metric:
    from mlflow.entities import Metric

    return Metric(key, value, moment, step)


def _batches(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + most] for start in range(0, len(items), most))
