"""However a sweep is stopped, the same command goes on, in a new process, to the trials of one never stopped."""

import json
import signal

import pytest
from support.marks import full
from support.scripted_runs import KEPT_HOWEVER_FAST, Scripts, assert_same_run, finish, last_update, stopped, wait_until

pytest.importorskip("optuna", reason="needs the 'sweep' extra")

#: Every leaf that is searched is data of the program. A trial is long enough to be stopped in the middle.
RUN = """
environment: {task_id: probe/action_observation_reward, num_envs: 8}
training_core: {rollout_length: 4, num_minibatches: 2, epochs: 1, num_updates: 40}
architecture: {hidden_dim: 8}
evaluation: {num_eval_envs: 8, num_eval_episodes: 8, eval_interval: 4}
checkpointing: {save_interval: 3, keep_last_n: 2}
logging: {log_interval: 1}
"""
SWEEP = """
config: run.yaml
num_trials: 3
num_seeds: 2
pruner_startup_trials: 1
space:
  actor_lr: {low: 1e-5, high: 1e-1, log: true}
  gamma: {choices: [0.9, 1.0]}
"""


def without_signs(err):
    """Standard error without the progress of long trials that a slow machine prints."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith("trial "))


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory):
    """The folder of the sweep that was never stopped, with a compile cache of its own. Only read it."""
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "run.yaml").write_text(RUN)
    (folder / "tiny.yaml").write_text(SWEEP)
    _, err = Scripts(folder, folder / "cache", (KEPT_HOWEVER_FAST,)).run("sweep", "tiny.yaml")
    assert without_signs(err) == ""
    return folder / "runs" / "tiny"


@pytest.fixture
def sweep(scripts):
    """The folder that a sweep in the working folder will have."""
    (scripts.cwd / "run.yaml").write_text(RUN)
    (scripts.cwd / "tiny.yaml").write_text(SWEEP)
    return scripts.cwd / "runs" / "tiny"


def trials_of(folder):
    """The trials of the table, without values that depend on the clock."""
    content = json.loads((folder / "trials.json").read_text())
    timed = ("seconds", "compile_seconds")
    return content["best"], [{name: value for name, value in t.items() if name not in timed} for t in content["trials"]]


def assert_same_sweep(one, other):
    """The same trials, parameters, values and states, and their runs bit for bit."""
    assert trials_of(one) == trials_of(other)
    for run in sorted(one.glob("trial-*/")):
        assert_same_run(run, other / run.name)


def _stop(scripts, run, number):
    """Starts the sweep, and sends the signal in the middle of that trial; gives (code, output, errors)."""
    with scripts.start("sweep", "tiny.yaml") as process:
        wait_until(lambda: last_update(run) >= 5, process)
        process.send_signal(number)
        out, err = finish(process)
    return process.returncode, out, err


def test_one_program_serves_all_trials(unbroken):
    content = json.loads((unbroken / "trials.json").read_text())["trials"]
    assert [trial["state"] in ("complete", "pruned") for trial in content] == [True] * 3
    assert len({trial["parameters"]["actor_lr"] for trial in content}) == 3
    chunks = [path.name for path in (unbroken.parents[1] / "cache").rglob("*-cache") if "chunk" in path.name]
    assert len(chunks) == 1


def test_a_killed_sweep_goes_on_to_the_same_trials(scripts, sweep, unbroken):
    code, _, _ = _stop(scripts, sweep / "trial-0001", signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert [trial["number"] for trial in json.loads((sweep / "trials.json").read_text())["trials"]] == [0]
    assert last_update(sweep / "trial-0001") < 40
    out, err = scripts.run("sweep", "tiny.yaml")
    assert without_signs(err) == ""
    assert "study runs/tiny, 1 of its trials are done" in out
    assert "resumed after update" in (sweep / "trial-0001.log").read_text()
    assert_same_sweep(unbroken, sweep)


@pytest.mark.parametrize("number", [full(signal.SIGINT), full(signal.SIGTERM)])
def test_a_stopped_sweep_says_how_to_go_on(scripts, sweep, unbroken, number):
    code, out, err = _stop(scripts, sweep / "trial-0000", number)
    assert code == 130
    assert without_signs(err).count("\n") == (number == signal.SIGINT)
    assert out.splitlines()[-2] == "interrupted, saved: 0 of 3 trials are done"
    assert out.splitlines()[-1].endswith("scripts/sweep.py tiny.yaml")
    scripts.run("sweep", "tiny.yaml")
    assert_same_sweep(unbroken, sweep)


@pytest.mark.full
def test_a_second_sweep_of_a_study_is_refused(scripts, sweep):
    with scripts.start("sweep", "tiny.yaml") as first:
        wait_until(lambda: last_update(sweep / "trial-0000") >= 1, first)
        with stopped(first):  # so that it is there as long as the second needs
            out, err = scripts.run("sweep", "tiny.yaml", code=1)
            first.kill()
        finish(first)
    assert out == ""
    assert err.splitlines() == [
        "error: another process is writing runs/tiny",
        "hint: wait for it to end, or start another study with --study NAME",
    ]
