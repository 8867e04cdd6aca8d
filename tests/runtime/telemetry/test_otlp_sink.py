"""Traces as a collector receives them: a real HTTP server that decodes OTLP."""

import contextlib
import gzip
import http.server
import json
import logging
import threading
from pathlib import Path

import pytest
from support.telemetry import META, join

from stoix_like.runtime.telemetry import QueuedSink, Span, open_telemetry
from stoix_like.runtime.telemetry.otlp_sink import OtlpSink

UPDATE = Span("update", 1000.0, 3.0, {"updates": 2}, (Span("rollout", 1000.0, 1.0),))
CHUNK = Span("chunk", 1000.0, 4.0, {"from_update": 4}, (UPDATE, Span("evaluate", 1003.0, 1.0)))


class _Collector(http.server.ThreadingHTTPServer):
    """Keeps every span it is sent; `status` is what it answers. It is no MLflow server unless it has experiments."""

    def __init__(self, experiments=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans, self.headers, self.resources, self.status, self.experiments = [], [], [], 200, experiments
        self.wants = None  # (header, value) without which it answers 401

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def _answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _experiment(self, name):
        known = self.server.experiments
        if known is None:
            self._answer(404, b"no such page")
        elif name in known:
            self._answer(200, json.dumps({"experiment": {"experiment_id": known[name]}}).encode())
        else:
            self._answer(404, json.dumps({"error_code": "RESOURCE_DOES_NOT_EXIST"}).encode())

    def do_GET(self):
        if self.server.wants and self.headers.get(self.server.wants[0]) != self.server.wants[1]:
            return self._answer(401, b"who are you?")
        return self._experiment(self.path.rpartition("=")[2])

    def do_POST(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/experiments/create"):
            self.server.experiments[json.loads(body)["name"]] = "8"
            return self._answer(200, b"{}")
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        request = ExportTraceServiceRequest.FromString(body)
        assert self.path == "/v1/traces"
        self.server.headers.append(dict(self.headers))
        for resource in request.resource_spans:
            self.server.resources.append({a.key: a.value.string_value for a in resource.resource.attributes})
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return self._answer(self.server.status)

    def log_message(self, *_):
        """Quiet."""


@contextlib.contextmanager
def collector(experiments=None):
    with _Collector(experiments) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _attributes(span):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_a_chunk_is_a_trace_with_its_parts_inside(tmp_path):
    with collector() as server:
        sink = OtlpSink(f"{server.url}/v1/traces", "stoix_like", lambda: "run-7")
        sink.open(tmp_path / "name", META)
        sink.trace([CHUNK])
        sink.close()
        sink.close()
    start, *spans = server.spans
    by_name = {span.name: span for span in spans}
    assert start.name == "start"
    assert _attributes(start)["num_envs"] == 64
    assert list(by_name) == ["rollout", "update", "evaluate", "chunk"]
    chunk, update = by_name["chunk"], by_name["update"]
    assert {span.trace_id for span in spans} == {chunk.trace_id} != {start.trace_id}
    assert (chunk.parent_span_id, update.parent_span_id) == (b"", chunk.span_id)
    assert by_name["rollout"].parent_span_id == update.span_id
    assert by_name["evaluate"].parent_span_id == chunk.span_id
    assert (update.start_time_unix_nano, update.end_time_unix_nano) == (1000 * 10**9, 1003 * 10**9)
    common = {"run": "name", "algorithm": "PPO", "task_id": "Maze-v0", "mlflow.runId": "run-7"}
    assert _attributes(chunk) == {**common, "from_update": 4}
    assert _attributes(update) == {"updates": 2}
    assert server.resources[0]["service.name"] == "stoix_like.ppo"
    assert "x-mlflow-experiment-id" not in {name.lower() for name in server.headers[0]}


def _sent_headers(server):
    """Those of what a sink sends of a run."""
    sink = OtlpSink(server.url, "ours", None)
    sink.open(Path("run"), META)
    sink.close()
    return {name.lower(): value for name, value in server.headers[0].items()}


@pytest.mark.parametrize("known", [{"ours": "3"}, {"other": "1"}])
def test_a_server_of_mlflow_is_told_the_experiment(known):
    with collector(dict(known)) as server:
        assert _sent_headers(server)["x-mlflow-experiment-id"] == known.get("ours", "8")


def test_headers_of_the_environment_are_sent_with_everything(monkeypatch):
    """A server of MLflow that wants a password is recognised, too, and gets its header beside that."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20bWU6cHc=,x-team=ours")
    with collector({"ours": "3"}) as server:
        server.wants = ("Authorization", "Basic bWU6cHc=")
        header = _sent_headers(server)
    assert header["x-mlflow-experiment-id"] == "3"
    assert (header["authorization"], header["x-team"]) == ("Basic bWU6cHc=", "ours")


def test_a_second_sink_hears_the_exporters_complaints_as_the_first_did(tmp_path):
    with collector() as server:
        for _ in range(2):
            sink = OtlpSink(server.url, "e", None)
            sink.open(tmp_path, META)
            sink.close()
            assert logging.getLogger("opentelemetry.exporter.otlp.proto.http").propagate


@pytest.mark.parametrize("answer", [422, None])
def test_a_collector_that_refuses_or_is_not_there_is_dropped_with_its_reason(tmp_path, capsys, answer):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(collector())
        if answer is None:
            stack.close()  # a port that nobody listens on any more
        telemetry = open_telemetry(tmp_path, META, async_sinks=[QueuedSink(OtlpSink(server.url, "e", None), "OTLP")])
        server.status = answer
        telemetry.trace([CHUNK])
        join("OTLP")
        telemetry.trace([CHUNK])
        telemetry.close()
    warning = capsys.readouterr().err
    assert warning.startswith("warning: OTLP dropped (ConnectionError: ")
    assert str(answer or "") in warning
    assert warning.count("\n") == 1
