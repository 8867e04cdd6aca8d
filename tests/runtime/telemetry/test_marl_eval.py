"""marl_eval.json: the schema worked out by hand, what a resumed run makes of it, and that nobody sees half of it."""

import contextlib
import json
import math

import pytest
from support.telemetry import run_meta, write

from stoix_like.runtime.telemetry import Clock, MarlEvalSink, Report, open_telemetry
from stoix_like.runtime.telemetry.marl_eval import names_of

META = run_meta(num_updates=40)


def _evaluation(update, *scores, seeds=(0,), seconds=None, prefix="evaluator", level_hash=None, **more):
    """A report as a run gives it, 32 steps per update and a tenth of a second each; scores of the seeds in order."""
    values = {"episodes": 8, "episode_length_mean": 12.5, "episode_length_max": 20, "episode_length_min": 3}
    values |= {"duration_ms": 17.0} | more
    of_all = {f"{prefix}/{name}": [value] * len(scores) for name, value in values.items()}
    shifted = {"mean_return": 0.0, "max_return": 1.0, "min_return": -1.0}
    of_each = {f"{prefix}/{name}": [score + by for score in scores] for name, by in shifted.items()}
    clock = Clock(update, 32 * update, update / 10 if seconds is None else seconds)
    return Report(clock, of_all | of_each, {f"{prefix}/level_hash": level_hash} if level_hash else {}, seeds)


def _learning(update):
    return [Report(Clock(update, 32 * update, update / 10), {"trainer/entropy": [0.5]}, seeds=[0])]


def _write(folder, reports, meta=META):
    folder.mkdir(exist_ok=True)
    write(folder, *reports, meta=meta, sinks=[MarlEvalSink()])


def _seeds(folder):
    return _content(folder)["Jumanji"]["Maze-v0"]["PPO"]


def _lists(score, solve_rate):
    return {"mean_episode_return": [score], "mean_episode_length": [12.5], "solve_rate": [solve_rate]}


def _content(folder):
    return json.loads((folder / "marl_eval.json").read_text())


def test_the_document_of_three_evaluations_by_hand(tmp_path):
    """The best is the second; of the two reports of one moment only the policy's own evaluation counts."""
    reports = [
        [_evaluation(10, 0.25, solve_rate=0.5)],
        _learning(15),
        [_evaluation(20, 0.75, seconds=2.00049, solve_rate=1.0), _evaluation(20, 9.0, prefix="evaluator_network")],
        [_evaluation(30, 0.5, solve_rate=0.75)],
    ]
    _write(tmp_path, reports)
    best = _lists(0.75, 1.0)
    steps = {
        "step_0": {"step_count": 320, "elapsed_time": 1.0, **_lists(0.25, 0.5)},
        "step_1": {"step_count": 640, "elapsed_time": 2.0, **best},
        "step_2": {"step_count": 960, "elapsed_time": 3.0, **_lists(0.5, 0.75)},
    }
    assert _content(tmp_path) == {"Jumanji": {"Maze-v0": {"PPO": {"seed_0": {**steps, "absolute_metrics": best}}}}}
    *_, last = _seeds(tmp_path)["seed_0"]
    assert last == "absolute_metrics"  # earlier versions of the reader take the last entry for it
    assert sorted(path.name for path in tmp_path.iterdir()) == ["marl_eval.json", "metrics.jsonl"]


def test_it_is_there_after_the_first_evaluation_and_a_reader_never_sees_half_of_it(tmp_path):
    with contextlib.closing(open_telemetry(tmp_path, META, [MarlEvalSink()])) as telemetry:
        telemetry.write(_learning(5))
        assert not (tmp_path / "marl_eval.json").exists()
        telemetry.write([_evaluation(10, 0.5)])
        with (tmp_path / "marl_eval.json").open() as reader:
            telemetry.write([_evaluation(20, 0.25)])
            assert list(json.load(reader)["Jumanji"]["Maze-v0"]["PPO"]["seed_0"]) == ["step_0", "absolute_metrics"]
        assert len(_seeds(tmp_path)["seed_0"]) == 3


def test_seeds_side_by_side_have_an_entry_each_and_a_task_its_suite(tmp_path):
    _write(tmp_path, [[_evaluation(10, 0.5, 0.25, seeds=(12, 3))]], run_meta(seed=3, num_seeds=2))
    seeds = _seeds(tmp_path)
    assert list(seeds) == ["seed_3", "seed_12"]
    assert seeds["seed_3"]["absolute_metrics"]["mean_episode_return"] == [0.25]
    assert names_of("BinPack-v0", "SPO") == ("Jumanji", "BinPack-v0", "SPO")
    assert names_of("probe/x", "SPO") == ("probe", "x", "SPO")


def test_the_best_is_the_first_of_equal_finite_scores_on_the_same_levels(tmp_path):
    _write(tmp_path, [[_evaluation(10, 0.5, solve_rate=0.1)], [_evaluation(20, 0.5, solve_rate=0.9)]])
    run = _seeds(tmp_path)["seed_0"]
    assert run["absolute_metrics"]["solve_rate"] == [0.1]
    _write(tmp_path / "nan", [[_evaluation(10, 0.5, solve_rate=math.nan)]])
    step = _seeds(tmp_path / "nan")["seed_0"]["step_0"]
    assert "solve_rate" not in step
    assert step["mean_episode_return"] == [0.5]
    # As `checkpoints/best`: what was scored on other levels gives way to the next evaluation.
    rows = [_evaluation(10, 0.9, level_hash="aaa"), _evaluation(20, 0.5, level_hash="bbb"), _evaluation(30, 0.25)]
    for count, best in ((1, 0.9), (2, 0.5), (3, 0.25)):
        _write(tmp_path / str(count), [[row] for row in rows[:count]])
        run = _seeds(tmp_path / str(count))["seed_0"]
        assert run["absolute_metrics"]["mean_episode_return"] == [best]


REPORTS = [[_evaluation(u, *[0.1 * (u % 7)] * 2, seeds=(0, 1))] for u in (10, 20, 30, 40)]


@pytest.mark.parametrize("resumed", [10, 25, 40])
def test_a_resumed_run_ends_with_the_file_of_an_unbroken_one(tmp_path, resumed):
    """Rows after the checkpoint are cut and written anew; the file follows, bit for bit."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    _write(whole, REPORTS)
    _write(broken, REPORTS)  # killed after its last evaluation, and continued from an earlier checkpoint
    with (broken / "metrics.jsonl").open("a") as file:
        file.write('{"category": "EVALUATOR", "upd')
    left = [reports for reports in REPORTS if reports[0].clock.update > resumed]
    meta = META._replace(resumed_update=resumed)
    with contextlib.closing(open_telemetry(broken, meta, [MarlEvalSink()])) as telemetry:
        seeds = _seeds(broken)
        assert [len(run) - 1 for run in seeds.values()] == [len(REPORTS) - len(left)] * 2  # cut at once
        for reports in left:
            telemetry.write(reports)
    assert (broken / "marl_eval.json").read_bytes() == (whole / "marl_eval.json").read_bytes()


def test_resumed_before_its_first_evaluation_or_of_an_earlier_version_or_making_one_up(tmp_path):
    _write(tmp_path, [_learning(5), [_evaluation(10, 0.5)]])
    _write(tmp_path, [], META._replace(resumed_update=5))
    assert not (tmp_path / "marl_eval.json").exists()
    old = tmp_path / "old"
    old.mkdir()
    write(old, [_evaluation(10, 0.5)])
    assert not (old / "marl_eval.json").exists()
    _write(old, [], META._replace(resumed_update=10))
    assert len(_seeds(old)["seed_0"]) == 2
    # Stopped between an evaluation's rows and the note that it was made: the continued run makes it again.
    _write(tmp_path / "again", [[_evaluation(10, 0.5)]])
    _write(tmp_path / "again", [[_evaluation(10, 0.5, seconds=7.0)]], META._replace(resumed_update=10))
    run = _seeds(tmp_path / "again")["seed_0"]
    assert [run["step_0"]["elapsed_time"], len(run)] == [7.0, 2]
