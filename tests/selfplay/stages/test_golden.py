"""A store that an older version has written: this one reads it, does nothing of it again, and goes on with it."""

import tarfile
from pathlib import Path

import pytest
from support.pipelines import changed, moved, undo

from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.files import records, shards
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout
from stoix_like.selfplay.files.verify_games import rule_problem
from stoix_like.selfplay.iterations.begin import IterationOptions
from stoix_like.selfplay.iterations.due import Step, due_step
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.ratings.lineage import read_ancestry
from stoix_like.selfplay.stages import export, promote, sync

ARCHIVE = Path(__file__).parent / "golden" / "two_iterations.tar.gz"
#: {iteration: what its manifest of sync says}: totals, and the hash of the names of all shards.
STORES = {1: (2, 10, 58), 2: (5, 25, 146)}


@pytest.fixture
def layout(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return Layout(tmp_path / "tic_tac_toe_2p")


@pytest.fixture
def pipeline(fresh, layout):
    """The programs of the present version over that store."""
    return moved(fresh, layout.root.parent)


def test_nothing_is_due_that_was_done(layout):
    assert due_step(layout, 1) is None
    assert due_step(layout, 2) is None
    for first in reversed(STAGE_NAMES):
        (layout.stage(2, first) / "manifest.json").unlink()
        assert due_step(layout, 2) == Step(first)


def test_shards_of_format_2_pass_and_keep_their_ids(pipeline, layout):
    paths = sorted(layout.store.glob("*.npz"))
    assert len(paths) == 5
    for path in paths:
        arrays = read_arrays(path)
        assert shards.text_of(arrays, "format") == "2"
        assert array_hash(arrays)[: sync.HASH_DIGITS] == path.stem
        shards.check_shard(pipeline.game, arrays, path.name)
        assert rule_problem(pipeline.play_moves, pipeline.game, arrays) is None


def test_sync_and_export_make_the_same_again(pipeline, layout):
    before = {name: read_manifest(layout.stage(2, name)) for name in ("sync", "export")}
    undo(layout, "sync")
    theirs = layout.root.parent / "theirs"
    theirs.mkdir()
    foreign = layout.shard(before["sync"].recorded["foreign"][0])
    (theirs / foreign.name).write_bytes(foreign.read_bytes())
    synced = sync.sync_stage(changed(pipeline, sync_from=str(theirs)), files_of(layout, 2))
    for name in ("shards", "games", "positions", "store"):
        assert synced.facts[name] == before["sync"].facts[name]
    exported = export.export_stage(pipeline, files_of(layout, 2))
    assert exported.digest == before["export"].digest


def test_the_decision_is_made_again_from_the_games_on_disk(pipeline, layout):
    before = undo(layout, "promote")
    decided = promote.promote_stage(pipeline, files_of(pipeline.layout, 2))
    assert decided.digest == before["promote"]


def test_the_champions_and_the_lineage_are_read(layout):
    assert [record.iteration for record in records.lineage(layout)] == [2, 1, 0]
    candidates = read_ancestry(layout).candidates
    assert [one.status for one in candidates] == ["former champion", "former champion", "champion"]


def test_the_next_iteration_learns_from_what_is_there(pipeline, layout):
    for number, totals in STORES.items():
        facts = read_manifest(layout.stage(number, "sync")).facts
        assert (facts["shards"], facts["games"], facts["positions"]) == totals
    report = run_iteration(pipeline, IterationOptions(skip_evaluation=True))
    assert report.iteration == 3
    assert report.synced.facts["games"] == 35
    assert report.exported.facts["store_positions"] == report.synced.facts["positions"] > 146
