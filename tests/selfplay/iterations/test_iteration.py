"""Two iterations of tic-tac-toe, with nothing replaced: what stages leave on disk, and what the next call finds."""

from pathlib import Path

import numpy as np
import pytest
from support.deaths import killed_in
from support.marks import quick
from support.pipelines import arrays_of, champion_hash, digests, small_config

import stoix_like.runtime.stages.run as stage_module
from stoix_like.errors import CheckpointError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout
from stoix_like.selfplay.iterations import begin, sequence
from stoix_like.selfplay.iterations.begin import begin_iteration, next_iteration
from stoix_like.selfplay.iterations.due import Step, is_still_due
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.iterations.table import BY_NAME
from stoix_like.selfplay.pipeline import candidates
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages import evaluate, promote, selfplay, sync, train


def test_every_stage_leaves_a_manifest_and_the_next_call_begins_the_next_iteration(finished):
    pipeline, (first, second) = finished
    assert (first.iteration, second.iteration) == (1, 2)
    for number in (1, 2):
        assert list(digests(pipeline.layout, number)) == list(STAGE_NAMES)
    assert next_iteration(pipeline.layout) == 3
    assert first.played.facts["games"] == 10
    assert second.synced.facts["games"] == 20
    assert second.synced.recorded["new_shards"] == 2
    assert first.played.outputs.keys() == {"shard_0000.npz", "shard_0001.npz"}


def test_the_run_goes_on_from_the_latest_candidate_whether_it_was_promoted_or_not(finished):
    pipeline, (first, second) = finished
    updates = [report.trained.facts["updates"] for report in (first, second)]
    assert second.trained.facts["update"] == sum(updates)
    assert first.trained.facts["candidate"] != second.trained.facts["candidate"]
    checkpoints = pipeline.layout.train_run / "checkpoints"
    assert list((checkpoints / str(sum(updates)) / "state").glob("*/.zarray"))  # the format that leaks nothing


def test_the_champion_changes_only_by_a_promotion(finished):
    pipeline, reports = finished
    champion = records.read_record(records.record_path(pipeline.layout, 0)).hash
    for report in reports:
        facts = report.promoted.facts
        assert facts["champion"] == champion
        assert report.evaluated.inputs == {"candidate": report.trained.facts["candidate"], "champion": champion}
        if facts["promoted"]:
            champion = report.trained.facts["candidate"]
    assert champion_hash(pipeline.layout) == champion
    chain = [record.iteration for record in records.lineage(pipeline.layout)]
    assert chain == [*(r.iteration for r in reversed(reports) if r.promoted.facts["promoted"]), 0]


def test_no_game_of_an_evaluation_is_ever_learned_from(finished):
    pipeline, reports = finished
    layout = pipeline.layout
    played = np.concatenate([arrays_of(path)["game_id"] for path in layout.store.glob("*.npz")])
    assert len(played) == 20
    for report in reports:
        folder = layout.stage(report.iteration, "export")
        window, held_out = (arrays_of(folder / name) for name in report.exported.outputs)
        assert set(window["game_id"]) | set(held_out["game_id"]) <= set(played)
        assert not set(window["game_id"]) & set(held_out["game_id"])  # split by game
    matches = list(layout.matches.rglob("*.npz"))
    assert matches
    for path in matches:
        with pytest.raises(CheckpointError, match="games of evaluations are never learned from"):
            sync.check_shard(pipeline.game, read_arrays(path), path.name)


def test_shards_played_alone_and_in_another_order_are_the_same(finished):
    pipeline, _ = finished
    progress = Progress(SILENT, pipeline.stop, "selfplay", "games", 10)
    champion = records.read_record(records.record_path(pipeline.layout, 0))
    for shard in (1, 0):
        found = selfplay.play_shard(pipeline, 1, shard, 5, pipeline.first_params, progress)
        origin = selfplay.ShardOrigin(0, 1, shard, champion.hash, pipeline.config.selfplay.engine)
        made = selfplay.shard_arrays(pipeline.game, found, origin)
        stored = arrays_of(pipeline.layout.stage(1, "selfplay") / f"shard_{shard:04d}.npz")
        assert made.keys() == stored.keys()
        for name in made:
            np.testing.assert_array_equal(made[name], stored[name])


def done(layout):
    """{file: when it was written} of what is finished: manifests, shards, pieces of matches."""
    files = [path for name in ("manifest.json", "shard_*.npz", "piece_*.npz") for path in layout.root.rglob(name)]
    return {path: path.stat().st_mtime_ns for path in files if not path.name.startswith(".")}


#: {where the process may end: (what it calls there, how often it has done so before)}. Just before the manifest of each
#: stage, tests/integration/test_killed_loops.py kills real processes.
DEATHS = {
    "before any shard": (selfplay, "write_arrays", 0),
    "after a shard": (selfplay, "write_arrays", 1),
    "in the middle of sync": (sync, "link", 1),
    "in the middle of the run": (train.FollowTraining, "run", 2),
    "before the candidate": (train, "write_candidate", 0),
    "after a piece of the match": (evaluate, "write_arrays", 1),
    "before the record of the promotion": (promote.records, "write_record", 0),
    "between record and pointer": (promote.records, "write_record", 1),
    "after the pointer": (stage_module, "write_manifest", 5),
}


#: Before and after the pointer of a champion, the next process finds different halves of a promotion.
QUICK = ("after a shard", "in the middle of the run", "between record and pointer", "after the pointer")


@pytest.mark.parametrize("where", quick(DEATHS, QUICK))
def test_a_killed_iteration_goes_on_to_the_same_hashes(finished, fresh, where):
    reference = Layout(Path(finished[0].config.checkpointing.save_dir) / fresh.layout.root.name)
    owner, name, passes = DEATHS[where]
    is_first_record = lambda: owner is promote.records and not fresh.layout.stage(1, "evaluate").exists()
    with killed_in(owner, name, passes, counts=lambda: not is_first_record()):
        run_iteration(fresh)
    finished_before = done(fresh.layout)
    run_iteration(fresh)
    assert done(fresh.layout).items() >= finished_before.items()  # nothing was done twice
    run_iteration(fresh)
    for number in (1, 2):
        assert digests(fresh.layout, number) == digests(reference, number)
    assert list(records.lineage(fresh.layout)) == list(records.lineage(reference))
    assert next_iteration(fresh.layout) == 3


@pytest.mark.parametrize(
    ("owner", "name", "passes"),
    [
        (candidates, "write_candidate", 0),
        (candidates, "write_record", 0),
        (candidates, "write_record", 1),
        (begin, "write_start", 0),
    ],
)
def test_a_first_start_that_died_is_begun_again(finished, fresh, owner, name, passes):
    _, (first, _) = finished
    with killed_in(owner, name, passes):
        begin_iteration(fresh)
    assert begin_iteration(fresh) == 1
    chain = list(records.lineage(fresh.layout))
    assert chain == [records.read_record(records.record_path(fresh.layout, 0))]
    assert [record.hash for record in chain] == [first.promoted.facts["champion"]]


def test_a_dry_run_writes_nothing(tmp_path):
    lines, options = [], sequence.LoopOptions(dry_run=True, max_iterations=3)
    assert sequence.run(small_config(tmp_path), options, SILENT._replace(info=lines.append)) == 0
    head, first, *lines = lines
    assert head.endswith("a new pipeline")
    assert first == f"iteration 1 in {tmp_path / 'tic_tac_toe_2p'}"
    assert lines == [f"  {name}: to do" for name in STAGE_NAMES] + ["then 2 more"]
    assert not list(tmp_path.iterdir())


def test_the_table_has_a_stage_for_each_folder_of_an_iteration_in_their_order():
    assert tuple(BY_NAME) == STAGE_NAMES


def test_a_step_is_due_until_another_process_has_run_it_and_one_batch_more_until_the_games_are_learned_from(copied):
    layout = copied.layout
    for name in STAGE_NAMES[2:]:
        (layout.stage(2, name) / "manifest.json").unlink()
    steps = [Step("export"), Step("selfplay", 2), Step("selfplay", 3), Step("selfplay"), Step("sync"), Step("train")]
    assert [is_still_due(layout, 2, step) for step in steps] == [True, True, False, False, False, False]
    assert not is_still_due(layout, 1, Step("promote"))  # it is finished
