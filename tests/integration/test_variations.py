"""What must not change the numbers: evaluation, reports, saving, devices, seeds side by side."""

import json
from pathlib import Path

import pytest
from support.asserts import assert_same_bits
from support.marks import full
from support.scripted_runs import BASE, SHARDED, SIZES_OF, assert_close, cut_back, flags, rows_of, state_of

from stoix_like.runtime.runs import saved

pytestmark = pytest.mark.usefixtures("scripts")  # in an empty folder


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        full("ppo", {"eval_interval": 0}),
        full("ppo", {"eval_interval": 1, "num_eval_envs": 4}),
        full("ppo", {"log_interval": 3}),
        full("ppo", {"save_interval": 0}),
        full("ppo", {"save_interval": 7, "log_interval": 24, "eval_interval": 5}),
        full("spo", {"eval_interval": 0}),
        full("spo", {"log_interval": 5}),
        ("spo", {"save_interval": 7, "log_interval": 12}),
        full("spo", {"save_replay": "false"}),
        full("alphazero", {"save_interval": 7, "log_interval": 12, "eval_interval": 5}),
        full("alphazero", {"save_replay": "false"}),
    ],
    ids=str,
)
def test_evaluating_reporting_and_saving_change_no_bit(train_here, uninterrupted, algorithm, changes):
    assert train_here(**SIZES_OF[algorithm] | changes, run_name="varied", algorithm=algorithm) == 0
    one, other = state_of(uninterrupted(algorithm)), state_of("varied")
    if "save_replay" in changes:
        one, other = (state._replace(replay=None) for state in (one, other))
    assert_same_bits(one, other)


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


@pytest.mark.parametrize("algorithm", ["ppo", full("spo"), full("alphazero")])
def test_four_devices_give_what_one_gives(scripts, uninterrupted, algorithm):
    leaves = SIZES_OF[algorithm] | {"run_name": "four", "num_devices": 4, "device_type": "cpu"}
    scripts.run(f"train_{algorithm}", *flags(**leaves))
    reference = uninterrupted(algorithm)
    assert_close(state_of(reference), state_of("four"))
    episodes, other = ([row["actor/episodes"] for row in rows_of(run, "ACTOR")] for run in (reference, "four"))
    assert episodes == other
    assert json.loads(Path("four/versions.json").read_text())["devices"] == "4 x cpu"


@pytest.mark.parametrize(
    ("argv", "distinct"), [(("ppo", 1, 1), 4), full(("ppo", 3, 1), 4), full(("spo", 2, 8), 4), full(("spo", 1, 6), 1)]
)
def test_the_state_lies_on_four_devices_and_stays_there(scripts, argv, distinct):
    """Of SPO the replay, where its shards divide: eight lie two by two, two of a batch of six are on every device."""
    expected = {"devices": [4], "shards": [2], "distinct": distinct, "replicated": True}
    assert json.loads(scripts.python(SHARDED, *argv)) == [expected, expected]


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["ppo", "spo", "alphazero"])
def test_a_run_on_four_devices_continues_on_one(scripts, uninterrupted, algorithm):
    leaves = SIZES_OF[algorithm] | {"keep_last_n": 100, "num_devices": 4, "device_type": "cpu"}
    scripts.run(f"train_{algorithm}", *flags(**leaves, run_name="moved"))
    out, _ = scripts.run(f"train_{algorithm}", "--resume", cut_back("moved", 6), "--num-devices", "1")
    assert "resumed with num_devices = 1 (was 4)" in out
    assert_close(state_of(uninterrupted(algorithm)), state_of("moved"))


@pytest.mark.parametrize(
    ("algorithm", "seeds", "score"),
    [("ppo", [5, 6, 7], "evaluator/mean_return"), full("spo", [5, 6], "evaluator_network/mean_return")],
)
def test_seeds_side_by_side_are_separate_runs(train_here, algorithm, seeds, score):
    leaves = SIZES_OF[algorithm] | {"algorithm": algorithm}
    assert train_here(**leaves, run_name="together", num_seeds=len(seeds), seed=5) == 0
    together = saved.load_run("together", "latest")
    for index, seed in enumerate(seeds):
        assert train_here(**leaves, run_name=f"s{seed}", seed=seed) == 0
        # Batched matrix products round differently; one other action would differ far more.
        alone = saved.load_run(f"s{seed}", "latest").params
        assert_close(alone, together.seed_params(index), rtol=1e-3, atol=1e-4)
    for category, metric, interval in (("ACTOR", "actor/mean_return", 1), ("EVALUATOR", score, 2)):
        rows = [row for row in rows_of("together", category) if metric in row]
        assert [row["seed"] for row in rows] == seeds * (leaves["num_updates"] // interval)
        for seed in seeds:
            own = [row[metric] for row in rows_of(f"s{seed}", category) if metric in row]
            assert own == [row[metric] for row in rows if row["seed"] == seed]


def test_parameters_of_another_run_are_taken_over(train_here, reference):
    leaves = BASE | {"num_updates": 1, "actor_lr": 0, "critic_lr": 0, "seed": 9}
    assert train_here(**leaves, run_name="taken", load_path=reference) == 0
    best = saved.load_run(str(reference), "best")
    taken = saved.load_run("taken", "latest")
    assert_same_bits(best.params, taken.params)
    assert int(taken.state.step) == 1
    assert train_here(**leaves, run_name="older", load_path=reference / "checkpoints" / "23") == 0
    assert_same_bits(saved.load_run(str(reference), "23").params, saved.load_run("older", "latest").params)
