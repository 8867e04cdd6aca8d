"""Standings by hand, what the tables, the JSON and the figures say of them, and the script that makes them."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.hand_made import write_run
from support.paths import load_script

from stoix_like.commands.entry import exit_code
from stoix_like.commands.runs import compare as compare_runs
from stoix_like.evaluation import statistics
from stoix_like.runtime.figures import comparison as comparison_figures
from stoix_like.runtime.reports import comparison as comparison_tables
from stoix_like.runtime.results.groups import AXES, comparison_groups
from stoix_like.runtime.results.series import read_run
from stoix_like.runtime.results.statistics import compare

SCORES = {"PPO": [0.2, 0.4, 0.6], "SPO": [0.4, 0.5, 0.8, 0.9, 1.0]}


def _folders(folder, scores=None, **options):
    """A run per algorithm whose seeds end with these scores, having begun at half of them."""
    paths = []
    for algorithm, ends in (scores or SCORES).items():
        score = lambda seed, update, ends=ends: ends[seed] * (0.5 if update == 10 else 1.0)
        paths.append(write_run(folder / algorithm, score, seeds=range(len(ends)), algorithm=algorithm, **options))
    return paths


def _comparison(paths, metric="mean_return", scales=None):
    found = comparison_groups([read_run(path) for path in paths], metric, scales)
    return compare(metric, found.groups, found.notes)


def _over_two_tasks(folder, scales=None):
    paths = _folders(folder / "maze") + _folders(folder / "snake", {"PPO": [3.0, 5.0], "SPO": [4.0]}, task="Snake-v1")
    return _comparison(paths, scales=scales)


def test_the_standing_on_one_task_by_hand(tmp_path):
    comparison = _comparison(_folders(tmp_path))
    (result,) = comparison.results
    for axis, budget in (("steps", 4000.0), ("seconds", 4.0)):
        aggregate = result.aggregates[axis]
        assert aggregate.budgets == [budget]
        ppo, spo = aggregate.rows
        assert (ppo.num_runs, spo.num_runs) == ((3,), (5,))
        np.testing.assert_allclose([ppo.iqm.point, ppo.median.point], 0.4, rtol=1e-12)
        np.testing.assert_allclose(spo.iqm.point, (0.5 + 0.8 + 0.9) / 3, rtol=1e-12)  # one cut at each end
        np.testing.assert_allclose([spo.mean.point, spo.median.point], [0.72, 0.8], rtol=1e-12)
        np.testing.assert_allclose(spo.iqm, statistics.bootstrap_interval(SCORES["SPO"]), rtol=1e-12)
        (pair,) = aggregate.pairs
        # 0.2: below all. 0.4: one tie. 0.6: above 0.4 and 0.5. Together 2.5 of 15.
        assert (pair.first, pair.second, pair.probability.point) == ("PPO", "SPO", pytest.approx(2.5 / 15))
        assert ppo.optimality_gap is None  # a return has no best value that is known
    assert comparison.over_tasks == {"steps": None, "seconds": None}


def test_a_profile_begins_where_all_are_above_and_ends_where_none_is_and_shares_have_a_gap(tmp_path):
    aggregate = _comparison(_folders(tmp_path)).results[0].aggregates["steps"]
    for name, ends in SCORES.items():
        share = aggregate.profiles[name].point
        expected = [np.mean(np.array(ends) > threshold) for threshold in aggregate.thresholds]
        np.testing.assert_allclose(share, expected, atol=1e-12)
    assert [aggregate.profiles["PPO"].point[0], aggregate.profiles["SPO"].point[-1]] == [1.0, 0.0]
    comparison = _comparison(_folders(tmp_path / "shares", metrics=("evaluator/solve_rate",)), "solve_rate")
    aggregate = comparison.results[0].aggregates["steps"]
    np.testing.assert_allclose([row.optimality_gap.point for row in aggregate.rows], [0.6, 0.28], rtol=1e-12)
    assert [aggregate.thresholds[0], aggregate.thresholds[-1]] == [0.0, 1.0]


def test_efficiency_on_common_budgets_by_hand(tmp_path):
    paths = _folders(tmp_path / "a", {"PPO": [0.4]}, updates=(10, 20, 40))
    paths += _folders(tmp_path / "b", {"SPO": [0.8, 0.8]}, updates=(10, 30))
    efficiency = _comparison(paths).results[0].efficiency["steps"]
    np.testing.assert_array_equal(efficiency.moments, [1000.0, 2000.0, 3000.0])
    np.testing.assert_allclose(efficiency.curves["PPO"].point, [0.2, 0.4, 0.4])
    np.testing.assert_allclose(efficiency.curves["SPO"].point, [0.4, 0.6, 0.8])
    assert efficiency.seeds["SPO"].shape == (2, 3)


def test_over_tasks_only_scores_on_a_common_scale_of_experiments_on_every_task_are_aggregated(tmp_path):
    comparison = _over_two_tasks(tmp_path)
    aggregate = comparison.over_tasks["steps"]
    assert (aggregate.rows, aggregate.profiles) == ([], {})
    assert any("not aggregated over tasks: Maze-v0, Snake-v1" in note for note in comparison.notes)
    (pair,) = aggregate.pairs  # who is above needs no scale: 2.5 of 15, and 1 of 2
    assert pair.probability.point == pytest.approx((2.5 / 15 + 0.5) / 2)
    assert np.isnan(pair.probability.low)  # a single seed on one task
    comparison = _over_two_tasks(tmp_path / "scaled", {"Maze-v0": (0.0, 1.0), "Snake-v1": (0.0, 10.0)})
    ppo, spo = comparison.over_tasks["steps"].rows
    assert (ppo.num_runs, spo.num_runs) == ((3, 2), (5, 1))
    np.testing.assert_allclose(ppo.mean.point, (0.4 + 0.4) / 2, rtol=1e-12)
    np.testing.assert_allclose(ppo.iqm.point, (0.3 + 0.4 + 0.5) / 3, rtol=1e-12)  # 0.2 0.3 0.4 0.5 0.6, less one each
    np.testing.assert_allclose(spo.optimality_gap.point, (0.28 + 0.6) / 2, rtol=1e-12)
    assert "PPO: a task with more runs weighs more in the IQM over tasks" in comparison.notes
    paths = [tmp_path / "maze" / "PPO", tmp_path / "maze" / "SPO"]
    paths += _folders(tmp_path / "other", {"SPO": [4.0, 5.0]}, task="Snake-v1")
    comparison = _comparison(paths)
    assert "PPO is left out over tasks: not every task has runs of that name" in comparison.notes
    assert comparison.over_tasks["steps"].pairs == []


def test_few_seeds_are_warned_of(tmp_path):
    notes = _comparison(_folders(tmp_path, {"A": [0.1], "B": [0.1, 0.2], "C": [0.1, 0.2, 0.3], "D": [0.1] * 4})).notes
    assert "Maze-v0: A: one seed, so no interval: nothing can be concluded" in notes
    assert any("B (2), C (3): an interval over 2 or 3 seeds says little" in note for note in notes)
    assert not any("D" in note.removeprefix("Maze-v0") for note in notes)


def test_the_text_says_everything_with_its_n(tmp_path):
    lines = comparison_tables.text(_comparison(_folders(tmp_path))).splitlines()
    assert lines[0] == "Maze-v0 · evaluator/mean_return · at 4,000 environment steps of each seed"
    assert lines[1].split() == ["experiment", "n", "IQM", "95", "%", "interval", "mean", "median", "seeds"]
    few = ["0.2", "0.4", "0.6"]  # with fewer than five seeds each score is listed
    assert lines[2].split() == ["PPO", "3", "0.4", "[0.2,", "0.6]", "0.4", "0.4", *few]
    assert lines[3].split()[:3] == ["SPO", "5", "0.7333"]
    assert len(lines[3].split()) == 7  # five seeds stand in the interval
    assert lines[4].startswith("P(PPO > SPO)  0.1667  [")
    assert "Maze-v0 · evaluator/mean_return · at 4.0 s of wall-clock" in lines
    assert sum(line.startswith("note: ") for line in lines) == 2  # of few seeds, and of how many share a clock
    text = comparison_tables.text(_over_two_tasks(tmp_path, {"Maze-v0": (0.0, 1.0), "Snake-v1": (0.0, 10.0)}))
    assert "over 2 tasks (Maze-v0, Snake-v1) · at the largest common steps of each" in text
    (block,) = [block for block in text.split("\n\n") if block.startswith("over 2 tasks") and "steps" in block]
    assert block.splitlines()[2].split()[:2] == ["PPO", "3+2"]
    assert "0 as 0 and 10 as 1" in text


def test_the_document_is_strict_json_and_holds_what_was_found(tmp_path):
    comparison = _over_two_tasks(tmp_path)
    content = json.loads(json.dumps(comparison_tables.json_values(comparison), allow_nan=False))
    maze, snake = content["contests"]
    assert [entry["n"] for entry in maze["experiments"]] == [3, 5]
    assert maze["experiments"][0]["seeds"][2].endswith("PPO, seed 2")
    aggregate = maze["steps"]["standing"]
    assert aggregate["rows"][0]["scores"] == [pytest.approx(SCORES["PPO"])]
    assert aggregate["improvement"][0]["point"] == pytest.approx(2.5 / 15)
    assert len(aggregate["profiles"]["thresholds"]) == len(aggregate["profiles"]["experiments"]["PPO"]["low"])
    assert snake["seconds"]["standing"]["rows"][1]["iqm"] == {"point": 4.0, "low": None, "high": None}
    assert maze["seconds"]["efficiency"]["moments"] == [1.0, 2.0, 4.0]
    assert content["over_tasks"]["steps"]["rows"] == []
    assert content["notes"] == list(comparison.notes)


def _figures(comparison, axis="steps"):
    drawn = ("profiles_figure", "improvement_figure", "efficiency_figure")
    return [getattr(comparison_figures, name)(comparison, axis) for name in drawn]


@pytest.mark.parametrize("axis", AXES)
def test_every_legend_has_n(tmp_path, axis):
    profiles, improvement, efficiency = _figures(_comparison(_folders(tmp_path)), axis)
    for figure in (profiles, efficiency):
        (panel,) = figure.axes
        assert [text.get_text() for text in panel.get_legend().get_texts()] == ["PPO (n=3)", "SPO (n=5)"]
    (panel,) = improvement.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["PPO (n=3)\n> SPO (n=5)"]
    assert panel.get_xlim() == (-0.02, 1.02)


def test_experiments_differ_without_colour(tmp_path):
    """By dashes and by marker, so that grey is enough; and an experiment looks the same in every figure."""
    comparison = _comparison(_folders(tmp_path, {name: [0.1, 0.2] for name in "ABCDE"}))
    profiles, _, efficiency = _figures(comparison)
    looks = []
    for figure in (profiles, efficiency):
        named = [line for line in figure.axes[0].lines if not line.get_label().startswith("_")]
        looks.append([(line.get_linestyle(), str(line._dash_pattern), line.get_marker()) for line in named])
    assert looks[0] == looks[1]
    assert len(looks[0]) == 5
    for one, other in itertools.combinations(looks[0], 2):
        assert one[1] != other[1]
        assert one[2] != other[2]


def test_few_seeds_are_drawn_singly_and_figures_over_tasks_have_a_panel_more(tmp_path):
    comparison = _comparison(_folders(tmp_path, {"A": [0.1], "B": [0.1, 0.2, 0.3], "C": [0.1] * 5}))
    _, _, efficiency = _figures(comparison)
    assert len(efficiency.axes[0].lines) == 3 + 3  # an IQM each, and the seeds of B
    assert len(efficiency.axes[0].collections) == 2  # a single seed has no band
    profiles, improvement, efficiency = _figures(_over_two_tasks(tmp_path))
    titles = lambda figure: [panel.get_title(loc="left") for panel in figure.axes]
    assert titles(efficiency) == ["Maze-v0", "Snake-v1"]
    assert titles(profiles) == ["Maze-v0, at equal steps", "Snake-v1, at equal steps"]  # no common scale
    assert titles(improvement)[-1] == "over 2 tasks, at equal steps"
    labels = [panel.get_yticklabels()[0].get_text() for panel in improvement.axes]
    assert labels == [f"PPO (n={ppo})\n> SPO (n={spo})" for ppo, spo in ((3, 5), (2, 1), ("3+2", "5+1"))]


def test_figures_are_written_where_there_is_something_to_draw(tmp_path):
    """One experiment has no pair, and without a clock there is nothing at equal wall-clock."""
    comparison = _comparison(_folders(tmp_path / "runs", {"PPO": [0.5, 0.7]}, pace=None))
    paths = comparison_figures.save_figures(comparison, tmp_path / "figures")
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert drawn == ["efficiency_steps.png", "profiles_steps.png"]
    for path in paths:
        with Image.open(path) as image:
            assert image.size == (960, 630)
            assert len(image.convert("L").getcolors(100_000)) > 10  # something is drawn, also in grey


def compared(*argv):
    """The exit code of the script."""
    return exit_code(load_script("compare").main, [*map(str, argv)])


def test_the_script_prints_and_writes(inside, capfd):
    paths = _folders(inside / "runs", config={})
    flags = ["--json", "result.json", "--out", "figures", "--normalise", "Maze-v0", "-1", "1"]
    assert compared(paths[0], "SPO", paths[0], *flags) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "Maze-v0 · evaluator/mean_return, -1 as 0 and 1 as 1 · at 4,000 environment steps of each seed" in out
    content = json.loads(Path("result.json").read_text())
    assert content["runs"] == [str(paths[0]), "runs/SPO"]  # the same folder twice counts once
    assert content["contests"][0]["steps"]["standing"]["rows"][0]["scores"][0] == pytest.approx([0.6, 0.7, 0.8])
    assert len(list(Path("figures").iterdir())) == out.count("figure figures/") == 6
    assert compare_runs.parse_scales([["A", "-1e1", "2"], ["B", "0", "1"]]) == {"A": (-10.0, 2.0), "B": (0.0, 1.0)}


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--metric", "mean_retrun"], "unknown metric 'mean_retrun'; did you mean 'mean_return'?"),
        (["--normalise", "Maze-v0", "0", "x"], "--normalise Maze-v0: expected a number, got 'x'"),
        (["--normalise", "Maze-v0", "nan", "1"], "--normalise Maze-v0: expected a number, got 'nan'"),
        (["--normalise", "Maze-v0", "2", "1"], "--normalise Maze-v0: 1 is not above 2"),
        (["--normalise", "Maze-v0", "0", "1"] * 2, "--normalise Maze-v0 is given twice"),
        (["--normalise", "Maze-v1", "0", "1"], "--normalise Maze-v1: no run is of this task; did you mean 'Maze-v0'?"),
        (["--normalise", "Maze-v0", "0"], "argument --normalise: expected 3 arguments"),
        (["--json", "nowhere/x.json"], "argument --json: there is no folder nowhere"),
        (["--out", "nowhere/x"], "argument --out: there is no folder nowhere"),
        (["--out", "runs/PPO/metrics.jsonl"], "argument --out: runs/PPO/metrics.jsonl is no folder"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_what_is_refused(inside, capfd, flags, error):
    _folders(inside / "runs", config={})
    before = sorted(Path().rglob("*"))
    assert compared("PPO", *flags) == 2
    out, err = capfd.readouterr()
    assert [out, err.splitlines()[0]] == ["", f"error: {error}"]
    assert err.splitlines()[1].startswith("hint: ")
    assert sorted(Path().rglob("*")) == before


def test_runs_of_which_none_fits_are_refused_and_where_a_damaged_configuration_stands_else(tmp_path, capfd):
    path = write_run(tmp_path / "a", lambda s, u: 0.5, level_hash=lambda update: str(update > 10), config={})
    assert compared(path) == 1
    assert "nothing can be compared" in capfd.readouterr().err
    assert compared(tmp_path / "b") == 4
    capfd.readouterr()
    path = write_run(tmp_path / "c", lambda s, u: 0.5)
    (path / "config.yaml").write_text("training_core: {seed: [")
    assert compared(path) == 1
    error, hint = capfd.readouterr().err.splitlines()
    assert (error, hint) == (f"error: {path / 'config.yaml'} is not readable YAML", "hint: leave it out")
    meta = path / "checkpoints" / "20" / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text("{}")
    assert compared(path) == 1
    hint = capfd.readouterr().err.splitlines()[1]
    assert f"the value of 'config' in {meta}" in hint
    assert "or leave this run out" in hint
