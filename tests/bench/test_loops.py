"""The measures of a loop of self-play, on a small one."""

import pytest
from support.pipelines import small_pipeline

from stoix_like.bench import loops
from stoix_like.config.checks import steps_per_update
from stoix_like.selfplay.iteration import run_iteration


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    pipeline = small_pipeline(tmp_path_factory.mktemp("loop"))
    for _ in range(3):
        run_iteration(pipeline)
    return loops.LoopRun(pipeline.layout.root, list(loops._iterations(pipeline.layout.root)))


def test_seconds_and_decisions_are_those_of_the_manifests(loop):
    assert len(loop.iterations) == 3
    rows = {row.name: row for row in loops._rows(loop, "loop")}
    assert rows["loop/iterations"].value == 3
    assert rows["loop/iterations"].note.startswith("promote ")
    assert 0.0 < rows["loop/evaluation_share"].value < 1.0


def test_the_overhead_is_all_time_of_iterations_that_a_copy_has_made(loop, monkeypatch):
    """Online training takes a millisecond a position here."""
    before = sorted(loop.path.rglob("*"))
    positions = [one["selfplay"].facts["positions"] for one in loop.iterations]
    monkeypatch.setattr(loops, "seconds_per_update", lambda config: 1e-3 * steps_per_update(config))

    def more(save_dir, seed):
        assert (save_dir / loop.path.name / "champion.json").is_file()
        (save_dir / loop.path.name / "iterations" / "0004").mkdir(exist_ok=True)
        rows = zip((1, 2, 3), (100.0, 1.5, 2.5), strict=True)  # the first compiles
        return "".join(f"iteration {number}  {seconds} s, {save_dir}\nselfplay  5 games\n" for number, seconds in rows)

    monkeypatch.setattr(loops, "_run_more", more)
    row = loops._overhead_row(loop, "loop", 0)
    assert row.value == pytest.approx(4.0 / sum(positions[1:]) / 1e-3 - 1.0)
    assert sorted(loop.path.rglob("*")) == before


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
