"""The stage `sync`: the store takes in shards of this iteration and of other folders, each once."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.pipelines import changed, write_shard

from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.files import stored
from stoix_like.selfplay.files.shards import game_ids
from stoix_like.selfplay.iterations.begin import IterationOptions, begin_iteration, read_champion, read_start
from stoix_like.selfplay.iterations.due import Step
from stoix_like.selfplay.iterations.steps import run_iteration, run_step
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.pipeline import foreign
from stoix_like.selfplay.pipeline.programs import Memory
from stoix_like.selfplay.stages import sync

LATER = IterationOptions(skip_evaluation=True)


@pytest.fixture
def theirs(copied, tmp_path):
    """The folder of shards from elsewhere, from which the pipeline `copied` syncs."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    changed(copied, sync_from=str(folder))
    return folder


def synced(pipeline, number, **options):
    """The manifest of `sync` in an iteration that has played nothing."""
    pipeline.layout.iteration(number).mkdir(exist_ok=True)
    return sync.sync_stage(pipeline, files_of(pipeline.layout, number), **options)


def test_a_shard_that_is_missing_from_the_store_is_linked_again_if_it_is_ours(copied):
    path = copied.layout.shard(read_manifest(copied.layout.stage(2, "sync")).facts["added"][0][0])
    path.unlink()
    report = run_iteration(copied, LATER)
    assert path.is_file()
    assert report.synced.facts["games"] == 30


def test_what_sync_remembers_does_not_grow_with_the_iterations(copied):
    for number in (3, 4):
        assert run_iteration(copied, LATER).synced.facts["shards"] == 2 * number
    memory = copied.memory
    assert not memory.seen
    assert (memory.known.first, memory.known.last, len(memory.known.names)) == (3, 3, 2)


def test_the_store_of_another_machine_is_taken_in_once_and_what_is_broken_is_named(copied, theirs):
    store = theirs / "store"
    one, _ = (write_shard(copied, store / f"{index}.npz", shard=index) for index in (1, 2))
    shutil.copyfile(store / "1.npz", store / "again.npz")
    (store / ".three.17.tmp.npz").write_bytes(b"being written")
    (store / "torn.npz").write_bytes((store / "1.npz").read_bytes()[:200])
    cheated = one | {"outcome": -one["outcome"]}
    write_arrays(store / "cheated.npz", cheated | {"game_id": game_ids(cheated)})
    np.savez(store / "pickled.npz", moves=np.array([{}], object))
    said = []
    copied.reporter = SILENT._replace(warning=said.append)
    manifest = synced(copied, 3)
    assert manifest.facts["shards"] == 6
    assert (manifest.recorded["new_shards"], manifest.recorded["duplicates"]) == (2, [])
    assert sorted(manifest.recorded["refused"]) == ["cheated.npz", "pickled.npz", "torn.npz"]
    assert len(said) == 3
    assert any("an outcome is not that of the moves" in text for text in said)
    assert any("pickled objects, which are never loaded" in text for text in said)
    assert {path.name for path in copied.layout.quarantine.iterdir()} == {"cheated.npz", "pickled.npz", "torn.npz"}
    synced(copied, 3, again=True)
    assert len(said) == 3  # a file is named once


def test_shards_from_elsewhere_stay_when_their_files_are_gone_before_the_next_batch(copied, theirs):
    write_shard(copied, theirs / "one.npz")
    number, found = begin_iteration(copied), []
    for batches in (1, 2):
        for stage in ("selfplay", "sync"):
            run_step(copied, number, Step(stage, batches))
        found.append(read_manifest(copied.layout.stage(number, "sync")))
        (theirs / "one.npz").unlink(missing_ok=True)
        copied.memory.seen.clear()  # as in another process
    before, after = found
    taken = before.facts["added"][-1:]
    assert before.recorded["foreign"] == after.recorded["foreign"] == [taken[0][0]]
    assert len(after.facts["added"]) == len(before.facts["added"]) + 2
    assert after.facts["added"][-1:] == taken
    assert after.facts["games"] == before.facts["games"] + 10


def test_of_files_from_elsewhere_sync_remembers_those_that_are_there(copied, theirs):
    for number in (3, 4, 5):
        for old in theirs.iterdir():
            old.unlink()
        (theirs / f"{number}.npz").write_bytes(b"refused")
        shutil.copyfile(copied.layout.stage(1, "selfplay") / "shard_0000.npz", theirs / f"known_{number}.npz")
        synced(copied, number)
        assert foreign.has_unseen(copied) is False
        there = {theirs / f"{number}.npz", theirs / f"known_{number}.npz"}
        assert {Path(file) for file, _, _ in copied.memory.seen} == there
        assert (copied.memory.known.first, copied.memory.known.last) == (1, number - 1)


def test_removed_shards_of_other_folders_are_not_taken_in_again(copied, theirs):
    shutil.copytree(copied.layout.store, theirs, dirs_exist_ok=True)
    for path in copied.layout.store.iterdir():
        path.unlink()  # as retention does
    (copied.layout.iteration(3)).mkdir()
    assert synced(copied, 3).facts["added"] == []
    assert list(copied.layout.store.iterdir()) == []
    assert not foreign.has_unseen(copied)
    (theirs / "torn.npz").write_bytes(b"PK")
    assert foreign.has_unseen(copied)


def test_own_files_are_taken_for_those_from_elsewhere_with_their_origin(copied, theirs):
    """Before ours are played, and after: what is falsified displaces nothing, and counts once."""
    layout, notes, champion = copied.layout, [], read_champion(copied)[1]
    player = champion.hash, champion.params
    write_shard(copied, theirs / "coming.npz", iteration=4, player=player, sign=-1.0)  # ours plays it next but one
    former = read_start(layout, 2).player.hash
    write_shard(copied, theirs / "known.npz", iteration=2, player=(former, champion.params), sign=-1.0)
    copied.reporter = SILENT._replace(note=notes.append)
    third = run_iteration(copied, LATER)
    assert third.synced.recorded["duplicates"] == ["known.npz"]
    assert [text.split(" is left out")[0] for text in notes] == [str(theirs / "known.npz")]
    assert third.synced.facts["games"] == 20 + 10 + 5
    fourth = run_iteration(copied, LATER)  # its player is that of the third: without evaluation none is promoted
    assert fourth.synced.facts["displaced"] == [[champion.hash, 0, 4, 0]]
    assert fourth.synced.facts["games"] == 20 + 10 + 10
    assert fourth.synced.facts["shards"] == 8
    own = stored.read_games(layout.stage(4, "selfplay") / "shard_0000.npz")
    assert [shard.hash for shard in stored.stored_shards(layout, 4) if shard.is_foreign] == []
    window, held_out = (read_arrays(layout.stage(4, "export") / f"{name}.npz") for name in ("window", "validation"))
    assert {*own.ids.tolist()} <= {*window["game_id"].tolist(), *held_out["game_id"].tolist()}


def test_two_strangers_that_say_the_same_of_themselves_count_once_in_a_new_process_too(copied, theirs):
    for index, sign in enumerate((1.0, -1.0)):
        write_shard(copied, theirs / f"{index}.npz", sign=sign)
        copied.memory = Memory()
        manifest = synced(copied, 3 + index)
        assert manifest.facts["games"] == 25
        assert manifest.recorded["duplicates"] == ([] if index == 0 else ["1.npz"])
