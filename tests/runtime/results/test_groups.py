"""Which experiments meet, and their scores at equal budgets, worked out by hand."""

import itertools

import numpy as np
import pytest
from support.hand_made import write_run

from stoix_like.errors import ConfigError
from stoix_like.runtime.results.groups import AXES, budget_notes, common_budgets, comparison_groups, scores_at
from stoix_like.runtime.results.series import read_run


def _found(paths, metric="mean_return", scales=None):
    return comparison_groups([read_run(path) for path in paths], metric, scales)


def _level(value):
    return lambda seed, update: value + 0.1 * seed


def _scores(group, axis):
    """{experiment: scores of its seeds at the largest common budget}."""
    moment = common_budgets(group, axis)[-1:]
    return {entry.name: scores_at(entry, axis, moment)[:, 0].tolist() for entry in group.experiments}


def test_runs_of_one_folder_name_stay_apart(tmp_path):
    """Two sweeps have a trial-0000 each; where more than two leaves differ, folders name the experiments."""
    paths = []
    for folder, value in (("first/trial-0000", 0.2), ("second/trial-0000", 0.8), ("first/other", 0.5)):
        leaves = {"optimization": dict.fromkeys(("actor_lr", "critic_lr", "ent_coef"), value)}
        paths.append(write_run(tmp_path / folder, _level(value), config=leaves))
    (group,), _ = _found(paths)
    scores = {"PPO · first/trial-0000": [0.2], "PPO · second/trial-0000": [0.8], "PPO · other": [0.5]}
    assert _scores(group, "steps") == scores
    paths = [write_run(tmp_path / machine / "maze", _level(value)) for machine, value in (("a", 0.2), ("b", 0.8))]
    (group,), _ = _found(paths)  # of one seed, which is no second sample
    assert _scores(group, "steps") == {"PPO · a/maze": [0.2], "PPO · b/maze": [0.8]}


def test_scores_at_equal_steps_are_interpolated_and_at_equal_wall_clock_others(tmp_path):
    """PPO is scored at 1,000, 2,000, 4,000 steps, SPO at 2,000, 3,000, 5,000: both know 2,000 to 4,000."""
    rising = lambda seed, update: float(update)
    paths = [
        write_run(tmp_path / "a", rising),
        write_run(tmp_path / "b", lambda seed, update: float(update**2), updates=(20, 30, 50), algorithm="SPO"),
    ]
    (group,), notes = _found(paths)
    budgets = common_budgets(group, "steps")
    np.testing.assert_array_equal(budgets, [2000.0, 3000.0, 4000.0])
    assert notes == []
    assert _scores(group, "steps") == {"PPO": [40.0], "SPO": [1700.0]}  # halfway between 900 and 2,500
    (curve,) = scores_at(group.experiments[0], "steps", budgets)
    assert curve.tolist() == [20.0, 30.0, 40.0]
    # PPO takes 0.1 s per update and SPO 0.4: when PPO ends, after 4 s, SPO is at update 10.
    climb = lambda seed, update: float(update)
    fast = write_run(tmp_path / "fast", climb, updates=(10, 20, 40))
    slow = write_run(tmp_path / "slow", climb, updates=(5, 15, 40), pace=0.4, algorithm="SPO")
    (group,), _ = _found([fast, slow])
    assert common_budgets(group, "seconds")[-1] == 4.0
    found = _scores(group, "seconds")
    assert found["PPO"] == [40.0]
    assert found["SPO"] == pytest.approx([10.0])
    assert _scores(group, "steps") == {"PPO": [40.0], "SPO": [40.0]}


def test_without_a_common_range_there_is_no_budget_and_a_seed_that_ends_long_before_is_named(tmp_path):
    early = write_run(tmp_path / "a", _level(0.5), updates=(10, 20))
    (group,), _ = _found([early, write_run(tmp_path / "b", _level(0.5), seeds=(1,), updates=(30,))])
    assert common_budgets(group, "steps") is None
    (note,) = budget_notes(group, "steps", None)
    assert "a, seed 0 ends at 2,000" in note
    assert "b, seed 1 is first scored at 3,000" in note
    (group,), _ = _found([write_run(tmp_path / "c", _level(0.5), pace=None)])  # without a clock
    assert common_budgets(group, "steps") is not None
    assert common_budgets(group, "seconds") is None
    assert "no elapsed_seconds" in budget_notes(group, "seconds", None)[0]
    long = write_run(tmp_path / "long", _level(0.5), seeds=(0, 1))
    short = write_run(tmp_path / "short", _level(0.5), seeds=(2,), updates=(10, 20))
    (group,), _ = _found([long, short])
    (note,) = budget_notes(group, "steps", common_budgets(group, "steps"))
    assert "end at 2,000 with" in note
    assert "short, seed 2; the longest go on to 4,000" in note
    alone, _ = _found([long])
    assert [budget_notes(alone[0], axis, common_budgets(alone[0], axis)) for axis in AXES] == [[], []]


def test_clocks_of_different_devices_and_numbers_of_seeds_are_told(tmp_path):
    paths = [
        write_run(tmp_path / "a", _level(0.5), seeds=(0, 1, 2)),
        write_run(tmp_path / "b", _level(0.5), device="cuda:0", algorithm="SPO"),
    ]
    (group,), _ = _found(paths)
    assert group.clock_notes == (
        "the clocks ran on different devices: cpu, cuda:0",
        "seeds side by side share a clock, and the runs have different numbers of them: 1, 3",
    )
    assert _found(paths[:1]).groups[0].clock_notes == ()


def test_normalised_scores_by_hand(tmp_path):
    path = write_run(tmp_path / "a", lambda seed, update: float(update))
    (group,), _ = _found([path], scales={"Maze-v0": (20.0, 60.0)})
    assert group.experiments[0].series[0].values.tolist() == [-0.25, 0.0, 0.5]
    assert group.is_on_unit_scale
    assert not _found([path]).groups[0].is_on_unit_scale


def _config(**leaves):
    return {
        "environment": {"kwargs": leaves.pop("kwargs", {})},
        "evaluation": {"level_set": leaves.pop("level_set", None)},
        "optimization": leaves,
    }


def test_seeds_are_pooled_and_settings_are_apart(tmp_path):
    """What is only printed is no difference, and the same folder twice counts once."""
    paths = []
    for rate, seed in itertools.product((0.1, 0.2), (0, 1)):
        config = _config(actor_lr=rate) | {"architecture": {"seed": seed}, "logging": {"progress": seed == 0}}
        paths.append(write_run(tmp_path / f"{rate}-{seed}", _level(rate), seeds=(seed,), config=config))
    (group,), notes = _found([*paths, paths[0]])
    found = [(entry.name, len(entry.series)) for entry in group.experiments]
    assert (found, notes) == ([("PPO · actor_lr 0.1", 2), ("PPO · actor_lr 0.2", 2)], [])


@pytest.mark.parametrize(
    ("one", "other", "titles"),
    [
        ({"level_set": "maze-8"}, {"level_set": None}, ["Maze-v0 · level_set maze-8", "Maze-v0 · level_set None"]),
        ({"kwargs": {"num_rows": 4}}, {"kwargs": {}}, ["Maze-v0 · kwargs {'num_rows': 4}", "Maze-v0 · kwargs {}"]),
    ],
)
def test_other_levels_and_sizes_are_other_contests(tmp_path, one, other, titles):
    paths = [
        write_run(tmp_path / "a", _level(0.5), config=_config(**one)),
        write_run(tmp_path / "b", _level(0.5), config=_config(**other), algorithm="SPO"),
    ]
    groups, notes = _found(paths)
    assert [group.title for group in groups] == titles
    assert [[entry.name for entry in group.experiments] for group in groups] == [["PPO"], ["SPO"]]
    assert notes == [f"other sizes or levels of a task are another group: {'; '.join(titles)}"]


def test_levels_of_one_name_and_another_hash_are_apart_and_a_run_whose_levels_changed_is_left_out(tmp_path):
    paths = [
        write_run(tmp_path / name, _level(0.5), level_hash=name, config=_config(level_set="maze-8"), algorithm=name)
        for name in ("p", "q")
    ]
    groups, notes = _found(paths)
    assert [group.title for group in groups] == ["Maze-v0 · levels p", "Maze-v0 · levels q"]
    assert "scored on different levels of one name" in notes[0]
    changed = write_run(tmp_path / "changed", _level(0.5), level_hash=lambda update: "p" if update < 20 else "q")
    steady = write_run(tmp_path / "steady", _level(0.5), level_hash="p", algorithm="SPO")
    (group,), (note,) = _found([changed, steady])
    assert [entry.name for entry in group.experiments] == ["SPO"]
    assert "changed is left out: its level set changed during training (p, q)" in note


def test_runs_and_seeds_without_values_are_told_and_not_counted(tmp_path):
    scored = write_run(tmp_path / "scored", _level(0.5), metrics=("evaluator/mean_return", "actor/mean_return"))
    training = write_run(tmp_path / "training", _level(0.5), metrics=("actor/mean_return",), algorithm="SPO")
    (group,), (note,) = _found([training, scored])
    assert group.key == "evaluator/mean_return"
    assert [entry.name for entry in group.experiments] == ["PPO"]
    assert "training is left out: it has no values of evaluator/mean_return yet" in note
    (group,), notes = _found([training, scored], "actor/mean_return")
    assert [entry.name for entry in group.experiments] == ["SPO", "PPO"]
    assert notes == []
    path = write_run(tmp_path / "a", lambda seed, update: None if seed == 1 else 0.5, seeds=(0, 1, 2))
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"category": "ACTOR", "update": 5, "timesteps": 5, "seed": 1, "actor/mean_return": 0.5}\n')
    (group,), (note,) = _found([path])
    assert len(group.experiments[0].series) == 2
    assert "a: seed 1 has no values of evaluator/mean_return yet" in note


def test_each_task_is_a_contest_with_the_metric_it_has(tmp_path):
    paths = [
        write_run(tmp_path / "a", _level(0.5), metrics=("evaluator/solve_rate",)),
        write_run(tmp_path / "b", _level(0.5), task="Snake-v1"),
    ]
    groups, notes = _found(paths, "solve_rate")
    assert [group.title for group in groups] == ["Maze-v0"]
    assert groups[0].is_on_unit_scale
    assert notes == ["Snake-v1: no run has values of solve_rate yet"]
    with pytest.raises(ConfigError, match="unknown metric 'solved_rate'; did you mean 'solve_rate'"):
        _found(paths, "solved_rate")
