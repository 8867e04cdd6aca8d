"""Exports traces to a collector by OTLP/HTTP. The only module that imports opentelemetry.

Each chunk of updates is a trace, exported when it is complete. An MLflow server (3.6 or newer) is a collector if a
header names the experiment. Such a server is recognised by its API, and the experiment is found or created there. All
other headers, including credentials, come from OTEL_EXPORTER_OTLP_HEADERS, as for every program with OpenTelemetry.
"""

from __future__ import annotations

import json
import logging
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoix_like.runtime.console.installation import require_extra
from stoix_like.runtime.console.text import Value
from stoix_like.runtime.runs.folder import display_name
from stoix_like.runtime.telemetry.sink import Report, RunMeta, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import Span as OpenSpan
    from opentelemetry.trace import Tracer

_TRACES = "/v1/traces"
_SECONDS = 3.0  # timeout of a request, retries included
_EXPORTER = "opentelemetry.exporter.otlp.proto.http"


class OtlpSink:
    """Exports spans as OTLP spans; ignores reports.

    The constructor raises MissingExtraError if opentelemetry is not installed.

    Args:
        endpoint: of a collector, such as `http://localhost:4318`; `/v1/traces` is added if it is missing.
        experiment: of MLflow.
        find_run: returns the id of the MLflow run of the traces, or None. Called once, on the sink's thread. None if
            metrics are not logged to MLflow.
    """

    def __init__(self, endpoint: str, experiment: str, find_run: Callable[[], str | None] | None) -> None:
        require_extra("an OTLP endpoint", "telemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
        self._base = endpoint.rstrip("/").removesuffix(_TRACES)
        self._experiment, self._find_run = experiment, find_run
        self._tracer: Tracer | None = None
        self._exporter: Any = None
        self._ended: InMemorySpanExporter | None = None
        self._common: dict[str, Value] = {}
        self._log = _LastMessage()

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Exports a first trace, `start`, with the metadata of the run. Raises ConnectionError if that fails."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        headers = _headers_from_environment()
        headers |= _mlflow_headers(self._base, self._experiment, headers)
        self._log.listen()
        self._exporter = OTLPSpanExporter(endpoint=self._base + _TRACES, headers=headers, timeout=_SECONDS)
        about = {"service.name": f"stoix_like.{meta.algorithm}", "service.instance.id": display_name(run_dir)}
        about["service.version"] = meta.versions.get("stoix_like", "")
        provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        self._ended = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self._tracer = provider.get_tracer("stoix_like")
        self._common = {"run": display_name(run_dir), "algorithm": meta.title, "task_id": meta.task_id}
        self.trace([Span("start", time.time(), 0.0, meta.start_values)])

    def write(self, reports: Sequence[Report]) -> None:
        """Does nothing: metrics have other sinks."""

    def trace(self, spans: Sequence[Span]) -> None:
        """Exports each span, with its children, as a trace. Raises ConnectionError if that fails."""
        if self._tracer is None or self._ended is None:
            raise ValueError("the sink is not open")
        from opentelemetry.sdk.trace.export import SpanExportResult

        if self._find_run is not None:
            find_run, self._find_run = self._find_run, None
            run_id = find_run()
            self._common |= {"mlflow.runId": run_id} if run_id else {}
        for span in spans:
            self._record(self._tracer, span, None)
        spans_to_export = self._ended.get_finished_spans()
        self._ended.clear()
        if self._exporter.export(spans_to_export) is not SpanExportResult.SUCCESS:
            raise ConnectionError(self._log.text or f"{self._base} did not accept the spans")

    def close(self) -> None:
        """Closes the connection. Safe to call twice."""
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.shutdown()
        self._log.stop()

    def _record(self, tracer: Tracer, span: Span, parent: OpenSpan | None) -> None:
        from opentelemetry import trace

        began = int(span.began * 1e9)
        attributes = {**self._common, **span.attributes} if parent is None else dict(span.attributes)
        context = None if parent is None else trace.set_span_in_context(parent)
        recorded = tracer.start_span(span.name, context=context, start_time=began, attributes=attributes)
        for child in span.children:
            self._record(tracer, child, recorded)
        recorded.end(began + int(span.seconds * 1e9))


class _LastMessage(logging.Handler):
    """Keeps the exporter's last log message for the sink's warning, so that it is printed once."""

    text = ""

    def listen(self) -> None:
        logger = logging.getLogger(_EXPORTER)
        logger.addHandler(self)
        logger.propagate = False

    def stop(self) -> None:
        logger = logging.getLogger(_EXPORTER)
        logger.removeHandler(self)
        logger.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def _headers_from_environment() -> dict[str, str]:
    """The headers of the environment. Up to version 1.44, the exporter ignores them if other headers are passed."""
    from opentelemetry.util.re import parse_env_headers

    general = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    return dict(parse_env_headers(os.environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS", general), liberal=True))


def _mlflow_headers(base: str, experiment: str, given: Mapping[str, str]) -> dict[str, str]:
    """The additional header for an MLflow server; empty for other collectors.

    The experiment is created if it is missing. Two runs that start together may both try.
    """
    api = f"{base}/api/2.0/mlflow/experiments"
    query = f"{api}/get-by-name?{urllib.parse.urlencode({'experiment_name': experiment})}"
    for _ in range(2):
        answer = _request_json(query, given)
        if experiment_entry := answer.get("experiment"):
            return {"x-mlflow-experiment-id": str(experiment_entry["experiment_id"])}
        if answer.get("error_code") != "RESOURCE_DOES_NOT_EXIST":
            return {}
        _request_json(f"{api}/create", given, {"name": experiment})
    return {}


def _request_json(url: str, headers: Mapping[str, str], message: dict[str, str] | None = None) -> dict[str, Any]:
    """The answer of a server if it is a JSON object, else {}."""
    data = None if message is None else json.dumps(message).encode()
    request = urllib.request.Request(url, data, {**headers, "Content-Type": "application/json"})
    try:
        try:
            answer = urllib.request.urlopen(request, timeout=_SECONDS)
        except urllib.error.HTTPError as error:
            answer = error  # its body may be an object, too
        with answer:
            content = json.load(answer)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
