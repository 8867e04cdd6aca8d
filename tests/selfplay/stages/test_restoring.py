"""Shards of the store that are damaged: they are restored with the same hash, or lost once and for all."""

import shutil

import pytest
from support.damaged_pipelines import flip
from support.deaths import killed_in
from support.marks import full
from support.pipelines import changed, digests, moved, restored, small_config, write_shard

from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.manifest import read_manifest, write_manifest
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.files import lost_shards, stored
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.lost_shards import read_lost
from stoix_like.selfplay.files.shards import ShardOrigin, shard_arrays
from stoix_like.selfplay.iterations import begin, due
from stoix_like.selfplay.iterations.begin import IterationOptions, begin_iteration
from stoix_like.selfplay.iterations.steps import run_iteration, run_step
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages import export, restoring, selfplay
from stoix_like.selfplay.watch import status, status_text

LATER = IterationOptions(skip_evaluation=True)


def heard(pipeline):
    """What the pipeline says from now on: (warnings, notes)."""
    warnings, notes = [], []
    pipeline.reporter = SILENT._replace(warning=warnings.append, note=notes.append)
    return warnings, notes


def stored_shard(layout, number=2, index=0):
    return stored.added_shards(layout, number, read_manifest(layout.stage(number, "sync")))[index]


def linked(layout, number=2):
    """Makes store and stage one file again, as before the folder was copied."""
    folder = layout.stage(number, "selfplay")
    for name, found in read_manifest(folder).outputs.items():
        path = layout.shard(found[: stored.HASH_DIGITS])
        path.unlink()
        path.hardlink_to(folder / name)


def other_versions(pipeline):
    folder = pipeline.layout.stage(2, "selfplay")
    manifest = read_manifest(folder)
    recorded = manifest.recorded | {"versions": manifest.recorded["versions"] | {"jaxlib": "0.0.1"}}
    write_manifest(folder, manifest._replace(recorded=recorded))


def no_player(pipeline):
    (pipeline.layout.root / begin.read_start(pipeline.layout, 2).player.parameters).unlink()


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda _: None, None),
        (other_versions, "it was played with jaxlib 0.0.1"),
        (lambda pipeline: changed(pipeline, num_simulations=3), "the settings of its self-play have changed since"),
        (no_player, "its player cannot be read"),
    ],
)
def test_a_damaged_shard_of_ours_is_played_again_and_taken_only_with_the_same_hash(copied, prepare, reason):
    layout = copied.layout
    linked(layout)
    shard, champion = stored_shard(layout), layout.champion.read_bytes()
    flip(shard.path)
    prepare(copied)
    warnings, notes = heard(copied)
    found = restoring.restore_shard(copied, shard, "it is torn")
    assert found is (reason is None)
    assert shard.path.is_file() is found
    assert (len(warnings), len(notes)) == ((0, 1) if found else (1, 0))
    assert (layout.quarantine / f"store-{shard.path.name}").is_file()
    assert [one.reason[: len(reason)] for one in read_lost(layout).values()] == ([] if found else [reason])
    assert layout.champion.read_bytes() == champion
    if found:
        assert stored.read_games(shard.path).origin == shard.origin
        assert shard.path.samefile(layout.stage(2, "selfplay") / "shard_0000.npz")


def test_games_that_come_out_otherwise_are_not_taken(copied, monkeypatch):
    """Neither those that are played again, nor those of a whole file that stands in the place of ours."""
    shard, other, original = stored_shard(copied.layout), stored_shard(copied.layout, 1), selfplay.play_shard
    flip(shard.path)
    shutil.copyfile(other.path, copied.layout.stage(2, "selfplay") / "shard_0000.npz")
    monkeypatch.setattr(selfplay, "play_shard", lambda pipeline, number, *rest: original(pipeline, number + 1, *rest))
    assert restoring.restore_shard(copied, shard, "it is torn") is False
    assert read_lost(copied.layout)[shard.hash].reason == "its games were played again and are others here"
    assert not shard.path.exists()


def test_a_shard_of_format_2_is_played_again_in_its_format(copied):
    """Its file is that of an older version, whose games have other numbers."""
    layout, folder = copied.layout, copied.layout.stage(2, "selfplay")
    manifest = read_manifest(folder)
    player = restoring.self_player(copied, begin.read_start(layout, 2).player)
    progress = Progress(SILENT, copied.stop, "selfplay", "games", 5)
    records = selfplay.play_shard(copied, 2, 0, 5, player.params, progress)
    origin = ShardOrigin(0, 2, 0, player.hash, "gumbel-mcts")
    name = write_arrays(folder / "shard_0000.npz", shard_arrays(copied.game, records, origin, 2))
    write_manifest(folder, manifest._replace(outputs=manifest.outputs | {"shard_0000.npz": name}))
    flip(folder / "shard_0000.npz")
    shard = stored.StoredShard(layout.shard(name[: stored.HASH_DIGITS]), 2, 5, 30)
    assert restoring.restore_shard(copied, shard, "it is torn") is True
    assert str(read_arrays(shard.path)["text_format"]) == "2"


@pytest.fixture(scope="module")
def third(finished, tmp_path_factory):
    """A folder with the pipeline in its third iteration, which has taken in a shard from elsewhere, and `theirs`."""
    folder = tmp_path_factory.mktemp("third")
    with restored(finished[0]) as pipeline:
        shutil.copytree(pipeline.layout.root, folder / pipeline.layout.root.name)
        moved(pipeline, folder)
        write_shard(pipeline, folder / "theirs" / "one.npz")
        pipeline.config = small_config(folder, sync_from=str(folder / "theirs"))
        number = begin_iteration(pipeline, LATER)
        for stage in ("selfplay", "sync"):
            run_step(pipeline, number, due.Step(stage))
    return folder


@pytest.fixture
def mixed(finished, third, tmp_path):
    """(the pipeline with a copy of that folder, the folder of others)."""
    shutil.copytree(third, tmp_path, dirs_exist_ok=True)
    with restored(finished[0]) as pipeline:
        moved(pipeline, tmp_path).config = small_config(tmp_path, sync_from=str(tmp_path / "theirs"))
        yield pipeline, tmp_path / "theirs"


def foreign_shard(layout):
    return next(shard for shard in stored.stored_shards(layout, 3) if shard.is_foreign)


def test_a_damaged_shard_of_another_folder_is_taken_from_there_again(mixed):
    """Wherever it stands there, unless a signal ends the search."""
    pipeline, theirs = mixed
    shard, copy = foreign_shard(pipeline.layout), theirs / "one.npz"
    flip(shard.path)
    pipeline.stop.is_set = True
    with pytest.raises(Interrupted):
        restoring.restore_shard(pipeline, shard, "it is torn")
    pipeline.stop.is_set = False
    for place in ("one.npz", shard.path.name, f"store/{shard.path.name}"):
        shard.path.unlink(missing_ok=True)
        (theirs / place).parent.mkdir(exist_ok=True)
        copy = copy.rename(theirs / place)
        assert restoring.restore_shard(pipeline, shard, "it is torn") is True
        assert shard.path.is_file()
    assert not read_lost(pipeline.layout)
    assert "lost" not in run_step(pipeline, 3, due.Step("export")).inputs


def test_a_lost_shard_is_an_input_of_the_next_window_and_of_no_finished_one(mixed):
    pipeline, theirs = mixed
    layout, done = pipeline.layout, {number: digests(pipeline.layout, number) for number in (1, 2)}
    shard = foreign_shard(layout)
    totals = status.read_status(layout.root.parent)["games"][0]["lost"]
    assert totals == {"shards": 0, "games": 0, "positions": 0}
    flip(shard.path)
    (theirs / "one.npz").unlink()
    warnings, _ = heard(pipeline)
    first = run_iteration(pipeline, LATER)
    assert len(warnings) == 1
    assert "it came from elsewhere, and is not there any more: its 5 games are lost" in warnings[0]
    assert first.exported.facts["lost"] == [shard.hash]
    totals = status.read_status(layout.root.parent)["games"][0]["lost"]
    assert totals == {"shards": 1, "games": 5, "positions": shard.num_positions}
    assert any("1 shard lost" in line for line in status_text.status_lines(status.read_status(layout.root.parent)))
    second = run_iteration(pipeline, LATER)
    assert len(warnings) == 1  # it is said once
    assert second.exported.inputs["lost"] == first.exported.inputs["lost"]
    assert {number: digests(layout, number) for number in (1, 2)} == done
    for name in ("export", "train", "promote"):
        (layout.stage(4, name) / "manifest.json").unlink()
    for text in ("", "[]", "{}", layout.lost.read_text().replace('"sha256": "', '"sha256": "0')):
        layout.lost.write_text(text)
        assert read_lost(layout) == {}
    assert run_iteration(pipeline, LATER).exported.digest == second.exported.digest  # it is found again


def test_a_finished_window_is_kept_whatever_is_lost_later(mixed):
    pipeline, theirs = mixed
    layout = pipeline.layout
    before = run_step(pipeline, 3, due.Step("export"))
    shard = foreign_shard(layout)
    (theirs / "one.npz").unlink()
    flip(shard.path)
    assert restoring.restore_shard(pipeline, shard, "it is torn") is False
    assert export.export_stage(pipeline, files_of(pipeline.layout, 3)) == before
    assert due.due_step(layout, 3) == due.Step("train")


def test_every_lost_shard_is_noted(tmp_path):
    layout = Layout(tmp_path)
    for name in ("one", "two"):
        lost_shards.add_lost(layout, layout.shard(name), 1, 5, 30, "it is torn")
    assert read_lost(layout).keys() == {"one", "two"}
    assert lost_shards.totals(layout) == {"shards": 2, "games": 10, "positions": 60}


def test_a_lost_shard_of_a_manifest_that_gives_names_alone_is_left_out_of_the_window(copied):
    layout, folder = copied.layout, copied.layout.stage(2, "sync")
    other_versions(copied)
    shard, synced = stored_shard(layout), read_manifest(folder)
    names = [row[0] for row in synced.facts["added"]]
    write_manifest(folder, synced._replace(facts=synced.facts | {"added": names}))  # as older versions wrote it
    for path in (shard.path, layout.stage(2, "selfplay") / "shard_0000.npz"):
        path.unlink()
    (layout.stage(2, "export") / "manifest.json").unlink()
    exported = export.export_stage(copied, files_of(copied.layout, 2))
    assert exported.facts["lost"] == [shard.hash]


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        full(restoring, "_quarantine", False),
        (restoring, "_quarantine", True),
        full(restoring, "link", False),
        full(restoring, "link", True),
        full(restoring, "write_arrays", False),
        (restoring, "write_arrays", True),
        full(lost_shards, "add_lost", False),
        full(lost_shards, "add_lost", True),
    ],
)
def test_a_restoration_that_is_killed_goes_on_to_the_same_end(mixed, owner, name, after):
    pipeline, theirs = mixed
    layout = pipeline.layout
    (theirs / "one.npz").unlink()
    linked(layout)
    ours, others = stored_shard(layout), foreign_shard(layout)
    for shard in (ours, others):
        flip(shard.path)
    with killed_in(owner, name, after=after):
        run_step(pipeline, 3, due.Step("export"))
    exported = run_step(pipeline, 3, due.Step("export"))
    assert exported.facts["lost"] == [others.hash]
    assert stored.read_games(ours.path).origin == ours.origin
    assert read_lost(layout).keys() == {others.hash}


def test_a_shard_of_an_iteration_that_was_left_is_played_again_by_sync(copied):
    number = begin_iteration(copied)
    run_step(copied, number, due.Step("selfplay"))
    flip(copied.layout.stage(number, "selfplay") / "shard_0000.npz")
    report = run_iteration(copied, LATER._replace(new_iteration=True))
    assert report.synced.facts["games"] == 40
    assert not read_lost(copied.layout)


def test_a_window_that_reaches_back_to_removed_shards_ends_there(copied):
    """Shards were lost, so that it reaches further than retention had foreseen."""
    layout = copied.layout
    (layout.root / stored.MARK).write_text('{"cleaned_below": 2}')
    for shard in stored.stored_shards(layout, 1):
        shard.path.unlink()
    warnings, _ = heard(changed(copied, window_positions=1000))
    report = run_iteration(copied, LATER)
    assert report.exported.inputs["ends_at"] == "1"
    assert "lost" not in report.exported.inputs
    assert warnings == []
    window = read_arrays(layout.stage(3, "export") / "window.npz")
    assert set(window["iteration"].tolist()) == {2, 3}
