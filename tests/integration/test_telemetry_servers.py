"""A real MLflow server in its own environment, to which a training logs metrics and traces, and which it loses."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest
from support.scripted_runs import BASE, finish, flags, rows_of, wait_until

MLFLOW = "mlflow==3.17.2"
SMALL = BASE | {"num_updates": 12, "log_interval": 3, "eval_interval": 6, "save_interval": 6}


class _Server(NamedTuple):
    url: str
    process: subprocess.Popen

    def stop(self, how=signal.SIGTERM):
        """It and the processes it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)
        self.process.wait(30)


@pytest.fixture(scope="session")
def mlflow_python(tmp_path_factory):
    """The Python of an environment with the whole of MLflow, which does not go together with ours.

    One that is there already can be named in STOIX_LIKE_MLFLOW_PYTHON.
    """
    if given := os.environ.get("STOIX_LIKE_MLFLOW_PYTHON"):
        return Path(given)
    folder = tmp_path_factory.mktemp("mlflow_env")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", MLFLOW]
    subprocess.run(pip, check=True, timeout=600)
    return python


@pytest.fixture
def server(mlflow_python, tmp_path_factory):
    started = _start(mlflow_python, tmp_path_factory.mktemp("mlflow_server"))
    yield started
    started.stop()


def _start(python, folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/store.db"]
    environ = os.environ | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    with (folder / "log.txt").open("w") as log:
        options = {"cwd": folder, "env": environ, "stdout": log, "stderr": log, "start_new_session": True}
        process = subprocess.Popen([*map(str, command)], **options)
    url = f"http://127.0.0.1:{port}"

    def is_up():
        assert process.poll() is None, (folder / "log.txt").read_text()
        try:
            return urllib.request.urlopen(f"{url}/health", timeout=1.0).status == 200
        except OSError:
            return False

    wait_until(is_up, process, every=0.2)
    missing = f"{url}/api/2.0/mlflow/experiments/get-by-name?experiment_name=none"
    with pytest.raises(urllib.error.HTTPError, match="404"):  # its first answer takes long: it opens its store
        urllib.request.urlopen(missing, timeout=60)
    return _Server(url, process)


def _endpoints(server):
    return {"mlflow_tracking_uri": server.url, "otlp_endpoint": server.url}


def test_metrics_and_traces_are_read_back_from_the_server(scripts, server):
    from mlflow.tracking import MlflowClient

    scripts.run("train_ppo", *flags(**SMALL, **_endpoints(server), run_name="logged"))
    client = MlflowClient(tracking_uri=server.url)
    noted = json.loads((scripts.cwd / "logged" / "mlflow.json").read_text())
    run = client.get_run(noted["run_id"])
    assert (run.info.status, run.info.run_name, run.data.params["num_envs"]) == ("FINISHED", "logged", "8")
    for key, category in (("trainer/policy_loss", "TRAINER"), ("evaluator/mean_return", "EVALUATOR")):
        history = client.get_metric_history(noted["run_id"], key)
        rows = [(row["timesteps"], row[key]) for row in rows_of("logged", category)]
        assert [(metric.step, metric.value) for metric in history] == rows
    chunks = _chunks(client, noted["experiment_id"], updates=12)
    assert sum(_spans(trace)["update"].attributes["updates"] for trace in chunks) == 12
    names = {name for trace in chunks for name in _spans(trace)}
    assert names == {"chunk", "update", "rollout", "optimise", "evaluate", "checkpoint"}
    assert {trace.data.spans[0].attributes["mlflow.runId"] for trace in chunks} == {noted["run_id"]}


def _spans(trace):
    return {span.name: span for span in trace.data.spans}


def _chunks(client, experiment_id, updates):
    """The traces of all chunks; the server may take a moment to show the last."""
    deadline = time.monotonic() + 60.0
    while True:
        traces = client.search_traces(locations=[experiment_id], max_results=500)
        chunks = [trace for trace in traces if trace.data.spans[0].name == "chunk"]
        num_updates = sum(_spans(trace)["update"].attributes["updates"] for trace in chunks)
        if num_updates >= updates or time.monotonic() > deadline:
            return chunks
        time.sleep(0.5)


@pytest.mark.full
def test_a_server_that_is_killed_costs_nothing_but_a_warning(scripts, server):
    leaves = SMALL | {"num_updates": 3000, "eval_interval": 0, "log_interval": 20, "save_interval": 0}
    process = scripts.start("train_ppo", *flags(**leaves, **_endpoints(server), run_name="left"))
    wait_until(lambda: (scripts.cwd / "left" / "metrics.jsonl").exists() and rows_of("left", "TRAINER"), process)
    server.stop(signal.SIGKILL)
    out, err = finish(process)
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert sorted(line.split()[1] for line in warnings) == ["MLflow", "OTLP"]
    assert all(line.endswith("; metrics continue in left/metrics.jsonl") for line in warnings)
    assert [row["update"] for row in rows_of("left", "TRAINER")] == list(range(20, 3001, 20))
    assert "done 96,000 steps" in out
