"""Retention that is killed at any moment: the next one finishes its work, and what is gone is named."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.deaths import Killed
from support.marks import full
from support.pipelines import digests, moved, restored

from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import read_manifest, write_manifest
from stoix_like.runtime.weights.parameters import stored_arrays
from stoix_like.selfplay.files import lost_shards, records, retention, stored
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout
from stoix_like.selfplay.files.retention import MARK, REMOVED, RetentionRule
from stoix_like.selfplay.iterations.begin import IterationOptions
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.ratings.lineage import read_ancestry

RULE = RetentionRule(positions=100, candidates=2)
LATER = IterationOptions(skip_evaluation=True)


@pytest.fixture(scope="module")
def six(finished, tmp_path_factory):
    """The folder of a game after six iterations, of which the first two could promote someone."""
    save_dir = tmp_path_factory.mktemp("retention")
    with restored(finished[0]) as pipeline:
        shutil.copytree(pipeline.layout.root, save_dir / pipeline.layout.root.name)
        moved(pipeline, save_dir)
        assert [run_iteration(pipeline, LATER).iteration for _ in range(4)] == [3, 4, 5, 6]
        return pipeline.layout


def copy_of(layout, save_dir):
    """A copy of it; no file is written in place, so names of the same files are enough."""
    shutil.copytree(layout.root, save_dir / layout.root.name, copy_function=os.link)
    return Layout(save_dir / layout.root.name)


def files(layout):
    """The names of all files of a game, without those that say what was removed."""
    found = {path.relative_to(layout.root).as_posix() for path in layout.root.rglob("*") if path.is_file()}
    return {name for name in found if not name.endswith((REMOVED, MARK))}


def doomed(layout):
    """What is to be removed of the first four iterations: the last two have more than 100 positions, 60 each."""
    found, champions = set(), {record.iteration for record in records.lineage(layout)}
    for number in (1, 2, 3, 4):
        stages = f"iterations/{number:04d}"
        found |= {f"{stages}/export/{name}.npz" for name in ("window", "validation")}
        found |= {f"{stages}/selfplay/shard_{shard:04d}.npz" for shard in (0, 1)}
        found |= {f"store/{name}.npz" for name, *_ in read_manifest(layout.stage(number, "sync")).facts["added"]}
        found |= set() if number in champions else {f"{stages}/train/params.safetensors"}
    return found


def named(layout):
    """What `removed.json` of all iterations name."""
    notes = layout.root.glob(f"iterations/*/{REMOVED}")
    return {name for note in notes for name in json.loads(note.read_text())["files"]}


@contextlib.contextmanager
def killed_before(operation):
    """Ends the process before it removes or notes something for the n-th time, from 0; gives what it did until then."""
    made = []

    def counted(original, name):
        def call(path, *arguments, **options):
            if not path.name.startswith("."):  # of a file that is being written
                if len(made) == operation:
                    raise Killed
                made.append(name)
            return original(path, *arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", counted(Path.unlink, "remove"))
        patch.setattr(retention, "atomic_write_json", counted(retention.atomic_write_json, "note"))
        yield made


def check_finished(layout, everything, gone):
    """What was to be removed is gone and named, everything else is there, and nothing is left to do."""
    assert retention.clean(layout, RULE) >= 0
    assert files(layout) == everything - gone
    assert named(layout) == gone
    assert json.loads((layout.root / MARK).read_text()) == {"cleaned_below": 5}
    assert retention.clean(layout, RULE) == 0


@pytest.mark.parametrize("every", [4, full(1)])
def test_a_clean_that_is_killed_anywhere_is_finished_by_the_next_one(six, tmp_path, every):
    """Before its first operation, and then before every fourth, or any."""
    everything, gone = files(six), doomed(six)
    assert gone < everything
    operation, is_killed = 0, True
    while is_killed:
        layout = copy_of(six, tmp_path / str(operation))
        with killed_before(operation) as made:
            try:
                retention.clean(layout, RULE)
                is_killed = False
            except Killed:
                assert len(made) == operation
        assert everything - gone <= files(layout)  # nothing that is kept is lost
        assert everything - files(layout) <= named(layout) <= gone
        assert made.count("remove") == len(everything - files(layout))
        check_finished(layout, everything, gone)
        operation += every
    assert made.count("remove") == len(gone)
    assert made.count("note") == 4 + 1  # one of each iteration, and the mark


def test_what_killed_processes_have_left_is_removed(six, tmp_path):
    layout = copy_of(six, tmp_path)
    left = [layout.stage(number, "selfplay") / "shard_0007.npz" for number in (1, 5)]  # never finished
    left += [layout.stage(number, "export") / ".window.17.tmp.npz" for number in (2, 5)]
    for path in left:
        path.write_bytes(b"torn")
    retention.clean(layout, RULE)
    assert [path.is_file() for path in left] == [False, True, False, True]


@pytest.mark.parametrize(("candidates", "first_kept"), [(1, 6), (2, 5), (3, 4)])
def test_the_parameters_of_so_many_newest_candidates_are_kept(six, tmp_path, candidates, first_kept):
    layout = copy_of(six, tmp_path)
    for number in range(1, 7):
        records.record_path(layout, number).unlink(missing_ok=True)  # so that none is kept as a champion
    retention.clean(layout, RetentionRule(positions=100, candidates=candidates))
    kept = [number for number in range(1, 7) if (layout.stage(number, "train") / "params.safetensors").is_file()]
    assert kept == list(range(min(first_kept, 5), 7))  # the last two iterations stay whole


@pytest.mark.full
def test_cleans_that_are_all_killed_after_a_file_come_to_the_same_end(six, tmp_path):
    layout, everything, gone = copy_of(six, tmp_path), files(six), doomed(six)
    for left in reversed(range(len(gone))):
        with killed_before(2), contextlib.suppress(Killed):
            retention.clean(layout, RULE)
        assert len(gone & files(layout)) == left
    check_finished(layout, everything, gone)


def test_games_that_windows_leave_out_are_not_counted(six, tmp_path):
    """The fifth iteration has the games of the sixth once more: a window of 100 positions reaches to the fourth."""
    layout = copy_of(six, tmp_path)
    newest, folder = read_manifest(layout.stage(6, "sync")), layout.stage(5, "sync")
    synced, added = read_manifest(folder), []
    for name, games, positions, origin in newest.facts["added"]:
        arrays = read_arrays(layout.shard(name)) | {"text_shard": np.array(str(origin[-1] + 70))}
        path = layout.store / "copy.npz"
        again = write_arrays(path, arrays)[: stored.HASH_DIGITS]
        path.rename(layout.shard(again))
        added.append([again, games, positions, [*origin[:-1], origin[-1] + 70]])
    write_manifest(folder, synced._replace(facts=synced.facts | {"added": added}))
    held = sum(positions for _, _, positions, _ in newest.facts["added"])
    assert held < RULE.positions <= 2 * held  # which was enough when every game counted
    retention.clean(layout, RULE)
    shards = list(stored.stored_shards(layout, 6))
    kept = [shard for shard in shards if shard.path.is_file()]
    assert {shard.iteration for shard in kept} == {4, 5, 6}
    chosen = stored.newest_games(shards, RULE.positions, stored.remembered_games)
    assert {one.shard.path for one in chosen} <= {shard.path for shard in kept}
    lost = next(shard for shard in kept if shard.iteration == 6)
    lost_shards.add_lost(layout, lost.path, 6, lost.num_games, lost.num_positions, "it is torn")
    assert retention.clean(layout, RULE) == 0  # nothing more, and no error


def test_after_it_everything_goes_on(finished, six, tmp_path):
    layout = copy_of(six, tmp_path)
    manifests = {number: digests(layout, number) for number in range(1, 7)}
    assert retention.clean(layout, RULE) > 0
    assert {number: digests(layout, number) for number in range(1, 7)} == manifests
    read_ancestry(layout)
    with restored(finished[0]) as pipeline:
        assert run_iteration(moved(pipeline, tmp_path)).iteration == 7
    assert digests(layout, 7).keys() == {*STAGE_NAMES}
    while records.read_record(layout.champion).previous is not None:
        records.roll_back(layout, lambda path: array_hash(stored_arrays(path)))
