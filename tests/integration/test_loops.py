"""Loops as processes: seen by others while they run, killed, stopped for good, and deferring to each other."""

import contextlib
import json
import signal
import sqlite3

import pytest
from support.loops import SMALL_WORDS
from support.scripted_runs import finish, wait_until

from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.events.database import FILE
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout
from stoix_like.selfplay.watch.presence import is_unified_loop_running

CONTINUOUS = ["-c", "tic_tac_toe:2", "--games", "10", "--cooldown", "0", "--save-dir", "runs", *SMALL_WORDS]
CONTINUOUS += ["--min-samples", "0"]
MASTER = ["--games", "tic_tac_toe:2", "--selfplay-games", "10", "--min-samples-to-trigger", "0", "--save-dir", "runs"]
MASTER += SMALL_WORDS


def status(scripts, code):
    out, _ = scripts.run("launch_daemons", "--status", "--json", "--save-dir", "runs", code=code)
    return json.loads(out)


def is_finished(scripts, number):
    return (Layout(scripts.cwd / "runs" / "tic_tac_toe_2p").stage(number, "promote") / "manifest.json").is_file()


def keys(scripts):
    """The keys of all events, in the order in which they were written."""
    with contextlib.closing(sqlite3.connect(scripts.cwd / "runs" / FILE)) as connection:
        return [key for (key,) in connection.execute("SELECT key FROM events ORDER BY id")]


def manifests(scripts):
    """{file: when it was written} of the stages that are done."""
    found = (scripts.cwd / "runs").rglob("manifest.json")
    return {path: path.stat().st_mtime_ns for path in found if not path.name.startswith(".")}


def test_a_killed_loop_is_seen_and_goes_on_and_a_stop_ends_it(scripts):
    with scripts.start("run_continuous_training", *CONTINUOUS) as process:
        wait_until(lambda: is_finished(scripts, 1), process)
        found = status(scripts, 0)
        (loop,) = found["loops"]
        assert (loop["running"], loop["healthy"], loop["pid"]) == (True, True, process.pid)
        assert found["games"][0]["iteration"] >= 1
        process.send_signal(signal.SIGKILL)
        finish(process)
    found = status(scripts, 1)
    assert [(loop["state"], loop["running"]) for loop in found["loops"]] == [("killed", False)]
    before, done = keys(scripts), manifests(scripts)
    with scripts.start("run_continuous_training", *CONTINUOUS) as process:
        goal = 1 + max(int(key.split("/")[1]) for key in before)
        wait_until(lambda: is_finished(scripts, goal), process)
        scripts.run("launch_daemons", "--stop", "continuous", "--save-dir", "runs")
        finish(process)
    assert process.returncode == 130
    after = keys(scripts)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)
    assert manifests(scripts).items() >= done.items()  # no finished stage was done twice
    last = max(number for number in Layout(scripts.cwd / "runs" / "tic_tac_toe_2p").iterations())
    for number in range(1, last):
        assert after.count(f"tic_tac_toe_2p/{number}/promote/ITERATION_COMPLETE/1") == 1
    assert status(scripts, 1)["loops"][0]["stop_requested"]


@pytest.mark.full
def test_a_continuous_loop_defers_to_a_master_loop_that_starts_and_goes_on_when_it_has_ended(scripts):
    layout = Layout(scripts.cwd / "runs" / "tic_tac_toe_2p")

    def state(name):
        return {loop["name"]: loop["state"] for loop in json.loads(run_status(scripts))["loops"]}.get(name)

    with scripts.start("run_continuous_training", *CONTINUOUS, "--defer-interval", "1") as continuous:
        wait_until((layout.stage(1, "selfplay") / "shard_0000.npz").is_file, continuous)
        with scripts.start("master_loop", *MASTER) as master:
            wait_until(lambda: is_unified_loop_running(scripts.cwd / "runs"), master)
            wait_until(lambda: state("continuous") == "deferred", continuous, every=0.5)
            deferred_at = max(layout.iterations())
            wait_until(lambda: is_finished(scripts, deferred_at + 1), master)  # it makes iterations, the other does not
            assert state("continuous") == "deferred"
            master.send_signal(signal.SIGTERM)
            finish(master)
        assert master.returncode == 130
        made = max(layout.iterations())
        wait_until(lambda: is_finished(scripts, made + 1), continuous)
        continuous.send_signal(signal.SIGTERM)
        finish(continuous)
    assert continuous.returncode == 130
    found = keys(scripts)
    assert len(set(found)) == len(found)
    for number in range(1, max(layout.iterations())):
        assert all(read_manifest(layout.stage(number, name)) is not None for name in STAGE_NAMES)


def run_status(scripts):
    with scripts.start("launch_daemons", "--status", "--json", "--save-dir", "runs") as process:
        return finish(process)[0]


@pytest.mark.full
def test_a_supervisor_starts_a_killed_loop_again_and_ends_with_it(scripts):
    layout = Layout(scripts.cwd / "runs" / "tic_tac_toe_2p")

    def loop():
        found = [loop for loop in json.loads(run_status(scripts))["loops"] if loop["name"] == "continuous"]
        return found[0] if found else {"running": False, "pid": None}

    with scripts.start("launch_daemons", "--continuous", "--save-dir", "runs", *_without_save_dir()) as supervisor:
        wait_until(lambda: loop()["running"] and loop()["pid"], supervisor, every=0.5)
        first = loop()["pid"]
        wait_until(lambda: is_finished(scripts, 1), supervisor)
        _kill(first)
        wait_until(lambda: loop()["running"] and loop()["pid"] != first, supervisor, every=0.5)
        made = max(layout.iterations())
        wait_until(lambda: is_finished(scripts, made + 1), supervisor)
        scripts.run("launch_daemons", "--stop", "continuous", "--save-dir", "runs")
        finish(supervisor)
    assert supervisor.returncode == 0
    assert not loop()["running"]


def _without_save_dir():
    at = CONTINUOUS.index("--save-dir")
    return CONTINUOUS[:at] + CONTINUOUS[at + 2 :]


def _kill(pid):
    import os

    os.kill(pid, signal.SIGKILL)
