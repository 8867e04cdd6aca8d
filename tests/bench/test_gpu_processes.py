"""Parts run in processes of their own: rows come at once, what is missing is named, and none stays."""

import signal
import sys
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from stoix_like.bench.gpu import processes
from stoix_like.bench.gpu.processes import Process, Report, read_report
from stoix_like.bench.timing.measure import Measurement

ROW = Measurement("row", 2.0, "steps/s", 0.1)
BEGINNING = """
import json, os, subprocess, sys, time
def row(case, name):
    row = dict.fromkeys(["spread", "reference", "ratio", "ceiling", "share"]) | {"note": ""}
    print(json.dumps({"case": case, "row": row | {"name": name, "value": 1.0, "unit": "s"}, "problem": ""}), flush=True)
def end(case, problem=""):
    print(json.dumps({"case": case, "row": None, "problem": problem}), flush=True)
"""


def part(program, *cases, seconds=20.0, **environment):
    return Process("part", cases, [sys.executable, "-c", BEGINNING + program], seconds, environment)


def run(*parts, seconds=20.0):
    return [row.name for row in processes.run_processes(parts, time.monotonic() + seconds)]


def is_running(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def waits_for(condition):
    until = time.monotonic() + 50
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def waits_until_gone(number):
    return waits_for(lambda: not is_running(number))


@pytest.fixture
def clock(monkeypatch):
    """[seconds]: the time that limits and the deadline are measured by. It stands still until a test moves it."""
    now = [0.0]
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_report_is_a_line_and_what_libraries_print_is_none():
    for report in (Report("a", ROW), Report("a"), Report("a", problem="out of memory")):
        assert read_report(report.line()) == report
    for line in ("", "a warning\n", "3\n", '{"case": "a"}\n'):
        assert read_report(line) is None


def test_rows_of_parts_come_in_order_and_variables_reach_their_process(capfd):
    first = part("print('a warning'); row('a', os.environ['FLAG']); row('a', 'a2'); end('a')", "a", FLAG="a1")
    assert run(first, part("row('b', 'b1'); end('b')", "b")) == ["a1", "a2", "b1"]
    assert capfd.readouterr().err == ""


def test_a_row_comes_before_its_part_ends():
    with closing(processes.run_processes([part("row('a', 'a1'); time.sleep(60)", "a")], time.monotonic() + 60)) as rows:
        began = time.monotonic()
        assert next(rows).name == "a1"
        assert time.monotonic() - began < 30


def test_what_exceeds_its_limit_is_named_and_its_processes_are_gone(tmp_path, capfd, clock):
    """The process has started another one, which holds its stdout and would print on."""
    program = f"""
row('a', 'a1'); end('a'); row('b', 'b1')
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "writing")!r}, "w").write(f"{{os.getpid()}} {{other.pid}}")
os.rename({str(tmp_path / "writing")!r}, {str(tmp_path / "numbers")!r})
time.sleep(60)
"""
    rows = processes.run_processes([part(program, "a", "b", "c", seconds=1.5)], 20.0)
    assert [next(rows).name, next(rows).name] == ["a1", "b1"]
    assert waits_for((tmp_path / "numbers").exists)
    numbers = [int(word) for word in (tmp_path / "numbers").read_text().split()]
    assert [is_running(number) for number in numbers] == [True, True]
    clock[0] = 1.5
    assert [*rows] == []
    reason = "part took longer than 1.5 s"
    assert capfd.readouterr().err == f"left out: b ({reason})\nleft out: c ({reason})\n"
    assert all(waits_until_gone(number) for number in numbers)


@pytest.mark.parametrize("how", ["close", "signal"])
def test_a_suite_that_is_interrupted_leaves_no_process(how):
    rows = processes.run_processes([part("row('a', str(os.getpid())); time.sleep(60)", "a")], time.monotonic() + 60)
    number = int(next(rows).name)
    assert is_running(number)
    if how == "signal":
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert waits_until_gone(number)
    rows.close()
    assert waits_until_gone(number)


def test_what_dies_is_named_with_its_last_words_and_the_next_part_runs(capfd):
    dying = part("row('a', 'a1'); print('no room', file=sys.stderr); sys.exit(3)", "a")
    killed = part("end('b', 'out of memory'); os.kill(os.getpid(), 9)", "b", "c")
    assert run(dying, killed, part("row('d', 'd1'); end('d')", "d")) == ["a1", "d1"]
    assert capfd.readouterr().err.splitlines() == [
        "left out: a (the process of part ended with exit code 3: no room)",
        "left out: b (out of memory)",
        "left out: c (the process of part was killed by SIGKILL)",
    ]


def test_a_process_left_behind_does_not_keep_the_next_part_waiting(tmp_path):
    program = f"""
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "number")!r}, "w").write(str(other.pid))
end('a')
"""
    began = time.monotonic()
    assert run(part(program, "a"), part("row('b', 'b1'); end('b')", "b")) == ["b1"]
    assert time.monotonic() - began < 50
    assert waits_until_gone(int((tmp_path / "number").read_text()))


def test_the_deadline_leaves_the_rest_out_by_name(capfd, clock):
    slow = part("row('a', 'a1'); time.sleep(60)", "a", seconds=20.0)
    rows = processes.run_processes([slow, part("row('b', 'b1')", "b", "c")], 1.0)
    assert next(rows).name == "a1"
    clock[0] = 1.0
    assert [*rows] == []
    assert capfd.readouterr().err.splitlines() == [
        "left out: a (the deadline of all parts came)",
        *(f"left out: {case} (the deadline of all parts came before)" for case in "bc"),
    ]
