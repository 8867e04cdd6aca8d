"""SPO in new processes: resuming with its replay is exact, without it a note is logged."""

import signal

import pytest
from support.asserts import assert_same_bits
from support.scripted_runs import (
    SPO_BASE,
    assert_same_run,
    cut_back,
    finish,
    flags,
    last_update,
    rows_of,
    state_of,
    wait_until,
)

from stoix_like.runtime.runs import saved
from stoix_like.runtime.runs.checkpoint import CheckpointStore

pytestmark = pytest.mark.usefixtures("scripts")  # in an empty folder


@pytest.mark.full
def test_a_stopped_run_continues_with_its_replay_bit_for_bit(scripts, spo_reference):
    run = scripts.cwd / "stopped"
    with scripts.start("train_spo", *flags(**SPO_BASE, run_name="stopped")) as process:
        wait_until(lambda: last_update(run) >= 5, process)
        process.send_signal(signal.SIGINT)
        out, _ = finish(process)
    assert process.returncode == 130
    assert out.splitlines()[-1].endswith("scripts/train_spo.py --resume stopped")
    assert 5 <= last_update(run) < SPO_BASE["num_updates"]
    out, err = scripts.run("train_spo", "--resume", "stopped")
    assert (err, "holds no replay" in out) == ("", False)
    assert bool(state_of(run).replay.is_full)
    assert_same_run(spo_reference, run)


def test_a_killed_run_continues_with_its_replay_bit_for_bit(scripts, spo_reference):
    run, argv = scripts.cwd / "killed", flags(**SPO_BASE, run_name="killed")
    for after in (2, 6):
        with scripts.start("train_spo", *argv) as process:
            wait_until(lambda after=after: last_update(run) >= after, process)
            process.kill()
            finish(process)
        argv = ["--resume", "killed"]
    scripts.run("train_spo", *argv)
    assert_same_run(spo_reference, run)


@pytest.mark.full
def test_without_its_replay_a_run_continues_and_says_so(scripts, spo_reference):
    """Cut back to update 6, in a new process: nothing is learned until a sequence is there again."""
    leaves = SPO_BASE | {"save_replay": "false", "keep_last_n": 100}
    scripts.run("train_spo", *flags(**leaves, run_name="light"))
    assert_same_bits(saved.load_run("light", "best").params, saved.load_run(str(spo_reference), "best").params)
    out, err = scripts.run("train_spo", "--resume", cut_back("light", 6))
    assert err == ""
    assert (
        "note: the checkpoint holds no replay: it is filled again, and the run differs from an uninterrupted one" in out
    )
    learned = [row["trainer/gradient_steps_sum"] for row in rows_of("light", "TRAINER")]
    assert learned == [0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert CheckpointStore(scripts.cwd / "light/checkpoints").updates()[-1] == 12
