"""Logs metrics to MLflow: a local SQLite store or a tracking server. The only module that imports mlflow.

`mlflow.json` in the run folder names the MLflow run, so that a resumed run continues it. Metrics logged after the
checkpoint stay in MLflow, which keeps all values of a step and shows the last one.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from stoix_like.errors import ConfigError
from stoix_like.runtime.console.installation import require_extra
from stoix_like.runtime.console.messages import print_to_stderr
from stoix_like.runtime.runs.folder import display_name
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.storage.sqlite_files import sqlite_lock
from stoix_like.runtime.telemetry import scalars
from stoix_like.runtime.telemetry.sink import Report, RunMeta

if TYPE_CHECKING:
    from mlflow.entities import RunInfo
    from mlflow.tracking import MlflowClient

FILE_NAME = "mlflow.json"
EXPERIMENT = "stoix_like"  # unless MLFLOW_EXPERIMENT_NAME is set
_MOST_METRICS, _MOST_PARAMS, _LONGEST_PARAM = 1000, 100, 6000  # limits of MLflow's API for one request
_RUN_SECONDS = 30.0  # others wait so long for the MLflow run
_OPEN_SECONDS = 120.0  # another process may make or migrate the store so long
_REFUSED, _LONGEST_NAME = re.compile(r"[^\w\-. :/]"), 250  # of the names of metrics and tags
#: Retries and timeout of the client, unless the environment sets them. At the start an unreachable server must be
#: reported at once. Later the sink's thread waits for a server that restarts: 5 retries, about a minute.
_AT_START = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "3"}
_LATER = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
_OUR_VARIABLES: set[str] = set()  # set by this process; those of the user are left alone


class MlflowSink:
    """Logs numbers as metrics, the configuration as parameters, and texts as tags.

    The constructor raises MissingExtraError if MLflow is not installed.

    Args:
        tracking_uri: `sqlite:///...` or `http://...`.
        run_id: of an existing MLflow run; None = that of the run folder, or a new one.
    """

    def __init__(self, tracking_uri: str, run_id: str | None = None) -> None:
        needed = ("sqlalchemy", "alembic") if tracking_uri.startswith("sqlite:") else ()
        require_extra("MLflow", "mlflow", "mlflow", *needed)
        self._run_id: Future[str] = Future()
        self._uri, self._given_run_id = tracking_uri, run_id
        self._client: MlflowClient | None = None
        _set_limits(_AT_START)  # before the thread starts: adding a variable is unsafe while other threads read
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")  # no message per migration of a new SQLite file
        self._texts: dict[str, str] = {}
        self._names: dict[str, str] = {}  # of reports: in MLflow
        self._has_failed = False
        self._last = (0, 0)  # (update logged last, last update of the run)

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Finds or creates the MLflow run and writes mlflow.json.

        Raises ConfigError if there is no run with the given id, and errors of MLflow if the store cannot be reached.
        """
        try:
            with sqlite_lock(self._uri, _OPEN_SECONDS):
                self._run_id.set_result(self._open(run_dir, meta))
        except Exception as error:
            self._run_id.set_exception(error)
            _restore_limits()
            raise

    def write(self, reports: Sequence[Report]) -> None:
        """Logs the numbers of each report in one request, and each new text in another."""
        from mlflow.entities import Metric

        if self._client is None:
            raise ValueError("the sink is not open")
        client, run_id = self._client, self._run_id.result()
        moment = time.time_ns() // 1_000_000
        for report in reports:
            step, numbers = report.clock.timesteps, scalars.numbers(report)
            metrics = [Metric(self._name(key), value, moment, step) for key, value in numbers.items()]
            for batch in _batches(metrics, _MOST_METRICS):
                client.log_batch(run_id, metrics=batch)
            for key, text in report.texts.items():
                if self._texts.get(key) != text:
                    client.set_tag(run_id, self._name(key), text)
                    self._texts[key] = text
            self._has_failed |= report.texts.get("misc/event") == "failed"
            self._last = (report.clock.update, self._last[1])

    def close(self) -> None:
        """Ends the MLflow run as FINISHED after its last update, FAILED after an error, else KILLED.

        Safe to call twice.
        """
        client, self._client = self._client, None
        try:
            if client is not None:
                status = "FINISHED" if self._last[0] >= self._last[1] else "KILLED"
                status = "FAILED" if self._has_failed else status
                client.set_terminated(self._run_id.result(), status=status)
        finally:
            _restore_limits()

    def _name(self, key: str) -> str:
        """The name of a metric or tag in MLflow, which refuses a request with one of another form."""
        if key not in self._names:
            name, number = allowed_name(key), 1
            while name in self._names.values():
                number += 1
                name = f"{allowed_name(key)[: _LONGEST_NAME - 8]}_{number}"
            self._names[key] = name
            if name != key:
                print_to_stderr(f"warning: MLflow takes no metric or tag named {key!r}: it is logged as {name!r}")
        return self._names[key]

    def find_run_id(self) -> str | None:
        """The id of the MLflow run, once another thread has opened this sink; None if that fails or takes too long."""
        try:
            return self._run_id.result(_RUN_SECONDS)
        except (Exception, CancelledError):  # of `open`, which reports it
            return None

    def _open(self, run_dir: Path, meta: RunMeta) -> str:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self._uri)
        uri = without_secrets(self._uri)
        run_id = self._given_run_id or (None if meta.resumed_update is None else _stored_run_id(run_dir, uri))
        existing = None if run_id is None else self._existing_run(client, run_id)
        info = existing or self._new_run(client, run_dir, meta)
        _set_limits(_LATER)
        content = {"tracking_uri": uri, "experiment_id": info.experiment_id, "run_id": info.run_id}
        atomic_write_json(run_dir / FILE_NAME, content)
        self._client, self._last = client, (meta.resumed_update or 0, meta.num_updates)
        return info.run_id

    def _existing_run(self, client: MlflowClient, run_id: str) -> RunInfo | None:
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
        return info

    def _new_run(self, client: MlflowClient, run_dir: Path, meta: RunMeta) -> RunInfo:
        from mlflow.entities import Param

        experiment_id = _experiment(client, run_dir, self._uri)
        tags = {f"version_{library}": version for library, version in meta.versions.items()}
        tags |= {"algorithm": meta.title, "task_id": meta.task_id, "device": meta.device}
        info = client.create_run(experiment_id, run_name=display_name(run_dir), tags=tags).info
        params = [Param(name, value[:_LONGEST_PARAM]) for name, value in scalars.flat_config(meta.config).items()]
        for batch in _batches(params, _MOST_PARAMS):
            client.log_batch(info.run_id, params=batch)
        return info


def _set_limits(values: Mapping[str, str]) -> None:
    """Sets retries and timeout in the environment, where the client reads them at every request."""
    _OUR_VARIABLES.update(name for name in values if name not in os.environ)
    os.environ.update({name: value for name, value in values.items() if name in _OUR_VARIABLES})


def _restore_limits() -> None:
    """Restores the environment for the next run of this process."""
    while _OUR_VARIABLES:
        os.environ.pop(_OUR_VARIABLES.pop(), None)


def allowed_name(key: str) -> str:
    """A name that MLflow takes: other characters become underscores, and it is no path that has a shorter form."""
    name = _REFUSED.sub("_", key)[:_LONGEST_NAME]
    is_path = name != posixpath.normpath(name) or name in (".", "..") or name.startswith(("/", "../"))
    return name.replace("/", "_").strip(".") or "_" if is_path else name


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


def _stored_run_id(run_dir: Path, uri: str) -> str | None:
    """The id in mlflow.json if it is of this store."""
    try:
        stored = json.loads((run_dir / FILE_NAME).read_text(encoding="utf-8"))
        return str(stored["run_id"]) if stored["tracking_uri"] == uri else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _batches(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + most] for start in range(0, len(items), most))
