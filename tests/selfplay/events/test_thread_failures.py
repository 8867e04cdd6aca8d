"""Threads of a loop outlive a database that cannot be used for a while: locked, full, or without a table.

The errors are SQLite's own: another connection holds the lock, the file may not grow, a table is elsewhere.
"""

import contextlib
import json
import sqlite3
import sys
import time

import pytest

from stoix_like.errors import RunError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.selfplay.events import database as database_module
from stoix_like.selfplay.events import kinds, user_commands
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.events.user_commands import CONSUMER, HookThreads
from stoix_like.selfplay.loops import stop as stop_module
from stoix_like.selfplay.loops.stop import LoopStop, StopWatcher
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.presence import MASTER, Heartbeat

#: Appends the part of an event to a file.
WRITES = "import json, sys; open(sys.argv[1], 'a').write(str(json.load(sys.stdin)['part']) + chr(10))"


def wait_until(condition):
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.005)


@pytest.fixture
def database(tmp_path, monkeypatch):
    """One that waits for a lock only shortly; its threads look often."""
    monkeypatch.setattr(database_module, "_BUSY_SECONDS", 0.02)
    monkeypatch.setattr(presence, "HEARTBEAT_SECONDS", 0.01)
    for module in (stop_module, user_commands):
        monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    with contextlib.closing(Database(tmp_path)) as database:
        yield database


@contextlib.contextmanager
def locked(database):
    """Another process is writing."""
    with contextlib.closing(sqlite3.connect(database.path, isolation_level=None)) as another:
        another.execute("BEGIN IMMEDIATE")
        yield "database is locked"
        another.execute("ROLLBACK")


@contextlib.contextmanager
def full(database):
    """The file may not grow any more, as on a full disk."""
    database.rows("PRAGMA max_page_count = 1")  # SQLite takes the present size, which is more
    yield "database or disk is full"
    database.rows("PRAGMA max_page_count = 1000000")


@contextlib.contextmanager
def without(database, table):
    """A table is missing."""
    with contextlib.closing(sqlite3.connect(database.path, timeout=30.0)) as another:
        another.execute(f"ALTER TABLE {table} RENAME TO elsewhere")
        another.commit()
        yield f"no such table: {table}"
        another.execute(f"ALTER TABLE elsewhere RENAME TO {table}")
        another.commit()


@pytest.mark.parametrize("fault", [locked, full, lambda database: without(database, "heartbeats")])
def test_the_heart_goes_on_beating_when_the_database_can_be_used_again(database, fault):
    beats, size = [], [1]

    def status():
        beats.append(time.time())
        return {"beats": len(beats), "text": "x" * size[0]}

    def last_beat():
        ((text,),) = database.rows("SELECT status FROM heartbeats")
        return json.loads(text)["beats"]

    with Heartbeat(database, MASTER, status) as thread:
        with fault(database) as problem:
            size[0] = 100_000  # more than the file has room for
            with pytest.raises(RunError, match=problem):
                thread.beat()
            failed = len(beats)
            wait_until(lambda: len(beats) > failed + 2)
        before = len(beats)
        wait_until(lambda: last_beat() > before)


def test_a_stop_is_seen_when_the_database_can_be_used_again_and_a_time_out_meanwhile(database):
    looks, stop = [], LoopStop()

    def is_stopped():
        looks.append(1)
        return presence.is_stopped(database, MASTER)

    with StopWatcher(stop, is_stopped):
        with without(database, "stops") as problem:
            with pytest.raises(RunError, match=problem):
                is_stopped()
            failed = len(looks)
            wait_until(lambda: len(looks) > failed + 2)
            assert not stop.is_set
            stop.set_deadline(-1e9)  # long ago
            wait_until(lambda: stop.timed_out)
            assert stop.go_on()
        presence.request_stop(database, MASTER)
        wait_until(lambda: stop.is_set)
    assert not stop.timed_out


def event(part):
    base = {"game": "tic_tac_toe_2p", "iteration": 3, "run": "abc", "time": 5.0}
    return kinds.SelfplayComplete(**base, part=part, games=10, positions=50, player="p")


class CountingLog(EventLog):
    """Counts how often a consumer looks."""

    looks = 0

    def position(self, consumer):
        self.looks += 1
        return super().position(consumer)


@pytest.mark.parametrize("fault", [locked, lambda database: without(database, "consumers")])
def test_commands_are_run_when_the_database_can_be_used_again(database, tmp_path, fault):
    path, log = tmp_path / "told", CountingLog(database)
    thread = HookThreads(log, {"SELFPLAY_COMPLETE": f'{sys.executable} -c "{WRITES}" {path}'}, SILENT)
    log.append([event(1)])
    with contextlib.ExitStack() as stack:
        with fault(database) as problem:
            with pytest.raises(RunError, match=problem):
                log.advance(f"{CONSUMER}/SELFPLAY_COMPLETE", 0)
            before = log.looks
            stack.enter_context(thread)
            wait_until(lambda: log.looks > before + 2)
        log.append([event(2)])
        wait_until(lambda: log.position(f"{CONSUMER}/SELFPLAY_COMPLETE") == log.end())
    parts = path.read_text().split()
    assert set(parts[:-1]) == {"1"}  # the first may be told again: its place in the log could not be written
    assert parts[-1] == "2"
