"""Games that are cut: shards without them are kept, restored and told from those of older versions."""

import pytest
from support.damaged_pipelines import flip
from support.pipelines import changed, small_pipeline

from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.manifest import read_manifest, write_manifest
from stoix_like.selfplay.files import stored
from stoix_like.selfplay.iterations import due
from stoix_like.selfplay.iterations.begin import IterationOptions, begin_iteration
from stoix_like.selfplay.iterations.steps import run_step
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.stages import restoring, selfplay

LATER = IterationOptions(skip_evaluation=True)


def stored_shard(layout, number=2):
    return stored.added_shards(layout, number, read_manifest(layout.stage(number, "sync")))[0]


@pytest.mark.full
def test_a_shard_of_which_games_were_cut_is_kept_and_played_again_as_it_was(tmp_path):
    """All of its games are played again, also those that are not in it."""
    pipeline = small_pipeline(tmp_path, max_game_plies=6)
    layout, number = pipeline.layout, begin_iteration(pipeline, LATER)
    first = run_step(pipeline, number, due.Step("selfplay"))
    run_step(pipeline, number, due.Step("sync"))
    assert 0 < first.facts["truncated"] < first.facts["games"] + first.facts["truncated"] == 10
    (layout.stage(number, "selfplay") / "manifest.json").unlink()
    again = run_step(pipeline, number, due.Step("selfplay"))
    assert (again.outputs, again.facts) == (first.outputs, first.facts)
    assert again.recorded["games_of_last_process"] == 0
    shard = stored_shard(layout, number)
    flip(shard.path)
    assert restoring.restore_shard(pipeline, shard, "it is torn") is True
    assert read_manifest(layout.stage(number, "selfplay")).outputs == first.outputs


@pytest.mark.full
def test_where_all_games_are_cut_it_is_said_how_to_go_on(tmp_path):
    pipeline = small_pipeline(tmp_path, max_game_plies=4)  # nobody has won by then
    number = begin_iteration(pipeline, LATER)
    with pytest.raises(RunError, match="all 10 games were cut after 4 plies"):
        run_step(pipeline, number, due.Step("selfplay"))


@pytest.fixture
def older(copied):
    """The pipeline with a manifest of an older version, from before games could be cut."""
    folder = copied.layout.stage(2, "selfplay")
    manifest = read_manifest(folder)
    settings = dict(manifest.settings)
    del settings["max_game_plies"]
    assert "truncated" not in manifest.facts
    assert "text_num_cut" not in read_arrays(folder / "shard_0000.npz")
    write_manifest(folder, manifest._replace(settings=settings))
    return copied


@pytest.mark.full
def test_games_of_an_older_version_are_kept_and_no_others_are_taken_for_them(older):
    files = files_of(older.layout, 2)
    written = (files.folder("selfplay") / "manifest.json").read_bytes()
    assert selfplay.selfplay_stage(older, files) == read_manifest(files.folder("selfplay"))
    with pytest.raises(ConfigError, match="max_game_plies is 6, and it was begun with null"):
        selfplay.selfplay_stage(changed(older, max_game_plies=6), files)
    assert (files.folder("selfplay") / "manifest.json").read_bytes() == written


@pytest.mark.full
def test_a_shard_of_an_older_version_is_played_again(older):
    shard = stored_shard(older.layout)
    shard.path.unlink()  # a file of its own in a copied folder
    shard.path.write_bytes(b"torn")
    flip(older.layout.stage(2, "selfplay") / "shard_0000.npz")
    assert restoring.restore_shard(older, shard, "it is torn") is True
    assert stored.read_games(shard.path).origin == shard.origin
