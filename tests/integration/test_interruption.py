"""However a run is stopped, continuing it in a new process ends where the uninterrupted run ends, bit for bit."""

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.marks import full
from support.paths import ROOT, contents
from support.scripted_runs import (
    BASE,
    SIZES_OF,
    assert_same_run,
    finish,
    flags,
    last_update,
    rows_of,
    state_of,
    stopped,
    wait_until,
)

from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.runs.checkpoint import CheckpointStore

STOPPING = "stopping after the current chunk or compilation; a second Ctrl-C stops at once, at the last checkpoint\n"


def _checkpoints(run):
    return CheckpointStore(run / "checkpoints").updates()


def _stop(scripts, run, number, after, *argv, algorithm="ppo"):
    """Starts a training, sends the signal once `after` updates are reported; returns (code, output, errors)."""
    with scripts.start(f"train_{algorithm}", *argv) as process:
        wait_until(lambda: last_update(run) >= after, process)
        process.send_signal(number)
        out, err = finish(process)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("algorithm", "number"),
    [
        full("ppo", signal.SIGINT),
        ("ppo", signal.SIGTERM),
        full("ppo", signal.SIGHUP),
        full("spo", signal.SIGINT),
        full("alphazero", signal.SIGTERM),
    ],
)
def test_a_stopped_run_says_how_to_go_on_and_ends_the_same(scripts, uninterrupted, algorithm, number, not_under_nohup):
    run, leaves = scripts.cwd / "stopped", SIZES_OF[algorithm]
    code, out, err = _stop(scripts, run, number, 5, *flags(**leaves, run_name="stopped"), algorithm=algorithm)
    assert (code, err) == (130, STOPPING if number == signal.SIGINT else "")
    assert "interrupted after update" in out
    assert re.fullmatch(
        rf"next: \S*python\S* {ROOT}/scripts/train_{algorithm}.py --resume stopped", out.splitlines()[-1]
    )
    reached = last_update(run)
    assert 5 <= reached < leaves["num_updates"]
    assert _checkpoints(run)[-1] == reached
    out, err = scripts.run(f"train_{algorithm}", "--resume", "stopped")
    assert (err, "holds no replay" in out) == ("", False)
    assert f"resumed after update {reached}" in out
    assert_same_run(uninterrupted(algorithm), run)
    resumed = [row["update"] for row in rows_of(run, "MISC") if row["misc/event"] == "resume"]
    assert resumed == [reached]


@pytest.mark.full
def test_a_run_that_saves_only_at_its_end_is_saved_when_stopped(scripts, train_here):
    """Stopped at an update at which nothing else is due: only the stop saves."""
    leaves = BASE | {"num_updates": 4000, "save_interval": 0, "eval_interval": 500}
    run = scripts.cwd / "stopped"
    code, _, err = _stop(scripts, run, signal.SIGINT, 37, *flags(**leaves, run_name="stopped"))
    assert (code, err) == (130, STOPPING)
    reached = last_update(run)
    assert 37 <= reached < 4000
    assert _checkpoints(run) == [0, reached]
    scripts.run("train_ppo", "--resume", "stopped")
    assert train_here(**leaves, run_name="whole") == 0
    assert_same_run(scripts.cwd / "whole", run)


def _kill_during_a_save(run, after, process):
    """Kills while orbax's unfinished folder stands there."""
    folder = run / "checkpoints"
    wait_until(lambda: last_update(run) >= after, process)
    wait_until(lambda: any("tmp" in path.name for path in folder.iterdir()), process, every=0)
    process.kill()


def _kill_at_random(run, after, process):
    """Kills anywhere in the 0.3 seconds after an update: in a save, an evaluation, a write.

    Two updates later at the latest, or a fast machine would end the run.
    """
    wait_until(lambda: last_update(run) >= after, process)
    moment = time.monotonic() + random.Random(after).uniform(0.0, 0.3)
    wait_until(lambda: time.monotonic() >= moment or last_update(run) >= after + 2, process)
    process.kill()


@pytest.mark.parametrize(
    ("algorithm", "kill", "moments"),
    [
        full("ppo", _kill_during_a_save, (2, 6, 11, 15)),
        full("ppo", _kill_at_random, (2, 6, 11, 15)),
        full("ppo", _kill_at_random, (2, 11)),
        ("spo", _kill_at_random, (6,)),
        full("spo", _kill_at_random, (2, 6)),
        full("alphazero", _kill_at_random, (2, 6)),
    ],
)
def test_a_killed_run_ends_the_same(scripts, uninterrupted, algorithm, kill, moments):
    run, leaves = scripts.cwd / "killed", SIZES_OF[algorithm]
    argv = flags(**leaves, run_name="killed")
    unfinished = 0
    for after in moments:
        with scripts.start(f"train_{algorithm}", *argv) as process:
            kill(run, max(after, last_update(run) + 1), process)
            finish(process)
        assert process.returncode == -signal.SIGKILL
        unfinished += any("tmp" in path.name for path in (run / "checkpoints").rglob("*"))
        argv = ["--resume", "killed"]
    if kill is _kill_during_a_save:
        assert unfinished >= 1  # else nothing was tested
    out, err = scripts.run(f"train_{algorithm}", *argv)
    assert err == ""
    assert "resumed after update" in out
    assert_same_run(uninterrupted(algorithm), run)
    if algorithm != "ppo":  # so that a replay was compared
        replay = state_of(run).replay
        assert replay.is_full if algorithm == "spo" else (replay.size == 14).all()
    assert _checkpoints(run) == [leaves["num_updates"] - left for left in (2, 1, 0)]
    assert not [path for path in (run / "checkpoints").rglob("*") if "tmp" in path.name]


@pytest.mark.full
def test_a_killed_run_of_several_seeds_ends_the_same(scripts):
    """The best of each seed is found at different updates; checkpoints come more rarely than evaluations."""
    leaves = BASE | {"num_seeds": 3, "save_interval": 10, "eval_interval": 1}
    scripts.run("train_ppo", *flags(**leaves, run_name="whole"))
    with scripts.start("train_ppo", *flags(**leaves, run_name="killed")) as process:
        wait_until(lambda: last_update(scripts.cwd / "killed") >= 18, process)
        process.kill()
        finish(process)
    scripts.run("train_ppo", "--resume", "killed")
    assert_same_run(scripts.cwd / "whole", scripts.cwd / "killed")


def test_a_second_writer_is_refused_and_the_first_unharmed(scripts, reference):
    run = scripts.cwd / "shared"
    with scripts.start("train_ppo", *flags(**BASE, run_name="shared")) as first:
        wait_until(lambda: last_update(run) >= 3, first)
        with stopped(first):  # so that it is there as long as the second needs
            before = contents(run)
            out, err = scripts.run("train_ppo", "--resume", "shared", code=1)
            after = contents(run)
        finish(first)
    assert err.splitlines() == [
        "error: another process is writing shared",
        "hint: wait for it to end, or start a run under another --run-name",
    ]
    assert out == ""
    assert after == before
    assert first.returncode == 0
    assert_same_run(reference, run)


@pytest.mark.full
def test_more_updates_are_noted_and_take_over(scripts, reference):
    shutil.copytree(reference, "longer")
    out, _ = scripts.run("train_ppo", "--resume", "longer", "--num-updates", "32")
    assert "note: resumed with num_updates = 32 (was 24)" in out.splitlines()
    saved = saved_run.load_run("longer", "latest")
    assert saved.meta.update == 32
    assert (saved.config.training_core.num_updates, float(saved.state.hyper.num_updates)) == (32, 32.0)
    assert int(saved.state.step) == 32
    assert "num_updates: 32 " in Path("longer/config.yaml").read_text()
    rates = {row["update"]: row["trainer/learning_rate"] for row in rows_of("longer", "TRAINER")}
    assert rates[24] == pytest.approx(0.001 * (1 - 23 / 24), rel=1e-5)
    assert rates[25] == pytest.approx(0.001 * (1 - 24 / 32), rel=1e-5)
    assert rows_of("longer", "TRAINER")[:24] == rows_of(reference, "TRAINER")


@pytest.mark.full
def test_a_reader_that_leaves_or_none_at_all_does_not_stop_the_run(scripts, reference):
    """`train_ppo.py ... | head -1`"""
    with scripts.start("train_ppo", *flags(**BASE, run_name="unwatched")) as process:
        assert process.stdout.readline().startswith("stoix_like")
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=180) == 0
    assert err == ""
    assert_same_run(reference, scripts.cwd / "unwatched")
    # Standard output closed before the start, as under some job runners: `train_ppo.py >&-`
    script = f"{sys.executable} {ROOT}/scripts/train_ppo.py --run-name silent {' '.join(flags(**BASE))}"
    options = {"cwd": scripts.cwd, "env": scripts.environment(), "text": True, "capture_output": True, "timeout": 180}
    result = subprocess.run(["bash", "-c", f"exec {script} >&-"], check=False, **options)
    assert (result.returncode, result.stderr) == (0, "")
    assert_same_run(reference, scripts.cwd / "silent")
