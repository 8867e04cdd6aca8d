"""Locks that are asked for and never taken, heartbeats, and stops that stick."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

from stoix_like.errors import RunError
from stoix_like.selfplay.events.clock import Clock
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.loops.stop import LoopStop, StopWatcher
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.presence import MASTER, Heartbeat, PresenceLock, is_unified_loop_running

ASKS = """
import sys
from pathlib import Path
from stoix_like.selfplay.watch.presence import is_unified_loop_running
print([is_unified_loop_running(Path(sys.argv[1])) for _ in range(100)].count(True), "jax" in sys.modules)
"""


def test_asking_takes_nothing_and_sees_what_another_process_holds(tmp_path):
    assert not is_unified_loop_running(tmp_path)
    assert list(tmp_path.iterdir()) == []
    asked = [sys.executable, "-c", ASKS, str(tmp_path)]
    with presence.present(tmp_path, MASTER):
        assert is_unified_loop_running(tmp_path)
        assert subprocess.run(asked, check=True, capture_output=True, text=True).stdout == "100 False\n"
        with pytest.raises(RunError, match="another master loop is running"):
            PresenceLock(tmp_path, MASTER)
        assert is_unified_loop_running(tmp_path)  # the refused one has taken nothing away
    assert not is_unified_loop_running(tmp_path)
    with presence.present(tmp_path, MASTER):  # whoever asks does not hinder whoever takes
        assert is_unified_loop_running(str(tmp_path))
    assert not presence.is_present(tmp_path, "continuous")


@pytest.fixture
def database(tmp_path):
    with contextlib.closing(Database(tmp_path)) as database:
        yield database


def test_a_folder_that_cannot_be_made_or_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "runs"):
        with pytest.raises(RunError, match="cannot write") as caught:
            PresenceLock(folder, MASTER)
        assert caught.value.hint == "use another --save-dir"
        assert not is_unified_loop_running(folder)


def test_a_heartbeat_says_what_the_loop_is_doing(database):
    state = {"current_state": "idle"}
    with Heartbeat(database, MASTER, lambda: state):
        ((name, pid, text),) = database.rows("SELECT name, pid, status FROM heartbeats")
        assert (name, pid, json.loads(text)) == (MASTER, os.getpid(), state)
        state["current_state"] = "stopped"
    ((text,),) = database.rows("SELECT status FROM heartbeats")
    assert json.loads(text) == {"current_state": "stopped"}


def test_a_stop_sticks_until_it_is_cleared(database, tmp_path):
    assert not presence.is_stopped(database, MASTER)
    presence.request_stop(database, MASTER)
    with contextlib.closing(Database(tmp_path)) as another:
        assert presence.is_stopped(another, MASTER)
        assert not presence.is_stopped(another, "continuous")
        assert presence.clear_stop(another, MASTER)
    assert not presence.is_stopped(database, MASTER)
    assert not presence.clear_stop(database, MASTER)


def test_a_loop_is_an_orphan_if_its_parent_is_not_the_supervisor_that_started_it(monkeypatch):
    """A service manager says 1, and is no parent that could go."""
    monkeypatch.delenv(presence.SUPERVISED, raising=False)
    assert not presence.is_orphan()
    expected = {"1": False, "yes": False, str(os.getppid()): False, str(os.getpid()): True}
    for supervisor, is_orphan in expected.items():
        monkeypatch.setenv(presence.SUPERVISED, supervisor)
        assert presence.is_orphan() == is_orphan


def test_a_stop_and_a_time_out_end_a_stage_and_only_the_time_out_is_gone_on_from():
    stop = LoopStop()
    stop.set_deadline(-1e9)  # long ago
    stop.look(is_stopped=False)
    assert stop.is_set
    assert stop.go_on()
    assert not stop.is_set
    assert not stop.has_deadline
    stop.look(is_stopped=True)
    assert stop.is_set
    assert not stop.go_on()
    assert stop.is_set


def test_the_watcher_sees_a_stop():
    stop, asked = LoopStop(), []
    with StopWatcher(stop, lambda: bool(asked.append(1)) or True):
        stop.wait(60.0, Clock())
    assert stop.is_set
    assert asked == [1]


def test_waiting_ends_when_the_time_is_over_or_the_loop_stops():
    stop, at = LoopStop(), [0.0]

    def sleep(seconds):
        at[0] += seconds
        if at[0] > 100.0:
            stop.is_set = True

    clock = Clock(lambda: -1e9, lambda: at[0], sleep)  # the wall clock has jumped back
    stop.wait(10.0, clock)
    assert at[0] == pytest.approx(10.0)
    stop.wait(1000.0, clock)
    assert at[0] == pytest.approx(100.0, abs=1.0)
