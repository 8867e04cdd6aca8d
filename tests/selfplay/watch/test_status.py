"""What is shown of loops: of one that runs, hangs, was killed, or never was; and of folders that are damaged."""

import contextlib
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoix_like.runtime.console.reporter import SILENT
from stoix_like.selfplay.events.breaker import BreakerRule, Breakers
from stoix_like.selfplay.events.clock import moment
from stoix_like.selfplay.events.database import MIGRATIONS, Database
from stoix_like.selfplay.events.kinds import CurriculumRebalanced, PlateauDetected
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.tuned_leaves import TuningResult, write_result
from stoix_like.selfplay.iterations.begin import begin_iteration
from stoix_like.selfplay.iterations.due import Step
from stoix_like.selfplay.iterations.steps import run_step
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.lines import LatestProgress
from stoix_like.selfplay.watch.presence import CONTINUOUS, MASTER, Heartbeat
from stoix_like.selfplay.watch.status import LATE_SECONDS, exit_code, read_status
from stoix_like.selfplay.watch.status_text import status_lines

PROGRESS = "tic_tac_toe_2p: train: 3 of 5"


@pytest.fixture
def database(tmp_path):
    with contextlib.closing(Database(tmp_path)) as database:
        yield database


def beat(database, name, **status):
    with Heartbeat(database, name, lambda: status):
        pass


def in_seconds(seconds, **changed):
    """So much later, by both clocks."""
    now = moment()
    return now._replace(wall=now.wall + seconds, monotonic=now.monotonic + seconds)._replace(**changed)


def test_a_folder_without_loops(tmp_path):
    found = read_status(tmp_path / "nothing")
    assert (found["loops"], found["games"], found["events"], exit_code(found)) == ([], [], [], 1)
    assert status_lines(found) == [f"{tmp_path / 'nothing'}: no loop is running", "there is no such folder"]
    assert list(tmp_path.iterdir()) == []
    assert status_lines(read_status(tmp_path))[1:] == ["no loop was started here"]
    with presence.present(tmp_path, MASTER):  # it has just been started
        found = read_status(tmp_path)
        assert [(loop["name"], loop["state"]) for loop in found["loops"]] == [(MASTER, "starting")]
        assert exit_code(found) == 0


def test_a_loop_is_healthy_while_it_runs_and_its_heart_beats(database, tmp_path):
    with presence.present(tmp_path, MASTER):
        beat(database, MASTER, current_state="train", current_config="tic_tac_toe_2p", progress=PROGRESS)
        found = read_status(tmp_path)
        (loop,) = found["loops"]
        assert (loop["running"], loop["healthy"], loop["state"], exit_code(found)) == (True, True, "train", 0)
        assert f"  {PROGRESS}" in status_lines(found)
        beat(database, MASTER, current_state="train", current_config="othello_2p", progress=PROGRESS)
        assert "  othello_2p" in status_lines(read_status(tmp_path))  # whose progress is not known
        late = read_status(tmp_path, in_seconds(LATE_SECONDS + 1.0))
        assert (late["loops"][0]["healthy"], exit_code(late)) == (False, 1)
        assert status_lines(late)[0].endswith(": unhealthy")
    found = read_status(tmp_path)
    assert (found["loops"][0]["state"], exit_code(found)) == ("killed", 1)
    beat(database, MASTER, current_state="stopped")
    assert read_status(tmp_path)["loops"][0]["state"] == "stopped"


@pytest.mark.parametrize(
    ("jump", "boot", "later", "healthy"),
    [
        (-1e6, None, 5.0, True),  # the clock was set back, or forward: the loop works
        (1e6, None, 5.0, True),
        (-1e6, None, LATE_SECONDS + 1.0, False),  # and hangs
        (1e6, None, LATE_SECONDS + 1.0, False),
        (0.0, "another", 5.0, True),  # a loop of another host, by the wall clock
        (0.0, "another", LATE_SECONDS + 1.0, False),
        (0.0, "", LATE_SECONDS + 1.0, False),  # a system that does not say which boot it is
    ],
)
def test_a_clock_that_is_set_changes_no_health(database, tmp_path, monkeypatch, jump, boot, later, healthy):
    now = [moment()]
    monkeypatch.setattr(presence, "moment", lambda: now[0])
    with presence.present(tmp_path, MASTER):
        now[0] = now[0]._replace(wall=now[0].wall + jump, monotonic=now[0].monotonic + 1.0)
        beat(database, MASTER, current_state="train")
        wall, monotonic = now[0].wall + later, now[0].monotonic + later
        if boot is not None:
            monotonic = 0.0
        read = now[0]._replace(wall=wall, monotonic=monotonic, boot=now[0].boot if boot is None else boot)
        found = read_status(tmp_path, read)
        (loop,) = found["loops"]
        assert (loop["state"], loop["healthy"]) == ("train", healthy)
        assert loop["heartbeat_age"] == pytest.approx(later)


def test_heartbeats_of_an_earlier_version_are_read(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "events.sqlite")) as connection:
        for statement in itertools.chain(*MIGRATIONS[:2]):
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 2")
        row = CONTINUOUS, 1, "h", 5.0, time.time() - 30.0, '{"current_state": "idle"}'
        connection.execute("INSERT INTO heartbeats VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    (loop,) = read_status(tmp_path)["loops"]
    assert (loop["state"], loop["heartbeat_age"]) == ("killed", pytest.approx(30.0, abs=5.0))
    with contextlib.closing(Database(tmp_path)):
        assert read_status(tmp_path)["loops"][0]["began"] == 5.0


def test_a_lock_that_cannot_be_read_is_said(database, tmp_path, monkeypatch):
    beat(database, MASTER, current_state="train")
    monkeypatch.setattr(presence, "holder", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    found = read_status(tmp_path)
    assert found["error"].endswith("master.lock cannot be read: Input/output error")
    assert exit_code(found) == 1


def test_the_store_and_its_new_positions_are_those_of_now(copied):
    def shown():
        (game,) = read_status(copied.layout.root.parent)["games"]
        return game["iteration"], game["store_games"], game["new_positions"]

    assert shown() == (2, 20, 0)  # the candidate of iteration 2 has learned from all of them
    number = begin_iteration(copied)
    assert shown() == (3, 20, 0)
    played = run_step(copied, number, Step("selfplay"))
    assert shown() == (3, 20, 0)
    run_step(copied, number, Step("sync"))
    assert shown() == (3, 30, played.facts["positions"])


def test_a_loop_whose_games_all_wait_for_breakers_is_unhealthy(database, tmp_path):
    breakers = Breakers(database, BreakerRule(1, 300.0))
    (tmp_path / "tic_tac_toe_2p" / "iterations" / "0001").mkdir(parents=True)
    breakers.fail("tic_tac_toe_2p", "train", 1000.0, "no memory")
    with presence.present(tmp_path, CONTINUOUS):
        beat(database, CONTINUOUS, current_state="error")
        found = read_status(tmp_path, moment()._replace(wall=1100.0))
        assert exit_code(found) == 1
        (game,) = found["games"]
        (breaker,) = game["breakers"]
        assert (breaker["stage"], breaker["state"], breaker["retry_at"]) == ("train", "open", 1300.0)
        until = time.strftime("%H:%M:%S", time.localtime(1300.0))
        told = f"1 failure of train in a row, breaker open until {until}: no memory"
        assert any(told in line for line in status_lines(found))
        assert read_status(tmp_path, moment()._replace(wall=1400.0))["games"][0]["breakers"][0]["state"] == "half_open"
        assert breakers.acquire("tic_tac_toe_2p", "train", 1400.0)  # asking takes nothing


def test_loops_keep_their_order(database, tmp_path):
    for name in (CONTINUOUS, MASTER, CONTINUOUS, "supervisor-master", MASTER):
        beat(database, name, current_state="idle")
        names = [loop["name"] for loop in read_status(tmp_path)["loops"]]
        assert names == sorted(names)


def test_plateaus_counts_and_events_are_told_in_words(database, tmp_path):
    counts = {"total_iterations": 1, "successful_iterations": 1, "failed_iterations": 0, "last_error": None}
    beat(database, MASTER, current_state="idle", on_plateau=["othello_2p"], **counts)
    of_all = CurriculumRebalanced(game="", iteration=0, run="", time=0.0, weights={"othello_2p": 0.5})
    of_one = PlateauDetected(game="othello_2p", iteration=40, run="ab", time=1.0, gain=3.0, iterations=20)
    EventLog(database).append([of_all, of_one])
    found = read_status(tmp_path)
    lines = status_lines(found)
    assert "  othello_2p is on a plateau: its champions no longer gain" in lines
    assert "  1 iteration finished, 0 failed since it was started" in lines
    assert [line.split(" ", 2)[2] for line in lines[-2:]] == [
        "CURRICULUM_REBALANCED",
        "PLATEAU_DETECTED othello_2p iteration 40",
    ]
    assert [(event["game"], event["iteration"]) for event in found["events"]] == [("", 0), ("othello_2p", 40)]


def test_leaves_that_were_tuned_are_shown_with_the_iteration(tmp_path):
    layout = Layout(tmp_path / "othello_2p")
    layout.iteration(21).mkdir(parents=True)
    for iteration in (10, 20):
        layout.plateau(iteration).mkdir(parents=True)
    write_result(layout, 20, TuningResult({}, {}, None, 1.0))
    (game,) = read_status(tmp_path)["games"]
    assert game["tuned"] is None
    write_result(layout, 10, TuningResult({"actor_lr": 0.00071234, "tau": 1}, {"actor_lr": 0.001, "tau": 2}, None, 0.0))
    found = read_status(tmp_path)
    assert found["games"][0]["tuned"] == {"iteration": 10, "leaves": {"actor_lr": 0.00071234, "tau": 1}}
    assert "othello_2p: actor_lr 0.0007123, tau 1, tuned after iteration 10" in status_lines(found)


def test_a_loop_that_is_started_again_is_not_taken_for_the_one_before(database, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:  # of another boot, with the same process id
        before = moment()._replace(boot="before", wall=time.time() - 60.0, monotonic=1e9)
        patch.setattr(presence, "moment", lambda: before)
        beat(database, MASTER, current_state="train")
    with presence.present(tmp_path, MASTER):
        assert read_status(tmp_path)["loops"][0]["state"] == "starting"
    beat(database, MASTER, current_state="stopped")
    with presence.present(tmp_path, MASTER):
        found = read_status(tmp_path)
        (loop,) = found["loops"]
        assert (loop["running"], loop["state"], loop["pid"], exit_code(found)) == (True, "starting", os.getpid(), 0)
        assert status_lines(found)[1].startswith(f"master loop: starting, process {os.getpid()} on ")
        late = read_status(tmp_path, in_seconds(LATE_SECONDS + 1.0))  # it hangs, or writes into another database
        assert (late["loops"][0]["state"], exit_code(late)) == ("silent", 1)
        beat(database, MASTER, current_state="idle")
        assert read_status(tmp_path)["loops"][0]["state"] == "idle"


def test_games_are_shown_also_beside_a_database_that_is_damaged(tmp_path):
    Layout(tmp_path / "othello_2p").iteration(1).mkdir(parents=True)
    (tmp_path / "events.sqlite").write_bytes(b"no database" * 100)
    with presence.present(tmp_path, MASTER):
        found = read_status(tmp_path)
        assert "events.sqlite cannot be read" in found["error"]
        assert ([game["game"] for game in found["games"]], exit_code(found)) == (["othello_2p"], 1)
        assert status_lines(found)[1] == found["error"]


def test_a_line_of_progress_ends_with_its_stage():
    shown = []
    progress = LatestProgress(SILENT._replace(progress=shown.append))
    for line in ("othello_2p: train: 3 of 5", "", "othello_2p: evaluate: 1 of 2"):
        progress.reporter.progress(line)
        assert progress.line == line
    assert shown == ["othello_2p: train: 3 of 5", "othello_2p: evaluate: 1 of 2"]


def test_what_cannot_be_read_is_said_of_its_game_alone(tmp_path, monkeypatch):
    def errors():
        return {game["game"]: game["error"] for game in read_status(tmp_path)["games"]}

    for name in ("lost+found", "tic_tac_toe_2p", "othello_2p"):
        Layout(tmp_path / name).stage(1, "selfplay").mkdir(parents=True)
    manifest = Layout(tmp_path / "tic_tac_toe_2p").stage(1, "selfplay") / "manifest.json"
    manifest.write_text("{")
    assert "it is torn, or not ours" in errors()["tic_tac_toe_2p"]
    assert errors()["othello_2p"] is None
    assert any("cannot be read" in line for line in status_lines(read_status(tmp_path)))
    manifest.unlink()
    is_dir = Path.is_dir

    def denied(path):
        if path.parent.name in ("lost+found", "tic_tac_toe_2p"):
            raise PermissionError(13, "Permission denied", str(path))
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", denied)
    assert "Permission denied" in errors()["tic_tac_toe_2p"]
    assert errors()["othello_2p"] is None
    assert "lost+found" not in errors()


READS = """
import json, sys
from pathlib import Path
from stoix_like.commands.selfplay import launch_daemons, master_loop
from stoix_like.selfplay.watch import status
json.dumps(status.read_status(Path(sys.argv[1])), allow_nan=False)
print([name for name in ("jax", "jaxlib", "flax") if name in sys.modules])
"""


def test_reading_imports_no_jax_takes_no_lock_and_is_plain_json(database, tmp_path):
    beat(database, MASTER, current_state="idle")
    with presence.present(tmp_path, MASTER):
        done = subprocess.run([sys.executable, "-c", READS, str(tmp_path)], check=True, capture_output=True, text=True)
        assert json.loads(done.stdout.replace("'", '"')) == []
        assert presence.is_present(tmp_path, MASTER)


def test_a_supervisor_is_no_loop_and_a_stage_that_hangs_is_unhealthy(database, tmp_path):
    beat(database, "supervisor-master", current_state="pausing")
    with presence.present(tmp_path, "supervisor-master"):
        found = read_status(tmp_path)
        assert exit_code(found) == 1
        assert status_lines(found)[0].endswith(": no loop is running, and its supervisor starts one again")
    with presence.present(tmp_path, MASTER):
        beat(database, MASTER, current_state="train", is_late=True)
        assert exit_code(read_status(tmp_path)) == 1
