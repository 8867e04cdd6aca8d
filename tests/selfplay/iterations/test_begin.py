"""What an iteration is begun with: settings and options that hold for it, and what is refused before it begins."""

import shutil

import jax
import jax.numpy as jnp
import pytest
from support.deaths import killed_in
from support.marks import full
from support.pipelines import arrays_of, champion_hash, changed, digests, small_config

from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.runs.find import checkpoint_updates
from stoix_like.runtime.runs.saved import load_run
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.search import gumbel
from stoix_like.selfplay.files.folders import LOCK
from stoix_like.selfplay.iterations.begin import IterationOptions, begin_iteration, next_iteration
from stoix_like.selfplay.iterations.due import Step
from stoix_like.selfplay.iterations.steps import run_iteration, run_step
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages import promote, selfplay, train

LATER = IterationOptions(skip_evaluation=True)


def test_an_unfinished_iteration_goes_on_with_its_settings_and_does_nothing_twice(copied):
    layout = copied.layout
    before = digests(layout, 2)
    (layout.stage(2, "promote") / "manifest.json").unlink()
    written = {path: path.stat().st_mtime_ns for path in layout.root.rglob("*.npz")}
    with pytest.raises(ConfigError, match="iteration 2: selfplay_games is 15, and it was begun with 10") as caught:
        run_iteration(changed(copied, selfplay_games=15))
    assert "--new-iteration" in caught.value.hint
    assert next_iteration(layout, new=True) == 3
    assert run_iteration(changed(copied)).iteration == 2
    assert digests(layout, 2) == before
    assert {path: path.stat().st_mtime_ns for path in layout.root.rglob("*.npz")} == written


def test_leaves_that_the_run_cannot_change_are_refused_before_anything_is_begun(copied):
    for leaves, name in (({"batch_size": 32}, "batch_size"), ({"seed": 1}, "seed"), ({"hidden_dim": 16}, "hidden_dim")):
        other = Pipeline(small_config(copied.layout.root.parent, **leaves), SILENT)
        with pytest.raises(ConfigError, match=f"{name}: it is .*, and the run in train/ was begun with"):
            run_iteration(other)
    assert copied.layout.iterations() == [0, 1, 2]


@pytest.mark.parametrize(
    ("leaves", "played", "matched"),
    [
        full({}, 2, 2),
        full({"num_simulations": 5}, 5, 5),
        ({"num_simulations": 3, "match_simulations": 4}, 3, 4),
    ],
)
def test_leaves_of_self_play_and_matches_may_change_from_iteration_to_iteration(
    copied, monkeypatch, leaves, played, matched
):
    """The run in train/ knows none of these leaves, and must not be asked for them."""
    pipeline = Pipeline(small_config(copied.layout.root.parent, selfplay_games=5, **leaves), SILENT)
    searched, search = [], gumbel.search

    def noted(model, params, key, states, config):
        searched.append(config.num_simulations)
        return search(model, params, key, states, config)

    monkeypatch.setattr(gumbel, "search", noted)
    report = run_iteration(pipeline, LATER)
    assert set(searched) == {played}
    assert (report.iteration, report.played.facts["games"]) == (3, 5)
    candidate = load_run(str(pipeline.layout.stage(3, "train")))
    assert candidate.config.alphazero.num_simulations == played  # by which it plays in contests
    assert report.trained.settings["batch_size"] == 16
    searched.clear()
    states = jax.tree.map(lambda x: jnp.asarray(x)[None], pipeline.game.init())
    pipeline.matches.network_player(pipeline.first_params, states, jax.random.key(0))
    assert searched == [matched]


@pytest.mark.full
def test_an_iteration_that_is_left_gives_its_games_and_nothing_of_its_training(copied):
    """The next one learns from them, and begins where the latest candidate was made: later checkpoints are removed."""
    layout, before = copied.layout, read_manifest(copied.layout.stage(2, "train")).facts["update"]
    checkpoints = layout.train_run / "checkpoints"
    with killed_in(train, "write_candidate"):
        run_iteration(changed(copied, training_epochs=20.0))
    left = max(checkpoint_updates(checkpoints))
    (layout.stage(3, "sync") / "manifest.json").unlink()  # as if it had been left even before
    report = run_iteration(changed(copied), LATER._replace(new_iteration=True))
    assert (report.iteration, report.synced.facts["games"]) == (4, 40)
    facts = report.trained.facts
    assert max(checkpoint_updates(checkpoints)) == facts["update"] == before + facts["updates"] < left
    shards = [layout.stage(n, "selfplay") / f"shard_000{shard}.npz" for n in (3, 4) for shard in (0, 1)]
    assert facts["new_positions"] == sum(len(arrays_of(path)["player"]) for path in shards)


def test_an_iteration_that_another_process_has_begun_meanwhile_is_not_left(copied):
    """The caller has seen iteration 2, and leaves that one alone."""
    leaves = IterationOptions(new_iteration=True)
    assert begin_iteration(copied, leaves, last=2) == 3
    assert begin_iteration(copied, leaves, last=2) == 3
    assert begin_iteration(copied, leaves) == 4


def test_a_store_with_too_few_new_positions_is_not_learned_from(copied):
    with pytest.raises(RunError, match="min_samples is 1,000,000"):
        run_iteration(changed(copied, min_samples=10**6), LATER._replace(skip_selfplay=True))
    report = run_iteration(changed(copied, min_samples=0), LATER._replace(skip_selfplay=True))
    assert report.iteration == 3  # the same one: it is no other configuration


def test_an_iteration_below_its_threshold_plays_more_into_itself_and_no_finished_shard_again(copied, monkeypatch):
    played, said, original = [], [], selfplay.play_shard

    def noted(pipeline, iteration, shard, *rest):
        played.append((iteration, shard))
        return original(pipeline, iteration, shard, *rest)

    monkeypatch.setattr(selfplay, "play_shard", noted)
    copied.reporter = SILENT._replace(note=said.append)
    pipeline = changed(copied, min_samples=150)
    with killed_in(selfplay, "play_shard", 4):
        run_iteration(pipeline, LATER)
    report = run_iteration(pipeline, LATER)
    assert [line for line in said if "of 150 new positions (min_samples): batches of 10 games are played" in line]
    assert [shard for _, shard in played] == [*range(len(played))]  # the killed one again, and none of the others
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
    with killed_in(selfplay, "play_shard"):
        run_iteration(changed(copied, selfplay_games=100_000))
    assert len(named) == 1


def test_a_second_process_is_refused_while_a_stage_runs(copied):
    lock = RunLock(copied.layout.root, LOCK)
    try:
        with pytest.raises(RunError, match="another process is writing") as caught:
            run_iteration(copied)
        assert f"--status --save-dir {copied.layout.root.parent}" in caught.value.hint
    finally:
        lock.close()


def test_without_evaluation_nothing_is_promoted(copied):
    before = champion_hash(copied.layout)
    report = run_iteration(copied, LATER._replace(skip_selfplay=True))
    assert (report.iteration, report.evaluated, report.played) == (3, None, None)
    assert report.promoted.facts["verdict"] == "invalid"
    assert report.promoted.facts["reasons"] == ["no games were played"]
    assert champion_hash(copied.layout) == before
    assert report.trained.facts["new_positions"] == 0
    assert report.trained.facts["updates"] == 1


def test_a_window_from_elsewhere_is_learned_from_unless_it_has_changed_since_the_iteration_was_begun(copied, tmp_path):
    window, other = (copied.layout.stage(number, "export") / "window.npz" for number in (1, 2))
    path = tmp_path / "window.npz"
    shutil.copyfile(window, path)
    options = LATER._replace(data_path=path)
    number = begin_iteration(copied, options)
    shutil.copyfile(other, path)
    with pytest.raises(CheckpointError, match="is not the window that iteration 3 was begun with"):
        run_step(copied, number, Step("export"), path)
    assert read_manifest(copied.layout.stage(number, "export")) is None
    shutil.copyfile(window, path)
    report = run_iteration(copied, options)
    assert (report.iteration, report.synced) == (3, None)
    assert report.exported.inputs.keys() == {"data_path"}
    assert report.trained.facts["new_positions"] == report.exported.facts["positions"]


def test_files_that_come_to_another_folder_meanwhile_are_for_the_next_iteration(copied, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    pipeline = changed(copied, sync_from=str(theirs))
    with killed_in(promote, "run_stage"):
        run_iteration(pipeline)
    done = digests(copied.layout, 3)
    (theirs / "new.npz").write_bytes(b"whatever")
    run_iteration(pipeline)
    found = digests(copied.layout, 3)
    assert {name: found[name] for name in done} == done
    assert not copied.layout.quarantine.exists()
