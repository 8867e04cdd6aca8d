"""Runs trained by the scripts, compared by the script, and what they leave in marl_eval.json."""

import json
from pathlib import Path

import pytest
from PIL import Image
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


def test_runs_of_two_algorithms_are_compared(scripts, runs):
    out, err = scripts.run("compare", runs / "ppo-0", runs / "ppo-1", runs / "spo", "--json", "c.json", "--out", "c")
    assert err == ""
    content = json.loads(Path("c.json").read_text())
    (contest,) = content["contests"]
    assert contest["metric"] == "evaluator/mean_return"
    assert [(entry["name"], entry["n"]) for entry in contest["experiments"]] == [("PPO", 2), ("SPO", 1)]
    steps, seconds = (contest[axis]["standing"] for axis in ("steps", "seconds"))
    assert steps["budgets"] == [6 * 8 * 4]
    ends = [scores_of(runs / name)[-1] for name in ("ppo-0", "ppo-1", "spo")]
    assert [row["scores"] for row in steps["rows"]] == [[ends[:2]], [ends[2:]]]
    (pair,) = steps["improvement"]
    assert pair["point"] == sum((x > ends[2]) + 0.5 * (x == ends[2]) for x in ends[:2]) / 2
    assert (pair["low"], pair["high"]) == (None, None)
    assert "SPO: one seed" in out
    assert "PPO (2)" in out
    assert contest["steps"]["efficiency"]["moments"] == [64.0, 128.0, 192.0]
    if seconds is not None:  # the slower one's first evaluation may come after the faster one's end
        assert all(0.0 <= score <= 1.0 for row in seconds["rows"] for score in row["scores"][0])
    for figure in ("profiles_steps", "improvement_steps", "efficiency_steps"):
        with Image.open(f"c/{figure}.png") as image:
            assert image.size[0] > 300
        assert f"figure c/{figure}.png" in out


def test_every_run_has_its_evaluations_in_the_schema_of_marl_eval(runs):
    for name, algorithm in (("ppo-0", "PPO"), ("spo", "SPO")):
        content = json.loads((runs / name / "marl_eval.json").read_text())
        run = content["Jumanji"]["Maze-v0"][algorithm]["seed_0"]
        *steps, absolute = run
        assert [*steps, absolute] == ["step_0", "step_1", "step_2", "absolute_metrics"]
        assert [run[step]["step_count"] for step in steps] == [64, 128, 192]
        seconds = [run[step]["elapsed_time"] for step in steps]
        assert 0.0 < seconds[0] < seconds[1] < seconds[2]
        scores = scores_of(runs / name)
        assert [run[step]["mean_episode_return"] for step in steps] == [[score] for score in scores]
        assert run[absolute]["mean_episode_return"] == [max(scores)]
        assert set(run[absolute]) == {"mean_episode_return", "mean_episode_length", "solve_rate"}
