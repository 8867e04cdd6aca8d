"""Reports of pipelines, from records that were written by hand."""

import itertools
import json

import numpy as np
import pytest

from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.spa.folders import Layout
from stoix_like.spa.record import KIND, read_record
from stoix_like.spa.report import Group, _curve, interval_of, spa_page


def record(arm="spa", seed=0, success=0.5, **more):
    point = {"success": [success, success - 0.1, success + 0.1], "pass_at_1": [success, 0.0, 1.0], "well_formed": 0.9}
    point["pass_at_8"] = [0.9, 0.8, 1.0]
    curve = {"episodes": [0, 10, 20], "tokens": [0, 100, 200], "seconds": [0, 1, 2], "success": [0.1, 0.2, success]}
    found = {
        "kind": KIND,
        "arm": arm,
        "seed": seed,
        "world": {"task_id": "FrozenLake-text-v0", "kwargs": {"size": 4}},
        "levels": "frozenlaketext-512",
        "level_hash": "abc",
        "ceiling": 1.0,
        "points": {"base": point, "ppo": point | {"next_state_exact": 0.75}},
        "curve": curve,
        "before_ppo": {"tokens": 1000 if arm == "spa" else 0, "seconds": 30.0 if arm == "spa" else 0.0},
        "stages": {"ppo": {"seconds": 2.0, "facts": {"generated_tokens": 200}}},
        "settings": {"ppo_lr": 1e-3},
        "example": "── episode 1 <b>",
    }
    return found | more


def test_arms_stand_side_by_side_and_text_from_files_is_no_markup():
    page = spa_page([record(), record(seed=1, success=0.7), record("vanilla")])
    assert page.count("<td>spa</td>") >= page.count("<td>vanilla</td>") > 2
    assert "FrozenLake-text-v0" in page
    assert "next state exact" in page
    assert "&lt;b&gt;" in page
    assert page.count("<img") == 4  # success at three costs, and Pass@k
    assert "<script" not in page


def test_several_seeds_have_an_interval_over_seeds_and_one_that_over_levels():
    one, two = Group("spa", [record()]), Group("spa", [record(), record(seed=1, success=0.7)])
    assert interval_of(one, "ppo", "success") == (0.5, 0.4, 0.6)
    found = interval_of(two, "ppo", "success")
    assert found.point == pytest.approx(0.6)
    assert found.high - found.point == pytest.approx(12.706 * np.std([0.5, 0.7], ddof=1) / 2**0.5, rel=1e-3)
    assert interval_of(one, "ppo", "next_state_exact").point == 0.75
    assert interval_of(one, "sft", "success") is None


def test_what_data_and_fine_tuning_cost_is_counted():
    line = _curve(Group("spa", [record()]), "tokens")
    assert line.x == [1000, 1100, 1200]
    assert line.y == [0.1, 0.2, 0.5]
    both = _curve(Group("spa", [record(), record(seed=1, success=0.7)]), "episodes")
    assert (both.x[0], both.x[-1]) == (0, 20)
    assert both.y[-1] == pytest.approx(0.6)
    assert _curve(Group("plain_ppo", [record(curve={})]), "tokens") is None


def test_seeds_are_averaged_at_equal_episodes_however_long_they_took():
    """One of the seeds waited for another program: at equal seconds there would be nothing to average."""
    late = record(seed=1, success=0.7)
    late["curve"] = late["curve"] | {"seconds": [100, 201, 302], "episodes": [0, 20, 40]}
    line = _curve(Group("spa", [record(), late]), "seconds")
    assert line.x == pytest.approx([30 + 50, 30 + (1 + 150.5) / 2, 30 + (2 + 201) / 2])
    assert line.y == pytest.approx([0.1, (0.2 + 0.15) / 2, (0.5 + 0.2) / 2])
    assert line.high[-1] - line.y[-1] == pytest.approx(12.706 * np.std([0.5, 0.2], ddof=1) / 2**0.5, rel=1e-3)
    assert np.isnan(_curve(Group("spa", [late]), "seconds").low).all()


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([record(), record("state", level_hash="def")], "state of seed 0 was scored on other levels than spa"),
        ([record(), record("state", world={"task_id": "x", "kwargs": {}})], "was scored on other levels"),
        ([record(), record()], "spa of seed 0 is given twice"),
        ([record("plain_ppo"), record(level_hash="def")], "spa of seed 0 was scored on other levels than plain_ppo"),
        ([record(), record(seed=1, settings={"ppo_lr": 0.1})], "spa of seed 1 has another ppo_lr"),
        (
            [record(curve_levels={"levels": 64}), record("state", curve_levels={"levels": 4})],
            "state of seed 0 has a curve over other levels than those before it",
        ),
        (
            [
                record("plain_ppo", curve_levels={"levels": 64}),
                record(curve_levels={"levels": 64, "samples": 8}),
                record("state", curve_levels={"levels": 64, "samples": 4}),
            ],
            "state of seed 0 has a curve over other levels than those before it",
        ),
    ],
)
def test_arms_of_other_levels_are_not_compared(records, error):
    with pytest.raises(ConfigError, match=error):
        spa_page(records)


def test_curves_are_compared_where_both_have_one():
    """Without evaluations there is no curve, and what plays its most probable actions has no number of samples."""
    levels = [{}, {"levels": 64}, {"levels": 64, "samples": 8}]
    arms = ["plain_ppo", "spa", "state"]
    for order in itertools.permutations(levels):
        assert "Pass@8" in spa_page([record(arm, curve_levels=one) for arm, one in zip(arms, order, strict=True)])


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"kind": "other"}', json.dumps({"kind": KIND, "arm": "spa"})])
def test_what_is_no_record_is_told(tmp_path, text):
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CheckpointError, match="is no result of SPA"):
        read_record(path)
    path.write_text(json.dumps(record()))
    assert read_record(path) == record()


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("points", [1], "its points is no mapping"),
        ("points", {}, "its points have no ppo"),
        ("points", {"ppo": {"success": 0.1}}, "success of its point ppo is neither"),
        ("points", {"ppo": {"success": [0.1]}}, "success of its point ppo is neither"),
        ("world", "x", "its world is no mapping"),
        ("world", {"task_id": "x"}, "its world has no task_id or kwargs"),
        ("settings", None, "its settings is no mapping"),
        ("curve", [], "its curve is no mapping"),
        ("curve", {"success": [0.1, 0.2], "episodes": [0]}, "lists of several lengths"),
        ("curve", {"success": ["x"]}, "success of its curve is no list of numbers"),
        ("stages", {"ppo": {}}, "its stage ppo has no seconds or facts"),
        ("seed", "0", "its seed is no whole number"),
        ("ceiling", "x", "its ceiling is no number"),
        ("before_ppo", {"tokens": "1"}, "its before_ppo has what is no number"),
        ("stages", {"ppo": {"seconds": 1, "facts": {"trained_tokens": "x"}}}, "are not all numbers"),
    ],
)
def test_a_record_with_a_wrong_field_is_told(tmp_path, field, value, error):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(record(**{field: value})))
    with pytest.raises(CheckpointError, match=error):
        read_record(path)


def test_answers_without_states_have_no_measures_of_them():
    """In the mode base a stray tag is no state, and records of before have counted some."""
    vanilla = record("vanilla", settings={"ppo_mode": "base"})
    shown = spa_page([record("spa"), vanilla]).partition("What is known")[2].partition("How it plays")[0]
    assert "<td>spa</td>" in shown
    assert "vanilla" not in shown


def test_a_page_without_curves_says_why():
    assert "No evaluations were made while it learned" in spa_page([record(curve={})])
    assert "No evaluations were made while it learned" not in spa_page([record()])


def test_numbers_that_were_not_finite_are_missing(tmp_path):
    path, one = tmp_path / "results.json", record()
    one["points"]["ppo"]["prediction_perplexity_per_token"] = None
    one["curve"]["tokens"][0] = None
    path.write_text(json.dumps(one))
    found = read_record(path)
    assert "prediction_perplexity_per_token" not in found["points"]["ppo"]
    assert "perplexity" in spa_page([found])


def test_a_folder_without_a_pipeline_is_told(tmp_path):
    with pytest.raises(RunError, match="there is no pipeline in"):
        read_record(Layout(tmp_path).root)
