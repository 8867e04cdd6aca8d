"""Commands that are run when something has happened: at least once, in another thread, and never the loop's problem."""

import contextlib
import json
import sys
import time

import pytest

from stoix_like.errors import ConfigError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.selfplay.events import kinds, user_commands
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.events.router import EventRouter, Subscription
from stoix_like.selfplay.events.user_commands import BREAKER_OPEN, CommandQueue, HookThreads, check_hooks
from stoix_like.selfplay.watch.status_text import status_lines

BASE = {"game": "tic_tac_toe_2p", "run": "abc", "time": 5.0, "iteration": 3}
#: Adds a line: what a command reads ends with one.
WRITES = "import os, sys; open(sys.argv[1], 'a').write(os.environ['STOIX_LIKE_EVENT'] + ' ' + sys.stdin.read())"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Threads look often."""
    monkeypatch.setattr(user_commands, "_LOOK_SECONDS", 0.01)


def wait_until(condition):
    while not condition():
        time.sleep(0.01)


def writes(path):
    """A command that adds what it is told to a file."""
    return f'{sys.executable} -c "{WRITES}" {path}'


def lines(path):
    return path.read_text().splitlines() if path.is_file() else []


@pytest.fixture
def log(tmp_path):
    with contextlib.closing(Database(tmp_path)) as database:
        yield EventLog(database)


def failed(part, breaker):
    return kinds.StageFailed(**BASE, part=part, failed_stage="train", error="no memory", breaker=breaker)


def test_commands_get_the_events_since_they_were_added_also_after_a_restart(log, tmp_path):
    path = tmp_path / "told"
    commands = {BREAKER_OPEN: writes(path)}
    with HookThreads(log, {}, SILENT) as threads:
        log.append([failed(1, "open")])
        assert threads.report() == {}
    assert log.position("on_event") is None  # without commands nothing is read
    with HookThreads(log, commands, SILENT):
        log.append([failed(2, "closed"), failed(3, "open")])
        wait_until(path.is_file)
    log.append([failed(4, "open")])  # of a process that is killed before it is told
    with HookThreads(log, commands, SILENT):
        wait_until(lambda: len(lines(path)) >= 2)
    kinds, texts = zip(*(line.split(" ", 1) for line in lines(path)), strict=True)
    assert set(kinds) == {BREAKER_OPEN}
    assert [json.loads(text)["part"] for text in texts] == [3, 4]
    assert json.loads(texts[0])["key"] == "tic_tac_toe_2p/3/train/STAGE_FAILED/3"


def test_a_command_that_fails_is_said_and_passed_over(log):
    said = []
    with HookThreads(log, {"STAGE_FAILED": "false"}, SILENT._replace(warning=said.append)):
        log.append([failed(1, "closed")])
        wait_until(lambda: len(said) >= 3)
    assert all("on_event/STAGE_FAILED failed on tic_tac_toe_2p/3/train/STAGE_FAILED/1" in line for line in said)


def test_a_command_that_hangs_holds_up_no_other(log, tmp_path):
    """It ends when the other one, whose event comes later, has been run."""
    path, said = tmp_path / "told", []
    hangs = f"sh -c 'while ! test -f {path}; do sleep 0.01; done'"
    commands = {"STAGE_FAILED": hangs, BREAKER_OPEN: writes(path)}
    with HookThreads(log, commands, SILENT._replace(warning=said.append)) as threads:
        log.append([failed(1, "closed"), failed(2, "open")])
        wait_until(lambda: [log.position(queue.consumer) for queue in threads.queues] == [log.end()] * 2)
    assert said == []
    assert path.is_file()


def test_a_command_that_hangs_when_the_loop_ends_is_killed_and_run_again_by_the_next_loop(log, tmp_path, monkeypatch):
    monkeypatch.setattr(user_commands, "_LAST_SECONDS", 0.0)
    path, said = tmp_path / "began", []
    command = f"sh -c 'echo >> {path}; test $(wc -l < {path}) -gt 1 || exec sleep 1000'"
    with HookThreads(log, {"STAGE_FAILED": command}, SILENT._replace(warning=said.append)):
        log.append([failed(1, "closed")])
        wait_until(path.is_file)
    assert len(said) == 1
    assert "1 of 3 times" in said[0]
    monkeypatch.setattr(user_commands, "_LAST_SECONDS", 60.0)
    with HookThreads(log, {"STAGE_FAILED": command}, SILENT) as threads:
        wait_until(lambda: log.position(threads.queues[0].consumer) == log.end())
    assert len(lines(path)) == 2


@pytest.fixture
def queue(log, monkeypatch):
    """A queue whose command notes the parts of its events, and fails with `queue.fault`."""
    queue, queue_run = CommandQueue(log, "STAGE_FAILED", "true", SILENT), []

    def run(_kind, event):
        queue_run.append(event.part)
        if queue.fault:
            raise queue.fault

    queue.run, queue.fault = queue_run, None
    monkeypatch.setattr(queue.command, "run", run)
    return queue


def drain(queue):
    while queue.run_next():
        pass


def test_a_command_whose_events_wait_too_long_passes_over_the_oldest(log, queue, monkeypatch):
    monkeypatch.setattr(user_commands, "MOST_WAITING", 3)
    log.append([failed(part, "closed") for part in range(1, 11)])
    drain(queue)
    assert queue.run == [8, 9, 10]
    assert queue.counts == {"failed": 0, "passed_over": 7}
    log.append([failed(11, "closed")])
    drain(queue)
    assert queue.run[3:] == [11]


def test_what_a_command_has_failed_on_is_counted(log, queue):
    log.append([failed(1, "closed"), failed(2, "closed")])
    queue.fault = OSError(2, "No such file or directory")
    assert [queue.run_next() for _ in range(3)] == [False, False, True]
    queue.fault = None
    drain(queue)
    assert queue.run == [1, 1, 1, 2]
    assert queue.counts == {"failed": 1, "passed_over": 0}
    assert "No such file or directory" in queue.last_error
    lines = status_lines(shown({"STAGE_FAILED": queue.counts | {"last_error": queue.last_error}}))
    assert any(line.startswith("  command of STAGE_FAILED: 1 failed, 0 passed over; last: on_event") for line in lines)


def shown(reports):
    """A status with the reports of a master loop's commands."""
    details = {"hooks": reports, "total_iterations": 0, "successful_iterations": 0, "failed_iterations": 0}
    loop = {"name": "master", "running": False, "healthy": False, "state": "stopped", "stop_requested": False}
    loop |= {"pid": 1, "details": details | {"last_error": None}}
    return {"save_dir": "runs", "healthy": False, "error": None, "loops": [loop], "games": [], "events": []}


def test_an_event_of_another_version_is_said_and_passed_over(log, queue, tmp_path):
    def of_another_version():
        with Database(tmp_path).transaction() as connection:
            row = "SELECT kind, game, iteration, time FROM events"
            connection.execute(
                f"INSERT INTO events (key, kind, game, iteration, time, fields) SELECT 'new', *, '{{\"weather\": 1}}'"
                f" FROM ({row} LIMIT 1)"
            )

    said, handled = [], []
    router = EventRouter(log, SILENT._replace(warning=said.append), [Subscription("test", handled.append)])
    log.append([failed(1, "closed")])
    of_another_version()
    log.append([failed(2, "closed")])
    router.dispatch()
    drain(queue)
    assert [event.part for event in handled] == queue.run == [1, 2]
    assert "an event of kind 'STAGE_FAILED' cannot be read" in said[0]
    assert "cannot be read" in queue.last_error
    assert queue.counts["failed"] == 1


def test_the_place_of_an_earlier_version_is_taken_over(log):
    log.append([failed(1, "closed")])
    log.advance("on_event", log.end())
    log.append([failed(2, "closed")])
    threads = HookThreads(log, {"STAGE_FAILED": "true"}, SILENT)
    assert log.position(threads.queues[0].consumer) == 1
    assert log.position("on_event") is None


@pytest.mark.parametrize(
    ("commands", "problem"),
    [
        ({"MODEL_PROMOTE": "true"}, "hooks.on_event: no event 'MODEL_PROMOTE'; did you mean 'MODEL_PROMOTED'?"),
        ({"MODEL_PROMOTED": "'open"}, 'hooks.on_event: the command of MODEL_PROMOTED is "\'open"'),
        (
            {"MODEL_PROMOTED": "./nothing.sh now"},
            "hooks.on_event: the command of MODEL_PROMOTED: no program './nothing.sh'",
        ),
        ({"MODEL_PROMOTED": 3}, "hooks.on_event: the command of MODEL_PROMOTED is 3"),
    ],
)
def test_wrong_hooks_are_refused(commands, problem):
    with pytest.raises(ConfigError) as caught:
        check_hooks(commands)
    assert caught.value.problems == [problem]


def test_what_the_loop_has_told_last_is_begun_before_it_ends(log, tmp_path, monkeypatch):
    monkeypatch.setattr(user_commands, "_LOOK_SECONDS", 1e6)  # the thread looks when the loop ends
    path = tmp_path / "told"
    commands = {BREAKER_OPEN: writes(path)}
    with HookThreads(log, commands, SILENT):
        log.append([failed(1, "closed"), failed(2, "open"), failed(3, "open")])
    assert len(lines(path)) == 2
    monkeypatch.setattr(user_commands, "_LAST_SECONDS", -1.0)  # it takes too long
    with HookThreads(log, commands, SILENT):
        log.append([failed(4, "open"), failed(5, "open")])
    assert len(lines(path)) == 2
    monkeypatch.setattr(user_commands, "_LAST_SECONDS", 60.0)
    with HookThreads(log, commands, SILENT):  # of the next process
        pass
    assert len(lines(path)) == 4
