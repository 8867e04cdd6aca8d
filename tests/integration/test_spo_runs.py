"""SPO in new processes: resuming with its replay is exact, without it a note is logged, devices change nothing."""

import json
import shutil
import signal

import jax
import numpy as np
import pytest
from support.marks import full
from support.scripted_runs import (
    SPO_BASE,
    Scripts,
    assert_same_bits,
    assert_same_run,
    finish,
    flags,
    last_update,
    rows_of,
    wait_until,
    words,
)

from stoix_like.runtime.runs import saved
from stoix_like.runtime.runs.checkpoint import CheckpointStore

SHARDED = """
import json, sys
import jax

jax.config.update("jax_num_cpu_devices", 4)
import stoix_like as sl
from stoix_like.runtime.training import chunk, start

num_seeds, batch_size = map(int, sys.argv[1:])

env = sl.make_env("Maze-v0", kwargs={"num_rows": 4, "num_cols": 4})
config = sl.spo_config(
    num_envs=8, rollout_length=4, num_minibatches=2, epochs=1, hidden_dim=8, num_layers=1, num_seeds=num_seeds,
    observation_adapter="dense", num_particles=3, search_depth=2, replay_buffer_size=64, sample_sequence_length=3,
    batch_size=batch_size,
)
learner = sl.spo.make(env, sl.make_network(env, config), config)
state = start.initial_state(learner, config, jax.devices())()
program = chunk.compile_chunk(learner, num_seeds, state)
axis = 0 if num_seeds == 1 else 1


def placement(state):
    stored = jax.tree.leaves(state.replay.experience)
    small = jax.tree.leaves((state.params, state.hyper, state.optimizer, state.dual_optimizer, state.replay.is_full))
    return {
        "shards": sorted({shard.data.shape[axis] for leaf in stored for shard in leaf.addressable_shards}),
        "distinct": min(len({str(shard.index) for shard in leaf.addressable_shards}) for leaf in stored),
        "replicated": all(leaf.sharding.is_fully_replicated for leaf in small),
    }

before = placement(state)
state, _ = program(state, 2)
state, _ = program(state, 1)
print(json.dumps([before, placement(state)]))
"""


@pytest.fixture(autouse=True)
def _here(scripts):
    """In an empty folder."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory, compile_cache):
    """The uninterrupted run. Only read it."""
    folder = tmp_path_factory.mktemp("reference")
    Scripts(folder, compile_cache).run("train_spo", *flags(**SPO_BASE, run_name="reference"))
    return folder / "reference"


def state_of(run):
    return saved.load_run(str(run), "latest").state


def assert_close(one, other):
    """Equal but for the order of sums; one other action would differ far more."""
    left, right = words(one), words(other)
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_allclose(right[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.full
def test_a_stopped_run_continues_with_its_replay_bit_for_bit(scripts, reference):
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
    assert_same_run(reference, run)


def test_a_killed_run_continues_with_its_replay_bit_for_bit(scripts, reference):
    run, argv = scripts.cwd / "killed", flags(**SPO_BASE, run_name="killed")
    for after in (2, 6):
        with scripts.start("train_spo", *argv) as process:
            wait_until(lambda after=after: last_update(run) >= after, process)
            process.kill()
            finish(process)
        argv = ["--resume", "killed"]
    scripts.run("train_spo", *argv)
    assert_same_run(reference, run)


@pytest.mark.full
def test_without_its_replay_a_run_continues_and_says_so(scripts, reference):
    """Cut back to update 6, in a new process: nothing is learned until a sequence is there again."""
    leaves = SPO_BASE | {"save_replay": "false", "keep_last_n": 100}
    scripts.run("train_spo", *flags(**leaves, run_name="light"))
    assert_same_bits(saved.load_run("light", "best").params, saved.load_run(str(reference), "best").params)
    for folder in (scripts.cwd / "light/checkpoints").iterdir():
        if folder.name.isdecimal() and int(folder.name) > 6:
            shutil.rmtree(folder)
    out, err = scripts.run("train_spo", "--resume", "light")
    assert err == ""
    assert (
        "note: the checkpoint holds no replay: it is filled again, and the run differs from an uninterrupted one" in out
    )
    learned = [row["trainer/gradient_steps_sum"] for row in rows_of("light", "TRAINER")]
    assert learned == [0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert CheckpointStore(scripts.cwd / "light/checkpoints").updates()[-1] == 12


@pytest.mark.parametrize(
    "changes",
    [
        full({"eval_interval": 0}),
        full({"log_interval": 5}),
        {"save_interval": 7, "log_interval": 12},
        full({"save_replay": "false"}),
    ],
    ids=str,
)
def test_evaluating_reporting_and_saving_change_no_bit(train_here, reference, changes):
    assert train_here(**SPO_BASE | changes, run_name="varied", algorithm="spo") == 0
    one, other = state_of(reference), state_of("varied")
    if "save_replay" in changes:
        one, other = (state._replace(replay=None) for state in (one, other))
    assert_same_bits(one, other)


@pytest.mark.full
def test_four_devices_give_what_one_gives(scripts, reference):
    scripts.run("train_spo", *flags(**SPO_BASE, run_name="four", num_devices=4, device_type="cpu"))
    assert_close(state_of(reference), state_of("four"))
    rows = [rows_of(run, "ACTOR") for run in (reference, "four")]
    assert [row["actor/episodes"] for row in rows[0]] == [row["actor/episodes"] for row in rows[1]]


@pytest.mark.full
def test_a_run_on_four_devices_continues_on_one(scripts, reference):
    run = scripts.cwd / "moved"
    leaves = SPO_BASE | {"keep_last_n": 100}
    scripts.run("train_spo", *flags(**leaves, run_name="moved", num_devices=4, device_type="cpu"))
    for folder in (run / "checkpoints").iterdir():
        if folder.name.isdecimal() and int(folder.name) > 6:
            shutil.rmtree(folder)
    out, _ = scripts.run("train_spo", "--resume", "moved", "--num-devices", "1")
    assert "resumed with num_devices = 1 (was 4)" in out
    assert_close(state_of(reference), state_of(run))


@pytest.mark.parametrize(("num_seeds", "batch_size", "shards", "distinct"), [full(2, 8, 2, 4), full(1, 6, 2, 1)])
def test_the_replay_lies_on_four_devices_where_its_shards_divide(scripts, num_seeds, batch_size, shards, distinct):
    """Eight logical shards lie two by two; two of them, of a batch of six, are on every device."""
    expected = {"shards": [shards], "distinct": distinct, "replicated": True}
    assert json.loads(scripts.python(SHARDED, num_seeds, batch_size)) == [expected, expected]


@pytest.mark.full
def test_seeds_side_by_side_are_separate_runs(train_here):
    assert train_here(**SPO_BASE, run_name="together", num_seeds=2, seed=5, algorithm="spo") == 0
    together = saved.load_run("together", "latest")
    rows = rows_of("together", "EVALUATOR")
    assert [row["seed"] for row in rows if "evaluator_network/mean_return" in row] == [5, 6] * 6
    for index, seed in enumerate((5, 6)):
        assert train_here(**SPO_BASE, run_name=f"s{seed}", seed=seed, algorithm="spo") == 0
        alone = saved.load_run(f"s{seed}", "latest")
        # Batched matrix products round differently; one other action would differ far more.
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
            words(together.seed_params(index)),
            words(alone.params),
        )
        for category, metric in (("ACTOR", "actor/mean_return"), ("EVALUATOR", "evaluator_network/mean_return")):
            mine = [row.get(metric) for row in rows_of("together", category) if row["seed"] == seed]
            assert mine == [row.get(metric) for row in rows_of(f"s{seed}", category)]
