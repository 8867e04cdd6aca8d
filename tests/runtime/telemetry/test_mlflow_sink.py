"""MLflow's own client on a SQLite store, read back by it. A server is tested in tests/integration."""

import fcntl
import json
import os
import socket

import pytest
from support import telemetry

from stoix_like.errors import ConfigError, MissingExtraError
from stoix_like.runtime.console import installation
from stoix_like.runtime.console.installation import require_extra
from stoix_like.runtime.telemetry import Clock, QueuedSink, event, open_telemetry
from stoix_like.runtime.telemetry.mlflow_sink import MlflowSink, without_secrets
from stoix_like.runtime.telemetry.scalars import flat_config
from stoix_like.runtime.telemetry.selected_sinks import default_tracking_uri

#: Of MLflow's own use of SQLAlchemy 2.1; a command of ours does not show it.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
META = telemetry.run_meta(num_updates=3, kwargs={"a": 1})


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'a b.db'}"


@pytest.fixture(scope="module")
def client(uri):
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def _told(uri, folder, updates, meta=META, run_id=None):
    telemetry.send(MlflowSink(uri, run_id), folder, updates, meta)
    return json.loads((folder / "mlflow.json").read_text())["run_id"]


def test_a_run_is_one_with_metrics_parameters_and_tags_and_a_trial_is_known_by_its_sweep(uri, client, tmp_path):
    run = client.get_run(_told(uri, tmp_path / "first", [1, 2, 3]))
    history = client.get_metric_history(run.info.run_id, "trainer/loss")
    assert [(metric.step, metric.value) for metric in history] == [(1024, 0.25), (2048, 0.5), (3072, 0.75)]
    assert set(run.data.metrics) == {"trainer/loss"}
    assert run.data.params == flat_config(META.config)
    assert (run.data.params["num_envs"], run.data.params["kwargs"]) == ("64", '{"a": 1}')
    assert {"algorithm": "PPO", "version_jax": "0.10.2", "trainer/event": "saved 3"}.items() <= run.data.tags.items()
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert client.get_experiment(run.info.experiment_id).name == "stoix_like"
    noted = json.loads((tmp_path / "first" / "mlflow.json").read_text())
    assert noted == {"tracking_uri": uri, "experiment_id": run.info.experiment_id, "run_id": run.info.run_id}
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini" / "study.db").touch()
    run = client.get_run(_told(uri, tmp_path / "mini" / "trial-0000", [1, 2, 3]))
    assert run.info.run_name == "mini/trial-0000"


def test_a_resumed_run_goes_on_in_its_own_and_a_fresh_one_in_its_folder_gets_a_new_one(uri, client, tmp_path):
    first = _told(uri, tmp_path / "run", [1])
    assert client.get_run(first).info.status == "KILLED"  # before its last update
    again = _told(uri, tmp_path / "run", [2, 3], META._replace(resumed_update=1))
    assert again == first
    assert [m.step for m in client.get_metric_history(first, "trainer/loss")] == [1024, 2048, 3072]
    assert client.get_run(first).info.status == "FINISHED"
    assert _told(uri, tmp_path / "run", [1]) != first


def _written(uri, client, folder, *reports):
    """What MLflow has of a run with these reports, each of a moment of its own."""
    sink = MlflowSink(uri)
    sink.open(folder, META)
    for each in reports:
        sink.write([each])
    sink.close()
    return client.get_run(sink.find_run_id())


def test_a_run_that_an_error_ended_is_failed(uri, client, tmp_path):
    run = _written(uri, client, tmp_path, event(Clock(1, 1024, 0.1), "failed", message="the disk is full"))
    assert (run.info.status, run.data.tags["misc/message"]) == ("FAILED", "the disk is full")


def test_an_existing_run_is_gone_on_with_and_an_unknown_or_deleted_one_refused(uri, client, tmp_path):
    run_id = client.create_run("0", run_name="mine").info.run_id
    assert _told(uri, tmp_path / "run", [1, 2, 3], run_id=run_id) == run_id
    assert client.get_run(run_id).data.metrics == {"trainer/loss": 0.75}
    with pytest.raises(ConfigError, match="there is no run 'nowhere' at sqlite:") as caught:
        _told(uri, tmp_path / "other", [], run_id="nowhere")
    assert "leave it null" in caught.value.hint
    assert not (tmp_path / "other" / "mlflow.json").exists()
    # MLflow's deletion keeps the run, marked, and refuses to write to it.
    first = _told(uri, tmp_path / "deleted", [1])
    client.delete_run(first)
    again = _told(uri, tmp_path / "deleted", [2, 3], META._replace(resumed_update=1))
    assert again != first
    assert [m.step for m in client.get_metric_history(again, "trainer/loss")] == [2048, 3072]
    with pytest.raises(ConfigError, match=f"somebody has deleted the run '{first}'"):
        _told(uri, tmp_path / "another", [], run_id=first)


def test_more_metrics_than_a_request_takes_are_several(uri, client, tmp_path):
    report = telemetry.report(1, **{f"m{index}": index for index in range(2300)})
    data = _written(uri, client, tmp_path, report).data
    assert len(data.metrics) == 2300
    assert data.metrics["trainer/m2299"] == 2299.0


def test_names_that_mlflow_refuses_are_logged_under_others_and_said_once(uri, client, tmp_path, capsys):
    odd = {"win%": 1.0, "win_": 2.0, "win?": 3.0, "a//b": 4.0, "é ": 5.0, "x" * 300: 6.0, "fine": 7.0}
    reports = [telemetry.report(update, **odd, **{"text%": f"t{update}"}) for update in (1, 2)]
    data = _written(uri, client, tmp_path, *reports).data
    names = ["win_", "win__2", "win__3", "a__b", "é ", "x" * 242, "fine"]
    assert {f"trainer/{name}" if name != "a__b" else "trainer_a__b" for name in names} == data.metrics.keys()
    assert data.tags["trainer/text_"] == "t2"
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "warning: MLflow takes no metric or tag named 'trainer/win%': it is logged as 'trainer/win_'"
    assert len(said) == 6


def test_a_store_is_opened_under_a_lock(tmp_path, monkeypatch):
    """Two processes that make or migrate the tables of one store at once break it: "duplicate column name"."""
    file, held = tmp_path / "mlflow.db", []

    def is_held():
        with (tmp_path / ".mlflow.db.lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def open_store(self, run_dir, meta):
        held.append(is_held())
        return "run"

    monkeypatch.setattr(MlflowSink, "_open", open_store)
    MlflowSink(f"sqlite:///{file}").open(tmp_path, META)
    assert (held, is_held()) == ([True], False)


def test_experiment_and_store_may_come_from_the_environment_without_passwords(uri, client, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mazes")
    run = client.get_run(_told(uri, tmp_path / "run", [1]))
    assert client.get_experiment(run.info.experiment_id).name == "mazes"
    assert default_tracking_uri("runs", {"MLFLOW_TRACKING_URI": "http://lab"}) == "http://lab"
    assert default_tracking_uri(str(tmp_path), {}) == f"sqlite:///{tmp_path}/mlflow.db"
    assert without_secrets("https://me:secret@lab.org:5000/x") == "https://lab.org:5000/x"
    assert without_secrets("sqlite:////a/b.db") == "sqlite:////a/b.db"


def test_what_is_not_installed_names_its_extra(monkeypatch):
    require_extra("this", "dev", "json", "pytest")
    with pytest.raises(MissingExtraError):  # what stands in something that is not there either
        require_extra("this", "dev", "no_such_module.part")
    with pytest.raises(MissingExtraError, match="this needs the 'dev' extra") as caught:
        require_extra("this", "dev", "json", "no_such_module")
    assert caught.value.exit_code == 5
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda name: None if name == "alembic" else name)
    MlflowSink("http://server")  # a server needs no store here
    with pytest.raises(MissingExtraError, match="MLflow needs the 'mlflow' extra"):
        MlflowSink("sqlite:///x.db")


def test_a_server_that_is_not_there_is_asked_once_for_three_seconds_and_told(tmp_path, capsys):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"  # nobody listens there any more
    for name in ("first", "second"):  # the second run of a process is no more patient
        (tmp_path / name).mkdir()
        sink = QueuedSink(MlflowSink(url), "MLflow")
        assert (os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"], os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]) == ("0", "3")
        hub = open_telemetry(tmp_path / name, META, async_sinks=[sink])
        telemetry.join("MLflow")
        hub.write([telemetry.report(1, loss=1.0)])
        hub.close()
        warning = capsys.readouterr().err
        assert warning.startswith("warning: MLflow dropped (MlflowException: ")
        assert warning.count("\n") == 1
        assert not [variable for variable in os.environ if variable.startswith("MLFLOW_HTTP_REQUEST")]


def test_patience_that_the_user_has_set_is_left_alone(uri, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    sink = MlflowSink(uri)
    sink.open(tmp_path, META)
    assert (os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"], os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]) == ("77", "5")
    sink.close()
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
