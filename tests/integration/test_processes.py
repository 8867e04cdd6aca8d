"""Two processes on one machine train one run: as one process does, through stops, resumptions and refusals."""

import contextlib
import json
import re
import shutil
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from support.marks import full
from support.scripted_runs import (
    BASE,
    SPO_BASE,
    assert_close,
    finish,
    flags,
    last_update,
    rows_of,
    state_of,
    stopped,
    wait_until,
)

from stoix_like.runtime.runs import saved as saved_run

ENDED_BY_THE_LEAD = ["error: process 0 ended the run", "hint: see the error message of that process"]


def _free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextlib.contextmanager
def started(scripts, script, *argv, count=2, own=(), each=()):
    """The processes of one run; `own[i]` are the words of process i alone, and `each[i]` starts it."""
    address = _free_address()
    processes = []
    for index in range(count):
        process_flags = flags(coordinator_address=address, num_processes=count, process_id=index, device_type="cpu")
        starting = each[index] if each else scripts
        processes.append(starting.start(script, *argv, *process_flags, *(own[index] if own else ())))
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def together(scripts, script, *argv, codes=(0, 0), **options):
    """[(standard output, standard error)] of processes that must end with these codes."""
    with started(scripts, script, *argv, count=len(codes), **options) as processes:
        outputs = [finish(process) for process in processes]
    assert tuple(process.returncode for process in processes) == codes, outputs
    return outputs


def losses(run):
    return np.array([row["trainer/policy_loss"] for row in rows_of(run, "TRAINER")])


def test_two_processes_train_what_one_trains(scripts, reference):
    (out, _), (other_out, other_error) = together(scripts, "train_ppo", *flags(**BASE, run_name="two"))
    assert_close(state_of(reference), state_of("two"))
    np.testing.assert_allclose(losses("two"), losses(reference), rtol=1e-3, atol=1e-6)
    evaluated = [row["evaluator/mean_return"] for row in rows_of("two", "EVALUATOR")]
    assert evaluated == [row["evaluator/mean_return"] for row in rows_of(reference, "EVALUATOR")]
    assert json.loads(Path("two/versions.json").read_text())["devices"] == "2 x cpu"
    assert "2 x cpu" in out
    assert "update" not in other_out + other_error  # only process 0 reports


@pytest.mark.full
def test_two_processes_search_and_replay_as_one(scripts, uninterrupted):
    together(scripts, "train_spo", *flags(**SPO_BASE, run_name="two"))
    np.testing.assert_allclose(losses("two"), losses(uninterrupted("spo")), rtol=1e-3, atol=1e-5)
    assert_close(state_of(uninterrupted("spo")), state_of("two"))


@pytest.mark.full
def test_a_run_moves_from_two_processes_to_one_and_back(scripts, reference):
    """Rates that stay, since their fall depends on the number of updates that was asked for."""
    leaves = BASE | {"decay_learning_rates": "false"}
    scripts.run("train_ppo", *flags(**leaves, run_name="whole"))
    together(scripts, "train_ppo", *flags(**leaves | {"num_updates": 8}, run_name="moved"))
    saved = Path("moved/config.yaml").read_text()
    assert all(f"{name}: null" in saved for name in ("coordinator_address", "num_processes", "process_id"))
    scripts.run("train_ppo", "--resume", "moved", "--num-updates", "16")
    (out, _), _ = together(scripts, "train_ppo", "--resume", "moved", "--num-updates", "24")
    assert "resumed after update 16" in out
    assert_close(state_of("whole"), state_of("moved"))


@pytest.mark.parametrize("signalled", [full(0), 1])
def test_a_signal_to_either_process_stops_and_saves_the_run(scripts, signalled):
    argv = flags(**BASE | {"num_updates": 100_000, "eval_interval": 0}, run_name="stopped")
    with started(scripts, "train_ppo", *argv) as processes:
        wait_until(lambda: last_update(Path("stopped")) >= 3, processes[0])
        processes[signalled].send_signal(signal.SIGTERM)
        outputs = [finish(process) for process in processes]
    assert [process.returncode for process in processes] == [130, 130], outputs
    assert "--resume" in outputs[0][0]
    update = saved_run.load_run("stopped", "latest").meta.update
    assert update == last_update(Path("stopped"))


@pytest.mark.full
def test_what_the_lead_refuses_ends_all(scripts):
    Path("taken").mkdir()
    (_, error), (_, other) = together(scripts, "train_ppo", *flags(**BASE, run_name="taken"), codes=(2, 1))
    assert "taken exists already" in error
    assert other.splitlines()[-2:] == ENDED_BY_THE_LEAD


@pytest.mark.full
@pytest.mark.parametrize(
    ("leaves", "own", "variables", "what"),
    [
        ({}, (["--seed", "1"], ["--seed", "2"]), (), "the processes of this run differ in their configuration"),
        ({}, (["--profile"], []), (), "the processes of this run differ in their configuration"),
        ({"num_envs": 9, "num_minibatches": 2}, (), (), "9 is not divisible by the 2 devices of the run"),
        ({}, (), (("JAX_NUM_CPU_DEVICES", "2"),), "error: the processes of this run have 1, 2 devices"),
    ],
    ids=["leaves", "options", "environments", "devices"],
)
def test_processes_that_do_not_fit_together_are_refused(scripts, leaves, own, variables, what):
    each = (scripts, scripts._replace(variables=variables))
    outputs = together(scripts, "train_ppo", *flags(**BASE | leaves, run_name="odd"), codes=(2, 2), own=own, each=each)
    assert all(what in error for _, error in outputs)
    assert not Path("odd").exists()


@pytest.mark.full
def test_only_the_lead_needs_the_run_that_is_continued(scripts, reference, tmp_path):
    shutil.copytree(reference, tmp_path / "primary" / "moved")
    (tmp_path / "other").mkdir()
    argv = ["--resume", "moved", "--num-updates", "26"]
    each = [scripts._replace(cwd=tmp_path / name) for name in ("primary", "other")]
    (out, _), _ = together(scripts, "train_ppo", *argv, each=each)
    assert "resumed after update 24" in out
    assert last_update(tmp_path / "primary" / "moved") == 26
    assert list((tmp_path / "other").iterdir()) == []
    (_, error), (_, other) = together(scripts, "train_ppo", "--resume", "nowhere", codes=(4, 1))
    assert "nowhere" in error
    assert "error: process 0 ended the run" in other


LONG = BASE | {"num_updates": 100_000, "eval_interval": 0, "save_interval": 0}


def test_what_the_lead_cannot_write_ends_all_at_once(scripts):
    with started(scripts, "train_ppo", *flags(**LONG | {"save_interval": 5}, run_name="full")) as processes:
        wait_until(lambda: last_update(Path("full")) >= 6, processes[0])
        with stopped(processes[0]):  # so that it never meets a path at which there is nothing
            Path("full/checkpoints").rename("full/gone")
            Path("full/checkpoints").write_text("in the way")
        outputs = [finish(process) for process in processes]
    assert [process.returncode for process in processes] == [1, 1], outputs
    where = re.escape(str(Path("full/checkpoints").absolute()))  # or the best in it, whichever is met first
    assert re.search(rf"error: cannot .*{where}(/best)?: Not a directory$", outputs[0][1], re.MULTILINE), outputs[0][1]
    assert outputs[1][1].splitlines()[-2:] == ENDED_BY_THE_LEAD


@pytest.mark.parametrize("killed", [0, full(1)])
def test_a_process_that_is_killed_is_missed(scripts, killed):
    with started(scripts, "train_ppo", *flags(**LONG, run_name="alone")) as processes:
        wait_until(lambda: last_update(Path("alone")) >= 20, processes[0])  # all programs have met
        processes[killed].kill()
        outputs = [finish(process) for process in processes]
    assert processes[1 - killed].returncode != 0
    if killed == 1:  # without process 0, which hosts the coordinator, JAX ends the others with its own message
        assert "error: another process of this run is gone" in outputs[0][1]


@pytest.mark.full
def test_waiting_for_the_others_can_be_interrupted_and_a_platform_that_is_not_there_is_told(scripts):
    process_flags = flags(coordinator_address=_free_address(), num_processes=2, process_id=0, device_type="cpu")
    with scripts.start("train_ppo", *flags(**BASE, run_name="never"), *process_flags) as process:
        assert process.stderr.readline() == "waiting for the other processes of this run\n"
        process.send_signal(signal.SIGINT)
        _, error = finish(process)
    assert (process.returncode, error) == (130, "interrupted\n")
    assert not Path("never").exists()
    address = _free_address()
    process_flags = flags(coordinator_address=address, num_processes=1, process_id=0, device_type="tpu")
    _, error = scripts.run("train_ppo", *flags(**BASE, run_name="odd"), *process_flags, code=2)
    assert "hardware.device_type: 'tpu' is not available" in error


@pytest.mark.full
@pytest.mark.parametrize("signalled", [full(0), 1])
def test_a_signal_during_an_evaluation_stops_all(scripts, signalled):
    """Of 40,000 rounds of one step; the run continued without a group makes up for it."""
    argv = flags(**BASE | {"num_eval_episodes": 320_000, "num_updates": 4}, run_name="watched")
    with started(scripts, "train_ppo", *argv) as processes:
        wait_until(lambda: last_update(Path("watched")) == 2, processes[0])
        time.sleep(1.0)
        processes[signalled].send_signal(signal.SIGTERM)
        outputs = [finish(process) for process in processes]
    assert [process.returncode for process in processes] == [130, 130], outputs
    meta = saved_run.load_run("watched", "latest").meta
    assert (meta.update, meta.host["evaluated_at"]) == (2, 0)
    assert rows_of("watched", "EVALUATOR") == []
