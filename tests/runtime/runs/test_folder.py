"""Names of runs, finding them and their checkpoints, their configuration, the one writer, and files that are whole."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.asserts import refused

from stoix_like.config.dicts import config_to_dict
from stoix_like.config.sections.runs import ppo_config
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.results.series import read_started_run
from stoix_like.runtime.runs import folder as run_folder
from stoix_like.runtime.runs.find import find_checkpoint, find_run, find_runs, find_saved, read_config
from stoix_like.runtime.storage import lock, signed_json
from stoix_like.runtime.storage.lock import RunLock

HOLDER = """
import sys, time
from pathlib import Path
from stoix_like.runtime.runs.folder import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


pytestmark = pytest.mark.usefixtures("inside")
NAMES = "use letters, digits and . _ = + -, begin with a letter or digit, and not the word latest"


def _make_run(path, **options):
    new = run_folder.create_run(Path(path), "# a configuration\n", {"devices": "cpu"}, **options)
    new.lock.close()
    return new.path


def test_new_name_says_what_when_and_which_seed_and_in_the_same_second_a_number(monkeypatch):
    path = run_folder.new_path("runs", "ppo", ppo_config(task_id="probe/delayed_reward", seed=7))
    assert re.fullmatch(r"runs/ppo-probe_delayed_reward-\d{8}-\d{6}-s7", str(path))
    assert run_folder.run_path("runs", path.name) == path  # a valid name
    monkeypatch.setattr(run_folder.time, "strftime", lambda _: "20260101-120000")
    config = ppo_config(task_id="Maze-v0", seed=3)
    chosen = [run_folder.new_path("runs", "ppo", config) for _ in range(3)]  # all three before a folder is made
    paths = [_make_run(path, numbered=True) for path in chosen]
    begin = "ppo-Maze-v0-20260101-120000-s3"
    assert [path.name for path in paths] == [begin, f"{begin}-2", f"{begin}-3"]
    assert all((path / "config.yaml").is_file() for path in paths)
    assert os.readlink("runs/latest") == f"{begin}-3"


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".hidden", "-flag", "a b", "/tmp/x", "..", "a\n", "latest"])
def test_a_name_cannot_leave_the_folder(name):
    with refused(ConfigError, f"checkpointing.run_name: {name!r} cannot name a run", NAMES):
        run_folder.run_path("runs", name)
    assert not list(Path().iterdir())


def test_a_taken_name_can_be_resumed_if_it_has_a_checkpoint():
    path, other = _make_run("runs/a"), "choose another --run-name"
    begun = f"{other}; it is a run without a checkpoint: nothing of it can be continued"
    for folder, hint in (("0.orbax-checkpoint-tmp", begun), ("0", f"{other}, or continue it: --resume runs/a")):
        (path / "checkpoints" / folder).mkdir(parents=True)
        with refused(ConfigError, "checkpointing.run_name: runs/a exists already", hint):
            run_folder.run_path("runs", "a")
    for file in ("study.db", "champion.json", "notes.txt"):  # a sweep, a pipeline, whatever a user keeps
        kept = Path(f"runs/{Path(file).stem}")
        kept.mkdir()
        (kept / file).touch()
        with refused(ConfigError, f"checkpointing.run_name: {kept} exists already", other):
            run_folder.run_path("runs", kept.name)


def test_create_writes_configuration_and_versions_and_latest_follows_if_it_is_no_folder():
    path = _make_run("runs/a")
    assert (path / "config.yaml").read_text() == "# a configuration\n"
    facts = json.loads((path / "versions.json").read_text())
    assert facts["devices"] == "cpu"
    assert re.fullmatch(r"3\.\d+\.\d+.*", facts["python"])
    assert {"stoix_like", "jax", "jaxlib", "orbax-checkpoint"} <= facts.keys()
    assert not list(path.glob("*.tmp"))
    assert os.readlink("runs/latest") == "a"
    _make_run("runs/b")
    assert os.readlink("runs/latest") == "b"
    assert find_run("latest") == Path("runs/b")
    assert sorted(p.name for p in Path("runs").iterdir()) == ["a", "b", "latest"]
    Path("others/latest").mkdir(parents=True)
    assert (_make_run("others/a") / "config.yaml").is_file()
    assert sorted(p.name for p in Path("others").iterdir()) == ["a", "latest"]


def test_a_file_a_folder_or_a_link_in_the_way_is_a_plain_error():
    path = _make_run("others/a")
    with refused(RunError, "cannot make others/a: something of that name exists"):
        run_folder.create_run(path, "other", {})
    assert (path / "config.yaml").read_text() == "# a configuration\n"
    Path("links").symlink_to("gone")
    with pytest.raises(RunError, match="cannot make links/a"):
        _make_run("links/a", numbered=True)  # a number is no way around it
    Path("runs").write_text("not a folder")
    with refused(RunError, "cannot make runs/a: Not a directory", "choose another folder with --save-dir"):
        run_folder.create_run(Path("runs/a"), "", {})
    assert Path("runs").read_text() == "not a folder"


def test_a_run_is_found_by_path_and_by_name_and_a_folder_that_is_none_is_refused():
    with refused(CheckpointError, "no run at runs/a", "train one first: python scripts/train_ppo.py"):
        find_run("runs/a")
    _make_run("runs/a")
    _make_run("runs/b")
    Path("runs/junk").mkdir()
    with refused(CheckpointError, "no run at runs/junk", "existing runs: runs/b, runs/a"):
        find_run("runs/junk")
    path = Path("runs/a")
    for text in ("runs/a", "a", str(path.absolute()), "runs/a/"):
        assert find_run(text).resolve() == path.resolve()
    other = _make_run("elsewhere/a")
    assert find_run("elsewhere/a") == other
    assert find_run("a", save_dir="elsewhere") == other


def test_only_one_writer_and_a_killed_one_leaves_no_lock_behind():
    path = _make_run("runs/a")
    first = RunLock(path)
    hint = "wait for it to end, or start a run under another --run-name"
    with refused(RunError, "another process is writing runs/a", hint):
        RunLock(path)
    first.close()
    RunLock(path).close()
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process is writing"):
            RunLock(path)
        holder.kill()
        holder.wait(timeout=10)
    RunLock(path).close()


@pytest.mark.parametrize("before", [None, "a"])
def test_a_discarded_run_leaves_everything_as_it_was(before):
    if before:
        _make_run(f"new/runs/{before}")
    new = run_folder.create_run(Path("new/runs/b"), "", {})
    (new.path / "checkpoints" / "0").mkdir(parents=True)
    assert os.readlink("new/runs/latest") == "b"
    new.discard()
    if before is None:
        assert list(Path().iterdir()) == []
    else:
        assert sorted(path.name for path in Path("new/runs").iterdir()) == ["a", "latest"]
        assert os.readlink("new/runs/latest") == "a"
        new = run_folder.create_run(Path("new/runs/b"), "", {})
        _make_run("new/runs/c")
        new.discard()
        assert os.readlink("new/runs/latest") == "c"  # that of another run is left alone


def test_a_file_system_without_locks_is_a_plain_error_and_leaves_nothing(monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", no_locks)
    with refused(RunError, f"cannot lock runs/a: {os.strerror(errno.ENOLCK)}"):
        run_folder.create_run(Path("runs/a"), "", {})
    assert not Path("runs/a").exists()


def _run(folder, name):
    (folder / name / "checkpoints" / "3").mkdir(parents=True)
    (folder / name / "config.yaml").write_text("{}")
    (folder / name / "checkpoints" / "3" / "meta.json").write_text("{}")
    return folder / name


def test_what_lies_beside_runs_is_left_out_and_one_without_configuration_is_not_called_missing(tmp_path, capsys):
    """`report.py runs/*` after a run with --mlflow and a sweep."""
    runs = [_run(tmp_path, "a"), _run(tmp_path, "b")]
    (tmp_path / "mlflow.db").touch()
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "study.db").touch()
    (tmp_path / "latest").symlink_to("b")
    everything = [str(path) for path in sorted(tmp_path.iterdir())]
    assert find_runs(everything) == runs
    assert capsys.readouterr().err.splitlines() == [
        f"note: {tmp_path / name} is skipped: it is not a run" for name in ("mlflow.db", "search")
    ]
    with pytest.raises(CheckpointError, match=r"no run at .*/c"):  # a name that is not there is a mistake
        find_runs([*everything, str(tmp_path / "c")])
    with pytest.raises(CheckpointError, match="no run at"):
        find_runs([str(tmp_path / "mlflow.db")] * 2)
    with pytest.raises(CheckpointError, match="is a sweep, not a run") as caught:
        find_runs([str(tmp_path / "search")])
    assert "trial-0000" in caught.value.hint
    run = runs[0]
    (run / "config.yaml").unlink()
    with pytest.raises(CheckpointError, match=r"has no config\.yaml") as caught:
        find_run(str(run))
    assert f"'config' in {run / 'checkpoints' / '3' / 'meta.json'}" in caught.value.hint


def test_a_pipeline_of_spa_is_no_run_and_its_runs_are_named(tmp_path):
    runs = [tmp_path / "lake" / stage / "run" for stage in ("ppo", "sft")]
    for folder in (tmp_path / "lake", *runs):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").touch()
    for find in (find_run, find_saved):
        with pytest.raises(CheckpointError, match="lake is a pipeline of SPA, not a run") as caught:
            find(str(tmp_path / "lake"))
        assert caught.value.hint == f"its runs are {runs[0]}, {runs[1]}"
    assert find_run(str(runs[0])) == runs[0]


def test_folders_of_self_play_are_no_runs(tmp_path):
    pipeline = tmp_path / "othello_2p"
    first = pipeline / "iterations" / "0001"
    first.mkdir(parents=True)
    (pipeline / "champion.json").write_text("{}")

    def check(find, path, what, hint):
        with pytest.raises(CheckpointError) as caught:
            find(str(path))
        assert caught.value.what == f"{path} {what}"
        assert hint in caught.value.hint

    check(find_run, pipeline, "is a self-play pipeline, not a run", f"--lineage {pipeline}")
    (pipeline / "train").mkdir()
    (pipeline / "train" / "config.yaml").touch()
    check(find_run, pipeline, "is a self-play pipeline, not a run", f"its run is {pipeline}/train; ")
    check(find_run, tmp_path, "is a folder of self-play pipelines, not a run", f"their runs are {pipeline}/train; ")
    untrained = "has no parameters: it is not trained yet, or they were removed"
    check(find_saved, first, untrained, f"{pipeline} is its champion")
    check(find_saved, first.with_name("1"), "does not exist", f"{pipeline} is its champion")


def test_which_checkpoint_is_meant(tmp_path):
    run, saved = tmp_path / "a", tmp_path / "a" / "checkpoints"
    for folder in (saved / "2" / "state", saved / "10" / "state", saved / "4.orbax-checkpoint-tmp"):
        folder.mkdir(parents=True)
    assert [find_checkpoint(run, name) for name in ("latest", "2", "77")] == [(saved, None), (saved, 2), (saved, 77)]
    with refused(CheckpointError, f"{run} has no best checkpoint: it was not evaluated yet", "use --checkpoint latest"):
        find_checkpoint(run, "best")
    for name in ("newest", "", "-1", "²"):
        with refused(CheckpointError, f"no checkpoint is named '{name}'"):
            find_checkpoint(run, name)
    assert find_checkpoint(run) == find_checkpoint(saved) == (saved, None)
    assert find_checkpoint(saved / "2") == (saved, 2)
    (saved / "best" / "4").mkdir(parents=True)
    assert find_checkpoint(run) == find_checkpoint(run, "best") == (saved / "best", None)
    assert find_checkpoint(saved / "best") == (saved / "best", None)
    with refused(CheckpointError, f"no checkpoint in {tmp_path}", "give a run folder, for example runs/<name>"):
        find_checkpoint(tmp_path)


def _checkpoint_with(run, update, config):
    folder = run / "checkpoints" / str(update)
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(signed_json.signed_text({"config": config_to_dict(config)}))
    return folder / "meta.json"


def test_the_configuration_of_a_run_is_that_of_its_last_checkpoint_and_else_the_file(tmp_path):
    """Killed after --resume has rewritten config.yaml, and before the next checkpoint: rates 0.1, 0.2, then 0.3."""
    assert read_config(tmp_path) == {}
    before, later, rewritten = (
        ppo_config(task_id="Maze-v0", actor_lr=rate, kwargs={"n": 5}) for rate in (0.1, 0.2, 0.3)
    )
    (tmp_path / "config.yaml").write_text(to_yaml(rewritten))
    (tmp_path / "metrics.jsonl").touch()
    assert read_config(tmp_path) == config_to_dict(rewritten)
    _checkpoint_with(tmp_path, 2, before)
    newest = _checkpoint_with(tmp_path, 10, later)
    assert read_config(tmp_path) == config_to_dict(later)
    assert read_started_run(tmp_path).leaves["actor_lr"] == 0.2
    newest.write_text(newest.read_text().replace("0.2", "0.4"))  # a damaged one is passed over
    assert read_config(tmp_path) == config_to_dict(before)


def test_leaves_that_this_version_does_not_know_count_wherever_they_are_stored(tmp_path):
    stored = {"search": {"planner": "mcts"}, "architecture": {"seed": 3}}
    for name in ("file", "checkpoint"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").touch()
    (tmp_path / "file" / "config.yaml").write_text(json.dumps(stored))
    (tmp_path / "checkpoint" / "checkpoints" / "1").mkdir(parents=True)
    (tmp_path / "checkpoint" / "checkpoints" / "1" / "meta.json").write_text(
        signed_json.signed_text({"config": stored})
    )
    for name in ("file", "checkpoint"):
        assert read_started_run(tmp_path / name).leaves == {"planner": "mcts"}


def test_runs_are_found_and_plotted_without_orbax():
    """It takes longer to import than a curve to draw."""
    program = "import sys, stoix_like.runtime.figures.learning_curves; print('orbax' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )
