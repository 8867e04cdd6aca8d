"""What must not change the numbers: evaluation, reports, saving, devices, seeds side by side."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.marks import full
from support.scripted_runs import BASE, assert_same_bits, flags, rows_of, words

from stoix_like.runtime.runs import saved

SHARDED = """
import json, sys
import jax

jax.config.update("jax_num_cpu_devices", 4)
import stoix_like as sl
from stoix_like.runtime.training import chunk, start

num_seeds = int(sys.argv[1])

env = sl.make_env("Maze-v0", kwargs={"num_rows": 5, "num_cols": 5})
config = sl.ppo_config(num_envs=8, rollout_length=4, num_minibatches=2, epochs=1, hidden_dim=8, num_seeds=num_seeds)
learner = sl.ppo.make(env, sl.make_network(env, config), config)
state = start.initial_state(learner, config, jax.devices())()
program = chunk.compile_chunk(learner, num_seeds, state)
axis = 0 if num_seeds == 1 else 1


def placement(state):
    playing = jax.tree.leaves((state.rollout.env_state, state.rollout.observation, state.rollout.episodes))
    return {
        "devices": sorted({len(leaf.addressable_shards) for leaf in playing}),
        "environments": sorted({shard.data.shape[axis] for leaf in playing for shard in leaf.addressable_shards}),
        "distinct": min(len({str(shard.index) for shard in leaf.addressable_shards}) for leaf in playing),
        "replicated": all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state.params)),
    }

before = placement(state)
state, _ = program(state, 2)
state, _ = program(state, 1)
print(json.dumps([before, placement(state)]))
"""


@pytest.fixture(autouse=True)
def _here(scripts):
    """In an empty folder."""


def _state(run):
    return saved.load_run(str(run), "latest").state


@pytest.mark.parametrize(
    "changes",
    [
        full({"eval_interval": 0}),
        full({"eval_interval": 1, "num_eval_envs": 4}),
        full({"log_interval": 3}),
        full({"save_interval": 0}),
        {"save_interval": 7, "log_interval": 24, "eval_interval": 5},
    ],
    ids=str,
)
def test_evaluating_reporting_and_saving_change_no_bit(train_here, reference, changes):
    assert train_here(**BASE | changes, run_name="varied") == 0
    assert_same_bits(_state(reference), _state("varied"))


@pytest.mark.full
def test_reports_of_three_updates_tell_what_reports_of_one_tell(train_here, reference):
    assert train_here(**BASE | {"log_interval": 3, "eval_interval": 3, "save_interval": 3}, run_name="varied") == 0
    each, threes = rows_of(reference, "ACTOR"), rows_of("varied", "ACTOR")
    assert [row["update"] for row in threes] == list(range(3, 25, 3))
    for row in threes:
        parts = [r for r in each if row["update"] - 3 < r["update"] <= row["update"]]
        assert row["actor/episodes"] == sum(r["actor/episodes"] for r in parts)
        assert row["actor/max_return"] == max(r["actor/max_return"] for r in parts)
        weighted = sum(r["actor/mean_return"] * r["actor/episodes"] for r in parts) / row["actor/episodes"]
        assert row["actor/mean_return"] == pytest.approx(weighted, rel=1e-5)


def test_four_devices_give_what_one_gives(scripts, reference):
    scripts.run("train_ppo", *flags(**BASE, run_name="four", num_devices=4, device_type="cpu"))
    one, four = words(_state(reference)), words(_state("four"))
    assert one.keys() == four.keys()
    for name, value in one.items():
        # Sums over the minibatch are taken in another order: the last bits of 24 updates differ.
        np.testing.assert_allclose(four[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    episodes, other = ([row["actor/episodes"] for row in rows_of(run, "ACTOR")] for run in (reference, "four"))
    assert episodes == other
    facts = json.loads(Path("four/versions.json").read_text())
    assert facts["devices"] == "4 x cpu"


@pytest.mark.parametrize("num_seeds", [1, full(3)])
def test_the_state_lies_on_four_devices_and_stays_there(scripts, num_seeds):
    expected = {"devices": [4], "environments": [2], "distinct": 4, "replicated": True}
    assert json.loads(scripts.python(SHARDED, num_seeds)) == [expected, expected]


@pytest.mark.full
def test_a_run_on_four_devices_continues_on_one(scripts, train_here, reference):
    leaves = BASE | {"num_updates": 12, "decay_learning_rates": "false"}
    scripts.run("train_ppo", *flags(**leaves, run_name="moved", num_devices=4, device_type="cpu"))
    scripts.run("train_ppo", "--resume", "moved", "--num-updates", "24", "--num-devices", "1")
    assert train_here(**BASE | {"decay_learning_rates": "false"}, run_name="one") == 0
    one, moved = words(_state("one")), words(_state("moved"))
    for name, value in one.items():
        np.testing.assert_allclose(moved[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_seeds_side_by_side_are_separate_runs(train_here):
    assert train_here(**BASE, run_name="together", num_seeds=3, seed=5) == 0
    together = saved.load_run("together", "latest")
    actor, evaluator = rows_of("together", "ACTOR"), rows_of("together", "EVALUATOR")
    assert [row["seed"] for row in actor] == [5, 6, 7] * 24
    assert [row["seed"] for row in evaluator] == [5, 6, 7] * 12
    for index, seed in enumerate((5, 6, 7)):
        assert train_here(**BASE, run_name=f"s{seed}", seed=seed) == 0
        alone = words(saved.load_run(f"s{seed}", "latest").params)
        for name, value in words(together.seed_params(index)).items():
            # Batched matrix products round differently; one other action would differ far more.
            np.testing.assert_allclose(value, alone[name], rtol=1e-3, atol=1e-4, err_msg=name)
        for category, metric in (("ACTOR", "actor/mean_return"), ("EVALUATOR", "evaluator/mean_return")):
            mine = [row[metric] for row in rows_of("together", category) if row["seed"] == seed]
            assert mine == [row[metric] for row in rows_of(f"s{seed}", category)]


def test_parameters_of_another_run_are_taken_over(train_here, reference):
    leaves = BASE | {"num_updates": 1, "actor_lr": 0, "critic_lr": 0, "seed": 9}
    assert train_here(**leaves, run_name="taken", load_path=reference) == 0
    best = saved.load_run(str(reference), "best")
    taken = saved.load_run("taken", "latest")
    assert_same_bits(best.params, taken.params)
    assert int(taken.state.step) == 1
    assert train_here(**leaves, run_name="older", load_path=reference / "checkpoints" / "23") == 0
    assert_same_bits(saved.load_run(str(reference), "23").params, saved.load_run("older", "latest").params)
