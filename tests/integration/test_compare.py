"""Runs trained by the scripts, compared by the script, and what they leave in marl_eval.json."""

import json
from pathlib import Path

import pytest
from support.scripted_runs import BASE, MAZE, SPO_BASE, Scripts, flags, rows_of

SPO = SPO_BASE | {"num_updates": 6}
PPO = BASE | MAZE | {"num_updates": 6, "gamma": 0.9}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, compile_cache):
    """Two seeds of PPO in two runs, and one of SPO. Only read them."""
    folder = tmp_path_factory.mktemp("compared")
    scripts = Scripts(folder, compile_cache)
    for seed in (0, 1):
        scripts.run("train_ppo", *flags(**PPO, seed=seed, run_name=f"ppo-{seed}"))
    scripts.run("train_spo", *flags(**SPO, run_name="spo"))
    return folder


def scores_of(run):
    """Of the policy, with its search if it has one."""
    key = "evaluator/mean_return"
    return [row[key] for row in rows_of(run, "EVALUATOR") if key in row]


def test_runs_of_two_algorithms_are_compared_and_leave_their_evaluations_in_the_schema_of_marl_eval(scripts, runs):
    """By their last scores. Tables, intervals and schema by hand: tests/runtime/{reports,results,telemetry}."""
    out, err = scripts.run("compare", runs / "ppo-0", runs / "ppo-1", runs / "spo", "--json", "c.json", "--out", "c")
    assert err == ""
    (contest,) = json.loads(Path("c.json").read_text())["contests"]
    assert [(entry["name"], entry["n"]) for entry in contest["experiments"]] == [("PPO", 2), ("SPO", 1)]
    steps = contest["steps"]["standing"]
    assert steps["budgets"] == [6 * 8 * 4]
    ends = [scores_of(runs / name)[-1] for name in ("ppo-0", "ppo-1", "spo")]
    assert [row["scores"] for row in steps["rows"]] == [[ends[:2]], [ends[2:]]]
    for figure in ("profiles_steps", "improvement_steps", "efficiency_steps"):
        assert f"figure c/{figure}.png" in out
        assert Path(f"c/{figure}.png").read_bytes().startswith(b"\x89PNG")
    for name, algorithm in (("ppo-0", "PPO"), ("spo", "SPO")):
        run = json.loads((runs / name / "marl_eval.json").read_text())["Jumanji"]["Maze-v0"][algorithm]["seed_0"]
        assert [*run] == ["step_0", "step_1", "step_2", "absolute_metrics"]
        assert [run[f"step_{n}"]["mean_episode_return"] for n in range(3)] == [[one] for one in scores_of(runs / name)]
