"""Two iterations of tic-tac-toe, with nothing replaced: what stages leave on disk, and what the next call finds."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import refused
from support.pipelines import arrays_of, champion_hash, digests, moved, small_config

from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.runs.find import checkpoint_updates
from stoix_like.runtime.runs.saved import load_run
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import Manifest, read_manifest, write_manifest
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.runtime.training.callbacks import CONTINUE
from stoix_like.runtime.weights import parameters
from stoix_like.runtime.weights.parameters import stored_arrays
from stoix_like.search import gumbel
from stoix_like.selfplay.events.derive import pipeline_run
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import LOCK, PARAMETERS, STAGE_NAMES, Layout
from stoix_like.selfplay.files.shards import game_ids
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.iterations.begin import IterationOptions, begin_iteration, next_iteration
from stoix_like.selfplay.iterations.due import Step
from stoix_like.selfplay.iterations.steps import run_iteration, run_step
from stoix_like.selfplay.iterations.table import BY_NAME, files_of
from stoix_like.selfplay.pipeline import candidates, foreign
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.ratings.lineage import read_ancestry
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


def test_the_same_call_in_an_unfinished_iteration_does_nothing_twice(copied):
    layout = copied.layout
    before = digests(layout, 2)
    (layout.stage(2, "promote") / "manifest.json").unlink()
    written = {path: path.stat().st_mtime_ns for path in layout.root.rglob("*.npz")}
    report = run_iteration(copied)
    assert report.iteration == 2
    assert digests(layout, 2) == before
    assert {path: path.stat().st_mtime_ns for path in layout.root.rglob("*.npz")} == written


def test_shards_played_alone_and_in_another_order_are_the_same(finished):
    pipeline, _ = finished
    progress = Progress(SILENT, pipeline.stop, "selfplay", "games", 10)
    champion = records.read_record(records.record_path(pipeline.layout, 0))
    params = pipeline.first_params
    for shard in (1, 0):
        found = selfplay.play_shard(pipeline, 1, shard, 5, params, progress)
        made = selfplay.shard_arrays(
            pipeline.game, found, selfplay.ShardOrigin(0, 1, shard, champion.hash, pipeline.config.selfplay.engine)
        )
        stored = arrays_of(pipeline.layout.stage(1, "selfplay") / f"shard_{shard:04d}.npz")
        assert made.keys() == stored.keys()
        for name in made:
            np.testing.assert_array_equal(made[name], stored[name])


def test_another_configuration_in_a_begun_iteration_is_refused(copied):
    (copied.layout.stage(2, "promote") / "manifest.json").unlink()
    root = copied.layout.root.parent
    other = Pipeline(small_config(root, selfplay_games=15), SILENT)
    with pytest.raises(ConfigError, match="iteration 2: selfplay_games is 15, and it was begun with 10") as caught:
        run_iteration(other)
    assert "--new-iteration" in caught.value.hint
    assert next_iteration(other.layout, new=True) == 3


def test_leaves_that_the_run_cannot_change_are_refused_before_anything_is_begun(copied):
    root = copied.layout.root.parent
    for leaves, name in (({"batch_size": 32}, "batch_size"), ({"seed": 1}, "seed"), ({"hidden_dim": 16}, "hidden_dim")):
        other = Pipeline(small_config(root, **leaves), SILENT)
        with pytest.raises(ConfigError, match=f"{name}: it is .*, and the run in train/ was begun with"):
            run_iteration(other)
    assert copied.layout.iterations() == [0, 1, 2]


def test_leaves_of_self_play_may_change_from_iteration_to_iteration(copied):
    other = Pipeline(small_config(copied.layout.root.parent, num_simulations=3, selfplay_games=5), SILENT)
    assert other.settings.search.num_simulations == 3
    report = run_iteration(other, IterationOptions(skip_evaluation=True))
    assert (report.iteration, report.played.facts["games"]) == (3, 5)
    candidate = load_run(str(other.layout.stage(3, "train")))
    assert candidate.config.alphazero.num_simulations == 3  # by which it plays in contests
    assert report.trained.settings["batch_size"] == 16


@pytest.mark.parametrize(
    ("leaves", "played", "matched"),
    [
        ({}, 2, 2),
        ({"num_simulations": 5}, 5, 5),
        ({"num_simulations": 5, "match_simulations": 7}, 5, 7),
    ],
)
def test_self_play_and_matches_search_with_the_simulations_of_the_configuration(
    copied, monkeypatch, leaves, played, matched
):
    """The run in train/ knows none of these leaves, and must not be asked for them."""
    pipeline = Pipeline(small_config(copied.layout.root.parent, **leaves), SILENT)
    searched, search = [], gumbel.search

    def noted(model, params, key, states, config):
        searched.append(config.num_simulations)
        return search(model, params, key, states, config)

    monkeypatch.setattr(gumbel, "search", noted)
    progress = Progress(SILENT, pipeline.stop, "selfplay", "games", 5)
    selfplay.play_shard(pipeline, 1, 0, 5, pipeline.first_params, progress)
    assert set(searched) == {played}
    searched.clear()
    states = jax.tree.map(lambda x: jnp.asarray(x)[None], pipeline.game.init())
    pipeline.matches.network_player(pipeline.first_params, states, jax.random.key(0))
    assert searched == [matched]


def test_an_iteration_that_is_left_gives_its_games_and_nothing_of_its_training(copied, monkeypatch):
    """The next one learns from them, and begins where the latest candidate was made."""
    layout, before = copied.layout, read_manifest(copied.layout.stage(2, "train")).facts["update"]
    monkeypatch.setattr(train, "write_candidate", fail)
    with pytest.raises(Killed):
        run_iteration(copied)
    monkeypatch.undo()
    left = checkpoint_updates(layout.train_run / "checkpoints")
    assert max(left) > before
    (layout.stage(3, "sync") / "manifest.json").unlink()  # as if it had been left even before
    report = run_iteration(copied, IterationOptions(new_iteration=True, skip_evaluation=True))
    assert (report.iteration, report.synced.facts["games"]) == (4, 40)
    facts = report.trained.facts
    assert facts["update"] == before + facts["updates"]
    assert facts["new_positions"] == sum(len(arrays_of(layout.stage(n, "selfplay") / name)["player"])
        for n in (3, 4) for name in ("shard_0000.npz", "shard_0001.npz"))  # fmt: skip


def test_an_iteration_that_another_process_has_begun_meanwhile_is_not_left(copied):
    """The caller has seen iteration 2, and leaves that one alone."""
    leaves = IterationOptions(new_iteration=True)
    assert begin_iteration(copied, leaves, last=2) == 3
    assert begin_iteration(copied, leaves, last=2) == 3
    assert begin_iteration(copied, leaves) == 4


def fail(*_args, **_kwargs):
    raise Killed


def test_files_that_come_to_another_folder_meanwhile_are_for_the_next_iteration(copied, tmp_path, monkeypatch):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    config = copied.config
    copied.config = small_config(copied.layout.root.parent, sync_from=str(theirs), seed=config.architecture.seed)
    try:
        monkeypatch.setattr(promote, "run_stage", fail)
        with pytest.raises(Killed):
            run_iteration(copied)
        monkeypatch.undo()
        done = digests(copied.layout, 3)
        (theirs / "new.npz").write_bytes(b"whatever")
        run_iteration(copied)
    finally:
        copied.config = config
    found = digests(copied.layout, 3)
    assert {name: found[name] for name in done} == done
    assert not copied.layout.quarantine.exists()


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(copied):
    layout = copied.layout
    for folder in (layout.iteration(2), layout.iteration(1), layout.train_run / "checkpoints"):
        shutil.rmtree(folder)
    records.write_record(layout.champion, records.read_record(records.record_path(layout, 0)))
    assert (layout.train_run / "config.yaml").is_file()
    assert run_iteration(copied).trained.facts["updates"] >= 1


def test_a_missing_pointer_is_refused_and_replaces_nobody(copied):
    layout = copied.layout
    known = promoted_iteration(layout)
    layout.champion.unlink()
    with pytest.raises(CheckpointError, match=r"champion\.json is missing") as caught:
        run_iteration(copied)
    assert f"iterations/{known:04d}/promote/champion.json" in caught.value.hint
    assert not layout.champion.exists()


def test_a_store_with_too_few_new_positions_is_not_learned_from(copied):
    few = Pipeline(small_config(copied.layout.root.parent, min_samples=10**6), SILENT)
    with pytest.raises(RunError, match="min_samples is 1,000,000"):
        run_iteration(few, IterationOptions(skip_selfplay=True))
    enough = Pipeline(small_config(copied.layout.root.parent, min_samples=0), SILENT)
    report = run_iteration(enough, IterationOptions(skip_selfplay=True))
    assert report.iteration == 3  # the same one: it is no other configuration


def test_an_iteration_below_its_threshold_plays_more_into_itself_and_no_finished_shard_again(copied, monkeypatch):
    played, original = [], selfplay.play_shard

    def noted(pipeline, iteration, shard, *rest):
        played.append((iteration, shard))
        if len(played) == 5:
            raise Killed
        return original(pipeline, iteration, shard, *rest)

    monkeypatch.setattr(selfplay, "play_shard", noted)
    said = []
    pipeline = Pipeline(small_config(copied.layout.root.parent, min_samples=150), SILENT._replace(note=said.append))
    with pytest.raises(Killed):
        run_iteration(pipeline)
    report = run_iteration(pipeline)
    assert [line for line in said if "of 150 new positions (min_samples): batches of 10 games are played" in line]
    assert [shard for _, shard in played] == [0, 1, 2, 3, 4, *range(4, len(played) - 1)]  # the killed one again
    assert {number for number, _ in played} == {report.iteration} == {3}
    batches = int(report.played.inputs["batches"])
    assert report.played.facts["games"] == 10 * batches == report.synced.facts["games"] - 20
    new = report.trained.facts["new_positions"]
    assert new == report.played.facts["positions"] >= 150
    names = [f"shard_{shard:04d}.npz" for shard in range(2 * (batches - 1))]
    fewer = sum(len(arrays_of(pipeline.layout.stage(3, "selfplay") / name)["player"]) for name in names)
    assert fewer < 150  # one batch fewer would not have been enough


def test_shards_are_named_when_they_are_played_however_many_there_are(copied, monkeypatch):
    named, origin_of = [], selfplay.ShardOrigin
    monkeypatch.setattr(selfplay, "ShardOrigin", lambda *fields: named.append(fields) or origin_of(*fields))
    monkeypatch.setattr(selfplay, "play_shard", fail)
    many = Pipeline(small_config(copied.layout.root.parent, selfplay_games=100_000), SILENT)
    with pytest.raises(Killed):
        run_iteration(many)
    assert len(named) == 1


def test_a_shard_that_is_missing_from_the_store_is_linked_again_if_it_is_ours(copied):
    path = copied.layout.shard(read_manifest(copied.layout.stage(2, "sync")).facts["added"][0][0])
    path.unlink()
    report = run_iteration(copied, IterationOptions(skip_evaluation=True))
    assert path.is_file()
    assert report.synced.facts["games"] == 30


def test_a_second_process_is_refused_while_a_stage_runs(copied):
    lock = RunLock(copied.layout.root, LOCK)
    try:
        with pytest.raises(RunError, match="another process is writing") as caught:
            run_iteration(copied)
        assert f"--status --save-dir {copied.layout.root.parent}" in caught.value.hint
    finally:
        lock.close()


def test_the_hint_after_a_divergence_is_no_command_that_is_refused(copied, monkeypatch):
    """An iteration keeps the leaves that it was begun with."""

    def diverged(*_, **__):
        raise RunError("a loss is not finite", f"lower the learning rates, and {CONTINUE}")

    monkeypatch.setattr(train, "train", diverged)
    with pytest.raises(RunError, match="not finite") as caught:
        run_iteration(copied)
    assert caught.value.hint.startswith("lower the learning rates, and begin the next iteration")
    assert caught.value.hint.endswith("--resume --new-iteration")
    monkeypatch.undo()
    root = copied.layout.root.parent
    changed = Pipeline(small_config(root, actor_lr=1e-4), SILENT)  # as the hint says
    report = run_iteration(changed, IterationOptions(new_iteration=True, skip_evaluation=True))
    assert (report.iteration, report.synced.facts["games"]) == (4, 40)


def test_rollback_makes_the_champion_before_champion_again(copied):
    layout = copied.layout
    chain = list(records.lineage(layout))
    assert len(chain) > 1, "the configuration of this test promotes someone"
    before, now = roll_back(layout)
    assert (before, now) == (chain[1], chain[0])
    assert champion_hash(layout) == chain[1].hash
    while records.read_record(layout.champion).previous is not None:
        roll_back(layout)
    with refused(ConfigError, hint="there is nothing to go back to"):
        roll_back(layout)


def test_the_lineage_says_what_became_of_every_candidate(copied):
    layout = copied.layout
    chain = [record.iteration for record in records.lineage(layout)]
    before = {one.iteration: one.status for one in read_ancestry(layout).candidates}
    assert before[chain[0]] == "champion"
    assert all(before[number] == "former champion" for number in chain[1:])
    assert before.keys() == {0, 1, 2}
    roll_back(layout)
    after = {one.iteration: one.status for one in read_ancestry(layout).candidates}
    assert after == before | {chain[0]: "rolled back", chain[1]: "champion"}


def test_the_lineage_knows_champions_by_their_hash_and_not_by_their_iteration(copied):
    """Another candidate stands where the champion was made, as when its stage was done again elsewhere."""
    layout = copied.layout
    number, folder = promoted_iteration(layout), layout.stage(promoted_iteration(layout), "train")
    trained = read_manifest(folder)
    write_manifest(folder, trained._replace(facts=trained.facts | {"candidate": "another"}))
    statuses = {one.hash: one.status for one in read_ancestry(layout).candidates}
    assert statuses["another"] == "undecided"
    assert champion_hash(layout) not in statuses
    write_manifest(folder, trained)
    other = layout.stage(number - 1, "train")
    write_manifest(other, read_manifest(other)._replace(facts=trained.facts))  # two iterations made the same
    assert [one.status for one in read_ancestry(layout).candidates[-2:]] == ["champion", "champion"]


@pytest.mark.parametrize(
    ("promoted", "verdict", "evaluated", "status"),
    [
        (True, "promote", "abc", "promoted"),
        (False, "promote", "abc", "not promoted (--no-auto-promote)"),
        (False, "reject", "abc", "rejected"),
        (False, "inconclusive", "abc", "inconclusive"),
        (False, "invalid", "abc", "no valid evidence"),
        (False, "invalid", "", "not evaluated"),
    ],
)
def test_the_words_of_decisions(promoted, verdict, evaluated, status):
    facts = {"promoted": promoted, "verdict": verdict}
    assert records.status_of(Manifest("promote", {"evaluate": evaluated}, {}, {}, facts, {})) == status


def roll_back(layout):
    return records.roll_back(layout, lambda path: array_hash(stored_arrays(path)))


def test_rollback_is_refused_while_a_promotion_is_unfinished_or_the_predecessor_is_damaged(copied):
    layout = copied.layout
    now = records.read_record(layout.champion)
    without_later_iterations(layout, now.iteration)
    manifest = layout.stage(now.iteration, "promote") / "manifest.json"
    text = manifest.read_text()
    manifest.unlink()
    with pytest.raises(ConfigError, match="was interrupted"):
        roll_back(layout)
    manifest.write_text(text)
    before = records.read_record(records.record_path(layout, now.previous))
    shutil.copyfile(layout.root / now.parameters, layout.root / before.parameters)
    with pytest.raises(CheckpointError, match="has the hash"):
        roll_back(layout)
    assert champion_hash(layout) == now.hash


def without_later_iterations(layout, last):
    for number in range(last + 1, layout.last_iteration() + 1):
        shutil.rmtree(layout.iteration(number))


def promoted_iteration(layout):
    return max(record.iteration for record in records.lineage(layout))


def decide_again(pipeline):
    """Runs the stage `promote` of the last promoted iteration again, from before the promotion."""
    layout = pipeline.layout
    number = promoted_iteration(layout)
    roll_back(layout)
    (layout.stage(number, "promote") / "manifest.json").unlink()
    before = champion_hash(layout)
    return promote.promote_stage(pipeline, files_of(pipeline.layout, number)).facts, before


def test_the_decision_is_the_same_again(copied):
    facts, _ = decide_again(copied)
    assert facts["promoted"]


def test_a_tampered_manifest_shard_candidate_or_record_is_refused_by_name(copied):
    layout = copied.layout
    manifest = layout.stage(2, "train") / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"updates"', '"updatez"'))
    with pytest.raises(CheckpointError, match="was changed after it had been written"):
        read_manifest(manifest.parent)
    champion = json.loads(layout.champion.read_text())
    champion["body"]["hash"] = "0" * 64
    layout.champion.write_text(json.dumps(champion))
    with pytest.raises(CheckpointError, match="was changed after it had been written"):
        records.read_record(layout.champion)


def test_another_candidate_in_the_place_of_the_evaluated_one_is_refused(copied):
    layout = copied.layout
    number = promoted_iteration(layout)
    shutil.copyfile(layout.stage(0, "train") / PARAMETERS, layout.stage(number, "train") / PARAMETERS)
    with pytest.raises(CheckpointError, match="has the hash"):
        decide_again(copied)


def test_a_candidate_of_another_game_is_refused(copied):
    number = promoted_iteration(copied.layout)
    path = copied.layout.stage(number, "train") / PARAMETERS
    metadata, params = parameters.read_metadata(path), copied.read_params(path)
    path.write_bytes(parameters.serialize(jax.tree.map(np.asarray, params), metadata._replace(task_id="connect_four")))
    with pytest.raises(CheckpointError, match="is a candidate of connect_four"):
        decide_again(copied)
    shutil.copyfile(path, copied.layout.root / records.read_record(copied.layout.champion).parameters)
    with pytest.raises(CheckpointError, match="is a candidate of connect_four"):
        run_iteration(copied)


def test_without_evaluation_nothing_is_promoted(copied):
    before = champion_hash(copied.layout)
    report = run_iteration(copied, IterationOptions(skip_selfplay=True, skip_evaluation=True))
    assert (report.iteration, report.evaluated, report.played) == (3, None, None)
    assert report.promoted.facts["verdict"] == "invalid"
    assert report.promoted.facts["reasons"] == ["no games were played"]
    assert champion_hash(copied.layout) == before
    assert report.trained.facts["new_positions"] == 0
    assert report.trained.facts["updates"] == 1


def test_a_window_from_elsewhere_is_learned_from(copied):
    path = copied.layout.stage(1, "export") / "window.npz"
    report = run_iteration(copied, IterationOptions(skip_evaluation=True, data_path=path))
    assert report.synced is None
    assert report.exported.inputs.keys() == {"data_path"}
    facts = report.trained.facts
    assert facts["new_positions"] == report.exported.facts["positions"]


def test_a_window_from_elsewhere_that_has_changed_since_the_iteration_was_begun_is_refused(copied, tmp_path):
    window, other = (copied.layout.stage(number, "export") / "window.npz" for number in (2, 1))
    path = tmp_path / "window.npz"
    shutil.copyfile(window, path)
    number = begin_iteration(copied, IterationOptions(data_path=path, skip_evaluation=True))
    shutil.copyfile(other, path)
    with pytest.raises(CheckpointError, match="is not the window that iteration 3 was begun with"):
        run_step(copied, number, Step("export"), path)
    assert read_manifest(copied.layout.stage(number, "export")) is None


def test_the_number_of_updates_follows_new_positions_or_epochs(finished, tmp_path):
    pipeline, _ = finished
    samples = pipeline.settings.most_gradient_steps * 16
    assert samples == 64  # 4 * 4 positions, each 4 times
    assert train.num_updates(pipeline, 100, 48) == 3
    assert train.num_updates(pipeline, 100, 49) == 4
    assert train.num_updates(pipeline, 100, 0) == 1
    by_epochs = Pipeline(small_config(tmp_path, training_epochs=2.0), SILENT)
    assert train.num_updates(by_epochs, 100, 48) == 4  # 200 samples


def test_the_store_of_another_machine_is_taken_in_once_and_what_is_broken_is_named(finished, copied, tmp_path):
    theirs = tmp_path / "theirs" / "store"
    theirs.mkdir(parents=True)
    names = ["one.npz", "two.npz"]
    for shard, name in enumerate(names):  # of a machine that is far ahead
        progress = Progress(SILENT, copied.stop, "selfplay", "games", 10)
        found = selfplay.play_shard(copied, 900, shard, 5, copied.first_params, progress)
        write_arrays(
            theirs / name, selfplay.shard_arrays(copied.game, found, selfplay.ShardOrigin(0, 900, shard, "p", "e"))
        )
    (theirs / ".three.17.tmp.npz").write_bytes(b"being written")
    shutil.copyfile(theirs / names[0], theirs / "again.npz")
    (theirs / "torn.npz").write_bytes((theirs / names[0]).read_bytes()[:200])
    arrays = read_arrays(theirs / names[0])
    cheated = arrays | {"outcome": -arrays["outcome"]}
    write_arrays(theirs / "cheated.npz", cheated | {"game_id": game_ids(cheated)})
    np.savez(theirs / "pickled.npz", moves=np.array([{}], object))
    said = []
    copied.reporter = SILENT._replace(warning=said.append)
    config = copied.config
    copied.config = small_config(copied.layout.root.parent, sync_from=str(theirs.parent))
    try:
        copied.layout.iteration(3).mkdir()
        manifest = sync.sync_stage(copied, files_of(copied.layout, 3))
    finally:
        copied.config, copied.reporter = config, SILENT
    assert manifest.facts["shards"] == 6
    assert manifest.recorded["new_shards"] == 2
    assert sorted(manifest.recorded["refused"]) == ["cheated.npz", "pickled.npz", "torn.npz"]
    assert len(said) == 3
    assert any("an outcome is not that of the moves" in text for text in said)
    assert any("pickled objects, which are never loaded" in text for text in said)
    assert {path.name for path in copied.layout.quarantine.iterdir()} == {"cheated.npz", "pickled.npz", "torn.npz"}


def test_shards_from_elsewhere_stay_when_their_files_are_gone_before_the_next_batch(copied, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    progress = Progress(SILENT, copied.stop, "selfplay", "games", 10)
    found = selfplay.play_shard(copied, 900, 0, 5, copied.first_params, progress)
    write_arrays(
        theirs / "one.npz", selfplay.shard_arrays(copied.game, found, selfplay.ShardOrigin(0, 900, 0, "p", "e"))
    )
    config = copied.config
    copied.config = small_config(copied.layout.root.parent, sync_from=str(theirs), seed=config.architecture.seed)
    try:
        number = begin_iteration(copied)
        for stage in ("selfplay", "sync"):
            run_step(copied, number, Step(stage))
        before = read_manifest(copied.layout.stage(number, "sync"))
        (theirs / "one.npz").unlink()
        copied.memory.seen.clear()  # as in another process
        for stage in ("selfplay", "sync"):
            run_step(copied, number, Step(stage, 2))
        after = read_manifest(copied.layout.stage(number, "sync"))
    finally:
        copied.config = config
    taken = before.facts["added"][-1:]
    assert before.recorded["foreign"] == after.recorded["foreign"] == [taken[0][0]]
    assert len(after.facts["added"]) == len(before.facts["added"]) + 2
    assert after.facts["added"][-1:] == taken
    assert after.facts["games"] == before.facts["games"] + 10


def test_what_sync_remembers_does_not_grow_with_the_iterations(copied):
    for number in (3, 4):
        assert run_iteration(copied).synced.facts["shards"] == 2 * number
    memory = copied.memory
    assert not memory.seen
    assert (memory.known.first, memory.known.last, len(memory.known.names)) == (3, 3, 2)


def test_of_files_from_elsewhere_sync_remembers_those_that_are_there(copied, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    config = copied.config
    copied.config = small_config(copied.layout.root.parent, sync_from=str(theirs))
    try:
        for number in (3, 4, 5):
            for old in theirs.iterdir():
                old.unlink()
            (theirs / f"{number}.npz").write_bytes(b"refused")
            shutil.copyfile(copied.layout.stage(1, "selfplay") / "shard_0000.npz", theirs / f"known_{number}.npz")
            copied.layout.iteration(number).mkdir()
            sync.sync_stage(copied, files_of(copied.layout, number))
            assert foreign.has_unseen(copied) is False
            there = {theirs / f"{number}.npz", theirs / f"known_{number}.npz"}
            assert {Path(file) for file, _, _ in copied.memory.seen} == there
            assert (copied.memory.known.first, copied.memory.known.last) == (1, number - 1)
    finally:
        copied.config = config


def test_a_dry_run_writes_nothing(finished, tmp_path):
    from stoix_like.selfplay.iterations import sequence

    config = small_config(tmp_path)
    lines = []
    code = sequence.run(
        config, sequence.LoopOptions(dry_run=True, max_iterations=3), SILENT._replace(info=lines.append)
    )
    assert code == 0
    head, first, *lines = lines
    assert head.endswith("a new pipeline")
    assert first == f"iteration 1 in {tmp_path / 'tic_tac_toe_2p'}"
    assert lines == [f"  {name}: to do" for name in STAGE_NAMES] + ["then 2 more"]
    assert not list(tmp_path.iterdir())


class Killed(BaseException):
    """The process ends here."""


#: A place in the program at which the process may end, and how often it is passed before.
DEATHS = {
    "before any shard": (selfplay, "write_arrays", 0),
    "after a shard": (selfplay, "write_arrays", 1),
    "in the middle of sync": (sync, "link", 1),
    "in the middle of the run": (train.FollowTraining, "run", 2),
    "after a piece of the match": (evaluate, "write_arrays", 1),
    "before the manifest of selfplay": ("stage", "write_manifest", 0),
    "before the manifest of sync": ("stage", "write_manifest", 1),
    "before the manifest of export": ("stage", "write_manifest", 2),
    "before the candidate": (train, "write_candidate", 0),
    "before the manifest of train": ("stage", "write_manifest", 3),
    "before the manifest of evaluate": ("stage", "write_manifest", 4),
    "before the record of the promotion": ("records", "write_record", 0),
    "between record and pointer": ("records", "write_record", 1),
    "before the manifest of promote": ("stage", "write_manifest", 5),
}


QUICK = ("after a shard", "in the middle of the run", "between record and pointer")


@pytest.mark.parametrize(
    "where", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.full) for name in DEATHS]
)
def test_a_killed_iteration_goes_on_to_the_same_hashes(finished, tmp_path, monkeypatch, where):
    import stoix_like.runtime.stages.run as stage_module

    pipeline, _ = finished
    reference = pipeline.layout
    try:
        moved(pipeline, tmp_path)
        module, name, passes = DEATHS[where]
        module = {"stage": stage_module, "records": promote.records}.get(module, module)
        original, calls = getattr(module, name), []

        def dying(*args, **kwargs):
            if module is promote.records and not calls and not pipeline.layout.stage(1, "evaluate").exists():
                return original(*args, **kwargs)  # the records of iteration 0
            calls.append(name)
            if len(calls) > passes:
                raise Killed
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, dying)
        with pytest.raises(Killed):
            run_iteration(pipeline)
        monkeypatch.undo()
        finished_before = done(pipeline.layout)
        run_iteration(pipeline)
        assert done(pipeline.layout).items() >= finished_before.items()  # nothing was done twice
        run_iteration(pipeline)
        for number in (1, 2):
            assert digests(pipeline.layout, number) == digests(reference, number)
        assert champion_hash(pipeline.layout) == champion_hash(reference)
        assert begin.next_iteration(pipeline.layout) == 3
    finally:
        pipeline.layout = reference


@pytest.mark.parametrize(
    ("module", "name", "passes"),
    [
        (candidates, "write_candidate", 0),
        (candidates, "write_record", 0),
        (candidates, "write_record", 1),
        (begin, "write_start", 0),
    ],
)
def test_a_first_start_that_died_is_begun_again(finished, tmp_path, monkeypatch, module, name, passes):
    pipeline, _ = finished
    reference = pipeline.layout
    try:
        layout, original, calls = moved(pipeline, tmp_path).layout, getattr(module, name), []

        def dying(*args):
            calls.append(name)
            return original(*args) if len(calls) <= passes else fail()

        monkeypatch.setattr(module, name, dying)
        with pytest.raises(Killed):
            begin_iteration(pipeline)
        monkeypatch.undo()
        assert begin_iteration(pipeline) == 1
        first = records.read_record(records.record_path(reference, 0))
        assert list(records.lineage(layout)) == [first] == [records.read_record(records.record_path(layout, 0))]
    finally:
        pipeline.layout = reference


@pytest.mark.parametrize("rollbacks", [0, 1])
def test_a_pipeline_without_the_record_of_its_first_parameters_knows_them(copied, rollbacks):
    """Starts of earlier versions that died left it so."""
    layout = copied.layout
    for _ in range(rollbacks):
        while records.read_record(layout.champion).previous is not None:
            roll_back(layout)
    chain, run, table = list(records.lineage(layout)), pipeline_run(layout), read_ancestry(layout)
    shutil.rmtree(records.record_path(layout, 0).parent)
    assert list(records.lineage(layout)) == chain
    assert pipeline_run(layout) == run
    assert read_ancestry(layout) == table
    assert begin_iteration(copied) == 3
    assert records.read_record(records.record_path(layout, 0)) == chain[-1]


def test_a_promotion_that_was_interrupted_can_be_rolled_back_once_its_iteration_is_left(copied):
    layout = copied.layout
    now, before, *_ = records.lineage(layout)
    without_later_iterations(layout, now.iteration)
    (layout.stage(now.iteration, "promote") / "manifest.json").unlink()  # killed before it was written
    with pytest.raises(ConfigError, match="was interrupted") as caught:
        roll_back(layout)
    assert "--new-iteration" in caught.value.hint
    assert begin_iteration(copied, IterationOptions(new_iteration=True)) == now.iteration + 1
    assert roll_back(layout) == (before, now)
    assert next(records.lineage(layout)) == before


def done(layout):
    """{file: when it was written} of what is finished: manifests, shards, pieces of matches."""
    files = [*layout.root.rglob("manifest.json"), *layout.root.rglob("shard_*.npz"), *layout.root.rglob("piece_*.npz")]
    return {path: path.stat().st_mtime_ns for path in files if not path.name.startswith(".")}


def test_the_layout_of_a_folder_without_a_pipeline(tmp_path):
    from stoix_like.selfplay.files.folders import find_layout

    assert Layout(tmp_path).iterations() == []
    with pytest.raises(CheckpointError, match="is no folder of a self-play pipeline"):
        find_layout(str(tmp_path))


def test_the_table_has_a_stage_for_each_folder_of_an_iteration_in_their_order():
    assert tuple(BY_NAME) == STAGE_NAMES
