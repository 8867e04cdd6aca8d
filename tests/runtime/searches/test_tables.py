"""Rows, notes and figures of compared searches by hand, from results that nobody played."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from stoix_like.runtime.searches import compare as compare_search
from stoix_like.runtime.searches import methods as compare_methods
from stoix_like.runtime.searches import tables
from stoix_like.runtime.searches.methods import Episodes, MethodResult


def _played(method, returns, *, budget=0, model_steps=0, solved=None):
    returns = np.asarray(returns, np.float32)
    lengths = np.full(returns.shape, 4)
    episodes = Episodes(returns, lengths, None if solved is None else np.array(solved))
    return MethodResult(method, budget, budget, 8, 1.5, episodes, np.full(returns.shape, model_steps))


def test_gains_are_paired_by_level_and_rows_that_took_more_than_their_budget_named():
    rng = np.random.default_rng(0)
    levels = rng.normal(0.5, 1.0, 32)  # far wider than what is gained
    first, second = _played("greedy", levels), _played("smc", levels + rng.normal(0.02, 0.01, 32), budget=16)
    gain = tables.method_row(second, first)["gain"]
    differences = np.asarray(second.episodes.returns, np.float64) - np.asarray(first.episodes.returns, np.float64)
    half = stats.t.ppf(0.975, 31) * np.std(differences, ddof=1) / np.sqrt(32)
    expected = {"mean": differences.mean(), "low": differences.mean() - half, "high": differences.mean() + half}
    assert gain == pytest.approx(expected, rel=1e-9)
    assert tables.method_row(first, first)["gain"] is None
    # A single particle walks to the end of the episode, whatever the budget; policies that think nothing have none.
    columns = ("method", "budget", "particles", "model_steps_per_decision")
    steps = [("greedy", 0, 0, 0.0), ("best_of", 16, 16, 16.0), ("plan", 16, 1, 41.26), ("plan", 64, 1, 41.3)]
    rows = [dict(zip(columns, row, strict=True), num_envs=8) for row in steps]
    same = "plan at 16, 64 is the same search, of 1 particle(s)"
    assert tables.notes(rows, None) == [same, "plan at 16 took 41.3 model steps per decision"]


def test_searches_are_compared_with_the_best_of_whole_episodes_at_their_budget():
    greedy, solved = _played("greedy", [0.0, 0.0, 0.0], solved=[0.0, 0.0, 0.0]), [0.0, 1.0, 0.0]
    best = [_played("best_of", [0.5, 1.0, 0.5], budget=budget, solved=solved) for budget in (4, 16)]
    plan = _played("plan", [0.75, 1.0, 0.5], budget=16, solved=[0.0, 1.0, 0.0])
    played = [greedy, *best, plan]
    beside = [compare_methods.best_of_beside(one, played) for one in played]
    assert beside[:3] == [None] * 3
    assert beside[3] is best[1]
    assert compare_methods.best_of_beside(plan._replace(budget=64), played) is None
    rows = [tables.method_row(one, greedy, other) for one, other in zip(played, beside, strict=True)]
    half = 4.30265 * math.sqrt(1 / 48) / math.sqrt(3)  # of 0.25, 0, 0: two degrees of freedom
    expected = {"mean": 1 / 12, "low": 1 / 12 - half, "high": 1 / 12 + half}
    assert rows[3]["gain_over_best_of"] == pytest.approx(expected, rel=1e-5)
    assert [row["gain_over_best_of"] for row in rows[:3]] == [None] * 3
    assert tables.gains_over_best_of(rows) == [f"plan at 16: +0.0833 ± {half:.4f} over best_of, paired"]
    mean = tables.mean_row([rows[3], rows[3] | {"gain_over_best_of": {"mean": 1 / 12, "low": 0.0, "high": 0.0}}])
    assert mean["gain_over_best_of"] == pytest.approx(dict.fromkeys(("mean", "low", "high"), 1 / 12))
    assert tables.unsolved_notes(played) == ["2 of 3 levels were solved by no method"]
    assert tables.unsolved_notes([_played("greedy", [1.0])]) == []


def test_a_line_by_hand_and_one_level_without_interval():
    searched = _played("smc", [1.0, 2.0], budget=1024, model_steps=50, solved=[0.0, 1.0])
    row = tables.method_row(searched, _played("greedy", [0.5, 1.5]))
    words = tables.row_text(row).split()
    half = 12.7062 * math.sqrt(0.5) / math.sqrt(2)  # one degree of freedom
    interval = f"[{1.5 - half:.4f}, {1.5 + half:.4f}]"
    assert words == f"smc 1,024 1,024 1.5000 {interval} 0.5000 +0.5000 ± 0.0000 12.5 1.5".split()
    row = tables.method_row(_played("smc", [0.75], budget=16, model_steps=30), _played("greedy", [0.5]))
    gain = {"mean": 0.25, "low": None, "high": None}
    assert (row["mean"], row["low"], row["high"], row["gain"]) == (0.75, None, None, gain)
    assert tables.row_text(row).split()[:7] == ["smc", "16", "16", "0.7500", "–", "–", "+0.2500"]
    line = tables.make_panel("one", [row]).lines[0]
    assert np.isnan([*line.low, *line.high]).all()


def test_the_mean_over_runs_by_hand():
    runs = []
    for mean, gain, steps in ((0.25, 0.5, 40), (0.5, 0.25, 48), (0.75, 0.0, 56)):
        first = _played("greedy", [mean] * 3)
        second = _played("smc", [mean + gain] * 3, budget=16, model_steps=steps, solved=[0.0, mean > 0.3, 1.0])
        runs.append([tables.method_row(played, first) for played in (first, second)])
    greedy, smc = map(tables.mean_row, zip(*runs, strict=True))
    half = 4.30265 * 0.25 / math.sqrt(3)  # two degrees of freedom
    assert greedy["mean"] == 0.5
    assert (greedy["low"], greedy["high"]) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-5)
    assert greedy["gain"] is None
    assert (smc["mean"], smc["low"], smc["high"]) == (0.75, 0.75, 0.75)
    assert smc["gain"] == pytest.approx({"mean": 0.25, "low": 0.25 - half, "high": 0.25 + half}, rel=1e-5)
    assert (smc["model_steps_per_decision"], smc["budget"]) == (12.0, 16)
    assert greedy["solve_rate"] is None
    assert smc["solve_rate"] == pytest.approx((1 / 3 + 2 / 3 + 2 / 3) / 3)


def test_a_figure_has_a_panel_for_what_is_averaged_and_one_for_what_is_alone_or_no_line(tmp_path, monkeypatch):
    rows = [tables.method_row(_played("greedy", [0.5]), _played("greedy", [0.5]))]
    result = {"runs": [{"run": "a", "seed": 0, "levels": "maze-1", "rows": rows}], "over_runs": []}
    assert compare_search.plot_comparison(result, tmp_path / "x.svg").stat().st_size > 1000
    drawn = []
    monkeypatch.setattr(compare_search, "plot_panels", lambda panels, out, *labels: drawn.extend(panels))
    facts = {"algorithm": "ppo", "levels": "maze-8", "rows": []}
    runs = [{"run": f"runs/{name}", "seed": 0} | facts for name in "abc"]
    over_runs = [{"members": ["runs/a seed 0", "runs/c seed 0"]} | facts]
    compare_search.plot_comparison({"runs": runs, "over_runs": over_runs}, Path("x.png"))
    assert [panel.title for panel in drawn] == ["PPO on maze-8, 2 runs", "b seed 0 on maze-8"]
