"""Supervisors that are killed without warning: the loop that one had started ends by itself, and another one begins."""

import os
import signal
from pathlib import Path

import pytest
from support.loops import SMALL_WORDS
from support.scripted_runs import finish, wait_until

from stoix_like.bench.loops.soak import inconsistencies, num_finished
from stoix_like.selfplay.watch.presence import CONTINUOUS, is_present
from stoix_like.selfplay.watch.status import read_status

LOOP = ["-c", "tic_tac_toe:2", "--games", "10", "--cooldown", "0", *SMALL_WORDS, "--min-samples", "0"]
SUPERVISOR = f"supervisor-{CONTINUOUS}"


@pytest.fixture
def folder(scripts):
    """The folder of pipelines, by a path that is found in the command lines of its processes."""
    return scripts.cwd / "runs"


def start(scripts, folder):
    return scripts.start("launch_daemons", "--continuous", "--save-dir", folder, *LOOP)


def states(folder):
    """{loop: what it says of itself}, of a supervisor too."""
    return {loop["name"]: loop["state"] for loop in read_status(folder)["loops"]}


def child_of(process):
    """The process id of the loop that a supervisor has started; None before."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(found[0]) if found else None


def end_with_a_signal(process, folder):
    """Ends a supervisor and its loop by one signal; nothing is left of them, and everything is as it should be."""
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert process.returncode == 130
    assert states(folder) == {SUPERVISOR: "stopped", CONTINUOUS: "stopped"}
    assert list(inconsistencies(folder)) == []


def test_the_loop_of_a_killed_supervisor_ends_by_itself_and_a_new_supervisor_starts(scripts, folder):
    with start(scripts, folder) as process:
        wait_until(lambda: num_finished(folder) >= 1, process)
        process.send_signal(signal.SIGKILL)
        finish(process)  # the loop writes into the same pipe: this waits for its end as well
    assert process.returncode == -signal.SIGKILL
    assert not is_present(folder, CONTINUOUS)
    assert states(folder) == {SUPERVISOR: "killed", CONTINUOUS: "stopped"}  # not killed: it has said that it ends
    made = num_finished(folder)
    with start(scripts, folder) as process:
        wait_until(lambda: num_finished(folder) > made, process)
        assert is_present(folder, CONTINUOUS)
        end_with_a_signal(process, folder)


@pytest.mark.full
def test_a_loop_whose_supervisor_is_killed_before_it_can_look_ends_as_well(scripts, folder):
    with start(scripts, folder) as process:
        wait_until(lambda: child_of(process) is not None, process)
        loop = child_of(process)
        os.kill(loop, signal.SIGSTOP)  # it has not come to ask who its parent is
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.kill(loop, signal.SIGCONT)
        finish(process)
    assert states(folder) == {SUPERVISOR: "killed", CONTINUOUS: "stopped"}
    with start(scripts, folder) as process:
        wait_until(lambda: num_finished(folder) >= 1, process)
        end_with_a_signal(process, folder)
