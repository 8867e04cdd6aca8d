"""The measures of a loop of self-play, on a small one."""

import pytest
from support.pipelines import small_pipeline

from stoix_like.bench import loops
from stoix_like.selfplay.iteration import run_iteration


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    pipeline = small_pipeline(tmp_path_factory.mktemp("loop"))
    for _ in range(3):
        run_iteration(pipeline)
    return loops.LoopRun(pipeline.layout.root, list(loops._iterations(pipeline.layout.root)))


def test_seconds_and_decisions_are_those_of_the_manifests(loop):
    assert len(loop.iterations) == 3
    rows = {row.name: row for row in loops._rows(loop, "loop", online=1e-3)}
    assert rows["loop/iterations"].value == 3
    assert rows["loop/iterations"].note.startswith("promote ")
    assert 0.0 < rows["loop/evaluation_share"].value < 1.0
    later = loop.iterations[1:]
    seconds = sum(one[stage].recorded["seconds"] for one in later for stage in loops.STAGES if stage != "evaluate")
    positions = sum(one["selfplay"].facts["positions"] for one in later)
    assert rows["loop/overhead"].value == pytest.approx(seconds / positions / 1e-3 - 1.0)


def test_an_unfinished_iteration_is_not_counted(loop):
    manifest = loop.path / "iterations" / "0003" / "promote" / "manifest.json"
    text = manifest.read_text()
    manifest.unlink()
    assert len(list(loops._iterations(loop.path))) == 2
    manifest.write_text(text)


def test_the_rating_is_that_of_the_last_champion(loop):
    row = loops._rating_row(loop, "loop")
    assert row.name == "loop/rating"
    assert "*" in row.note
    assert row.value > 0
