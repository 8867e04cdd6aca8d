"""A supervisor over small processes that stand for loops: it starts them again, and stops for good when it is told."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from stoix_like.commands.entry import exit_code
from stoix_like.errors import RunError
from stoix_like.runtime.console.reporter import SILENT, Reporter
from stoix_like.selfplay.events.database import FILE, Database
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.presence import CONTINUOUS, MASTER, PresenceLock
from stoix_like.selfplay.watch.supervisor import pause_before, stop_loop, supervise

#: Writes a line each time that it is started, and does as its first argument says.
CHILD = """
import os, signal, sys, time
what, path = sys.argv[1:]
def receive(*_):
    with open(path + ".signals", "a") as file:
        file.write(f"{os.getpid()}\\n")
    if what != "goes on":
        sys.exit(7)
signal.signal(signal.SIGTERM, receive)
with open(path, "a") as file:
    file.write(os.environ["STOIX_LIKE_SUPERVISED"] + "\\n")
starts = len(open(path).read().split())
if what == "fails twice" and starts <= 2:
    os.kill(os.getpid(), signal.SIGKILL)
if what == "is wrong":
    sys.exit(2)
if what in ("runs", "goes on"):
    for _ in range(600):
        time.sleep(1)
"""


def child(what, path):
    return [sys.executable, "-c", CHILD, what, str(path)]


def starts(path):
    return len(path.read_text().split()) if path.is_file() else 0


def test_pauses_double_up_to_five_minutes():
    assert [pause_before(n) for n in range(8)] == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert pause_before(10**6) == 300.0


def test_a_killed_loop_is_started_again_and_one_that_is_over_is_not(tmp_path):
    said, pauses = [], []
    reporter = SILENT._replace(warning=said.append)
    log = tmp_path / "log"
    code = supervise(CONTINUOUS, tmp_path, child("fails twice", log), reporter, lambda n: pauses.append(n) or 0.0)
    assert (code, starts(log), pauses) == (0, 3, [0, 1])
    assert said[0] == "the continuous loop was killed by SIGKILL; it is started again in 0 s"
    with contextlib.closing(Database(tmp_path)) as database:
        ((name, text),) = database.rows("SELECT name, status FROM heartbeats")
        assert name == "supervisor-continuous"
        assert '"restarts": 2' in text


def test_a_supervisor_goes_on_when_nothing_can_be_printed(tmp_path):
    def full(_line):
        raise OSError(28, "No space left on device")

    log, reporter = tmp_path / "log", Reporter(full, full, full, full)
    assert supervise(CONTINUOUS, tmp_path, child("fails twice", log), reporter, lambda _: 0.0) == 0
    assert starts(log) == 3


def test_a_stop_reaches_a_supervisor_whose_database_was_moved_away(tmp_path):
    log = tmp_path / "log"

    def pause(_):
        if starts(log) == 1:
            (tmp_path / FILE).rename(tmp_path / "moved")
            return 0.0
        PresenceLock(tmp_path, CONTINUOUS).close()
        stop_loop(tmp_path, CONTINUOUS)
        return 600.0

    assert supervise(CONTINUOUS, tmp_path, child("fails twice", log), SILENT, pause) == 0
    assert starts(log) == 2


def for_a_moment(function):
    """The function, which fails twice before it works."""
    calls = []

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) <= 2:
            raise OSError(5, "Input/output error")
        return function(*arguments, **options)

    return failing


@pytest.mark.parametrize(
    ("module", "function", "said"),
    [
        (presence, "is_present", "continuous.lock cannot be read (Input/output error): it is looked at again"),
        (subprocess, "Popen", "no process can be started: Input/output error"),
    ],
)
def test_an_error_of_the_system_for_a_moment_ends_no_supervisor(tmp_path, monkeypatch, module, function, said):
    monkeypatch.setattr(module, function, for_a_moment(getattr(module, function)))
    lines, log = [], tmp_path / "log"
    reporter = SILENT._replace(note=lines.append, warning=lines.append)
    assert supervise(CONTINUOUS, tmp_path, child("ends", log), reporter, lambda _: 0.0) == 0
    assert starts(log) == 1
    assert any(line.endswith(said) for line in lines)


def test_a_wrong_command_line_is_not_tried_again(tmp_path):
    log = tmp_path / "log"
    assert supervise(CONTINUOUS, tmp_path, child("is wrong", log), SILENT) == 2
    assert starts(log) == 1


@contextlib.contextmanager
def when(condition, act):
    """Acts in a thread as soon as a condition holds, while the block runs."""

    def wait():
        while not condition():
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield
    thread.join()


def test_a_stop_that_was_asked_for_sticks(tmp_path):
    """It is asked for in the pause before the next start, which then never comes."""
    log = tmp_path / "log"

    def stop():
        with contextlib.closing(Database(tmp_path)) as database:
            presence.request_stop(database, CONTINUOUS)

    with when(lambda: starts(log) == 1, stop):
        code = supervise(CONTINUOUS, tmp_path, child("fails twice", log), SILENT, lambda _: 600.0)
    assert (code, starts(log)) == (0, 1)
    with contextlib.closing(Database(tmp_path)) as database:
        assert presence.is_stopped(database, CONTINUOUS)


def test_a_signal_is_handed_on_and_the_end_waited_for(tmp_path):
    log = tmp_path / "log"
    with when(lambda: starts(log) == 1, lambda: os.kill(os.getpid(), signal.SIGTERM)):
        code = supervise(CONTINUOUS, tmp_path, child("runs", log), SILENT)
    assert (code, starts(log), starts(log.with_name("log.signals"))) == (130, 1, 1)  # not 7, as the loop ends with


def test_a_second_signal_ends_a_loop_that_goes_on_at_once(tmp_path, monkeypatch, capsys):
    """The first one is handed on once, however often is looked; the loop has it, and goes on until it is killed."""
    log = tmp_path / "log"
    signals, looks, poll = log.with_name("log.signals"), [], subprocess.Popen.poll
    monkeypatch.setattr(subprocess.Popen, "poll", lambda process: looks.append(1) or poll(process))

    def kill_twice():
        os.kill(os.getpid(), signal.SIGTERM)
        while not starts(signals):
            time.sleep(0.02)
        before = len(looks)
        while len(looks) < before + 3:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    with when(lambda: starts(log) == 1, kill_twice):
        code = exit_code(lambda argv: supervise(CONTINUOUS, tmp_path, child("goes on", log), SILENT), [])
    assert (code, starts(log), starts(signals)) == (130, 1, 1)
    assert capsys.readouterr().err == "interrupted\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(signals.read_text()), 0)  # it was killed, and waited for
    assert not presence.is_present(tmp_path, "supervisor-continuous")


def test_only_one_supervisor_works_in_a_folder(tmp_path):
    running = pytest.raises(RunError, match="another supervisor of the continuous loop is running")
    with presence.present(tmp_path, "supervisor-continuous"), running:
        supervise(CONTINUOUS, tmp_path, child("is wrong", tmp_path / "log"), SILENT)


def test_a_loop_that_was_never_started_cannot_be_stopped(tmp_path):
    with pytest.raises(RunError, match="no continuous loop was started"):
        stop_loop(tmp_path, CONTINUOUS)
    assert list(tmp_path.iterdir()) == []
    with presence.present(tmp_path, CONTINUOUS):
        assert stop_loop(tmp_path, CONTINUOUS) == {"running": True}
    assert stop_loop(tmp_path, CONTINUOUS) == {"running": False}
    with pytest.raises(RunError, match="no master loop was started"):
        stop_loop(tmp_path, MASTER)
    with presence.present(tmp_path, "supervisor-master"):  # whose loop has not been there yet
        assert stop_loop(tmp_path, MASTER) == {"running": False}
