"""Two hundred tiny iterations with fifty kills; and that the soak sees what it looks for."""

import json
import shutil
import sqlite3

import pytest

from stoix_like.bench.loops.soak import GAME, growth, inconsistencies, soak

ITERATIONS, KILLS = 200, 50
MOST_GROWTH = 80.0  # kilobytes an iteration; one that reads and writes OCDBT leaks as much more


@pytest.mark.integration
@pytest.mark.full
def test_two_hundred_iterations_with_fifty_kills_leave_everything_as_it_should_be(tmp_path):
    result = soak(tmp_path, ITERATIONS, KILLS)
    assert result.problems == []
    assert (result.iterations >= ITERATIONS, result.kills) == (True, KILLS)
    half = len(result.memory) // 2
    assert growth(result.memory) < MOST_GROWTH
    assert min(result.descriptors[half:]) <= min(result.descriptors[:half])  # more are open while files are written


def test_the_growth_of_memory_is_that_of_its_line():
    assert growth([500.0, 501.0, 502.0, 503.0]) == pytest.approx(1024.0)
    assert growth([500.0, 500.0, 500.5, 500.0, 500.0]) == pytest.approx(0.0)


@pytest.fixture(scope="module")
def made(looped, tmp_path_factory):
    """A folder in which a loop has made three iterations, and began a fourth, with a heartbeat that says it ended."""
    folder = shutil.copytree(looped, tmp_path_factory.mktemp("soak") / "runs")
    status = json.dumps({"current_state": "stopped"})
    with sqlite3.connect(folder / "events.sqlite") as connection:
        connection.execute("INSERT INTO heartbeats VALUES ('continuous', 1, 'h', 0.0, 0.0, ?, '', 0.0)", (status,))
    (folder / GAME / "iterations" / "0004").mkdir()
    return folder


def edited(statement):
    def edit(iterations):
        with sqlite3.connect(iterations.parents[1] / "events.sqlite") as connection:
            connection.execute(statement)

    return edit


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (lambda iterations: None, []),
        (
            lambda iterations: (iterations / "0001/export/manifest.json").unlink(),
            ["iteration 1 lacks the stage export"],
        ),
        (lambda iterations: shutil.rmtree(iterations / "0002"), ["iterations 1 to 4 are 3"]),
        (edited("DELETE FROM events WHERE key LIKE '%2/promote/ITERATION%'"), ["iteration 2 was told 0 times"]),
        (edited("UPDATE events SET key = 'x/STAGE_FAILED/1' WHERE id = 1"), ["1 stages have failed"]),
        (edited("""UPDATE heartbeats SET status = '{"current_state": "idle"}'"""), ["the continuous loop is killed"]),
    ],
)
def test_the_soak_sees_planted_faults(made, tmp_path, fault, seen):
    shutil.copytree(made, tmp_path / "runs")
    fault(tmp_path / "runs" / GAME / "iterations")
    found = list(inconsistencies(tmp_path / "runs"))
    assert len(found) == len(seen)
    assert all(text in problem for text, problem in zip(seen, found, strict=True))
