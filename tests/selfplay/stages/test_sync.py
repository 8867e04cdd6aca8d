"""The stage `sync`: shards of other folders."""

import dataclasses
import shutil

from support.loops import small_loop

from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.pipeline import foreign
from stoix_like.selfplay.stages import sync


def test_removed_shards_of_other_folders_are_not_taken_in_again(copied_loop, tmp_path):
    pipeline, folder = copied_loop
    theirs = tmp_path / "theirs"
    shutil.copytree(folder / "tic_tac_toe_2p" / "store", theirs)
    with small_loop(pipeline, folder) as loop:
        section = dataclasses.replace(pipeline.config.selfplay, sync_from=str(theirs))
        loop.runner.config = pipeline.config = dataclasses.replace(pipeline.config, selfplay=section)
        pipeline.memory.seen.clear()
        for path in loop.layout.store.iterdir():
            path.unlink()  # as retention does
        loop.layout.iteration(3).mkdir()
        synced = sync.sync_stage(pipeline, files_of(pipeline.layout, 3))
        assert synced.facts["added"] == []
        assert list(loop.layout.store.iterdir()) == []
        assert not foreign.has_unseen(pipeline)
        (theirs / "torn.npz").write_bytes(b"PK")
        assert foreign.has_unseen(pipeline)
        sync.sync_stage(pipeline, files_of(pipeline.layout, 3), again=True)
        sync.sync_stage(pipeline, files_of(pipeline.layout, 3), again=True)
        assert len([line for line in loop.said if "torn.npz" in line]) == 1
