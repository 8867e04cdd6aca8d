"""The measures of a loop of self-play, on a small one."""

import json
import shutil
import subprocess
import sys

import pytest

from stoix_like.bench.loops import learning, master_learning, ringrift
from stoix_like.bench.loops.soak import GAME
from stoix_like.config.checks.combinations import steps_per_update


@pytest.fixture(scope="module")
def loop(looped, tmp_path_factory):
    root = shutil.copytree(looped / GAME, tmp_path_factory.mktemp("loop") / GAME)
    return learning.LoopRun(root, list(learning.finished_iterations(root)))


def test_seconds_and_decisions_are_those_of_the_manifests(loop):
    assert len(loop.iterations) == 3
    rows = {row.name: row for row in learning.decision_rows(loop, "loop")}
    assert rows["loop/iterations"].value == 3
    assert rows["loop/iterations"].note.startswith("promote ")
    assert 0.0 < rows["loop/evaluation_share"].value < 1.0


def test_the_overhead_is_all_time_of_iterations_that_a_copy_has_made(loop, monkeypatch):
    """Online training takes a millisecond a position here."""
    before = sorted(loop.path.rglob("*"))
    positions = [one["selfplay"].facts["positions"] for one in loop.iterations]
    monkeypatch.setattr(learning, "seconds_per_update", lambda config: 1e-3 * steps_per_update(config))

    def more(save_dir, seed):
        assert (save_dir / loop.path.name / "champion.json").is_file()
        (save_dir / loop.path.name / "iterations" / "0004").mkdir(exist_ok=True)
        rows = zip((1, 2, 3), (100.0, 1.5, 2.5), strict=True)  # the first compiles
        return "".join(f"iteration {number}  {seconds} s, {save_dir}\nselfplay  5 games\n" for number, seconds in rows)

    monkeypatch.setattr(learning, "_run_more", more)
    row = learning._overhead_row(loop, "loop", 0)
    assert row.value == pytest.approx(4.0 / sum(positions[1:]) / 1e-3 - 1.0)
    assert sorted(loop.path.rglob("*")) == before


def test_the_time_of_learning_is_that_of_processes_without_finished_evaluations(loop, tmp_path):
    root = shutil.copytree(loop.path, tmp_path / GAME)
    assert ringrift.time_of_learning(tmp_path / "not_begun") == 0.0
    (tmp_path / "clock.json").write_text('{"wall_seconds": 1000.0}')
    evaluation = sum(one["evaluate"].recorded["seconds"] for one in loop.iterations)
    assert ringrift.time_of_learning(root) == pytest.approx(1000.0 - evaluation)
    (row,) = [ringrift._time_row(loop._replace(path=root), "loop")]
    assert row.value == pytest.approx((1000.0 - evaluation) / 60.0)


def test_a_loop_is_interrupted_when_its_time_is_over_and_its_clock_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(ringrift, "_LOOK_SECONDS", 0.05)
    path, waits = tmp_path / GAME, "import time; time.sleep(60)"
    for seconds in (0.1, 0.2):
        with subprocess.Popen([sys.executable, "-c", waits]) as process:
            ringrift._wait_until_time_is_over(process, path, seconds)
        assert ringrift.time_of_learning(path) >= seconds
    with subprocess.Popen([sys.executable, "-c", ""]) as process, pytest.raises(RuntimeError, match="before its time"):
        ringrift._wait_until_time_is_over(process, path, 600.0)


def test_an_unfinished_iteration_is_not_counted(loop):
    manifest = loop.path / "iterations" / "0003" / "promote" / "manifest.json"
    text = manifest.read_text()
    manifest.unlink()
    assert len(list(learning.finished_iterations(loop.path))) == 2
    manifest.write_text(text)


@pytest.mark.full
def test_a_master_loop_is_measured_by_game_with_some_of_its_ratings(loop):
    shadow = {"iteration": 2, "anchors": {"random": {"score": 0.75, "low": 0.5, "high": 0.9, "games": 8}}}
    (loop.path / "evaluations").mkdir()
    (loop.path / "evaluations" / "shadow.json").write_text(json.dumps(shadow))
    rows = {row.name: row for row in master_learning.master_rows(loop, "master/x/s0")}
    assert rows["master/x/s0/iterations"].value == 3
    assert rows["master/x/s0/against_random"].value == 0.75
    assert len(rows["master/x/s0/rating"].note.split("champion: ")[1].split(",")) == 4  # iterations 0 to 3
    row = learning.rating_row(loop, "loop", 2)
    assert (row.name, len(row.note.split("champion: ")[1].split(","))) == ("loop/rating", 2)
    assert "*" in row.note  # at the last champion, whose rating it is
    assert row.value > 0


def test_a_game_that_has_finished_no_iteration_has_none(tmp_path):
    (row,) = master_learning.master_rows(learning.LoopRun(tmp_path, []), "master/x/s0")
    assert (row.name, row.value) == ("master/x/s0/iterations", 0.0)


def test_a_master_loop_runs_its_time_and_a_folder_that_exists_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(master_learning, "RUNS", tmp_path)
    made = tmp_path / "master-tic_tac_toe-5min-s3"
    made.mkdir()
    assert master_learning.finished_master(["tic_tac_toe"], 5.0, 3) == made
    assert list(made.iterdir()) == []
