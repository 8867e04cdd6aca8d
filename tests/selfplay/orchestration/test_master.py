"""The master loop with nothing replaced but the clock: stages, evaluations for the report, retention, more play."""

import copy
import dataclasses
import json
import shutil

import pytest
from support.loops import FakeClock, small_loop
from support.pipelines import champion_hash, digests

from stoix_like.errors import RunError
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.weights.parameters import stored_arrays
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import PARAMETERS, STAGE_NAMES, WINDOW_FILE, Layout
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.loops import retention
from stoix_like.selfplay.loops.retention import REMOVED, RetentionRule
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.pipeline import foreign
from stoix_like.selfplay.ratings import shadow, tournament
from stoix_like.selfplay.ratings.lineage import read_ancestry
from stoix_like.selfplay.stages import sync, train
from stoix_like.selfplay.watch.lines import SHADOW, TOURNAMENT, read_report


def test_it_makes_the_same_iterations_as_the_continuous_loop(finished, tmp_path):
    pipeline, _, _, reference = finished
    with small_loop(pipeline, tmp_path) as loop:
        master = loop.master()
        master.run()
        stats = master.stats
        assert (stats.successful_iterations, stats.failed_iterations, stats.current_state) == (2, 0, "stopped")
        assert not stats.interrupted
        assert loop.keys == reference.kept_keys
        for number in (1, 2):
            assert digests(loop.layout, number) == digests(reference.layout, number)
        # aged at the start, 0.7 * 1 + 0.3 * 1.5; after each iteration 0.7 times that and 0.3 * 1
        assert stats.weights == {"tic_tac_toe_2p": pytest.approx(0.7 * (0.7 * 1.15 + 0.3) + 0.3)}


def test_evaluations_for_the_report_add_games_decide_nothing_and_are_never_learned_from(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder) as loop:
        before, champion = digests(loop.layout, 2), champion_hash(loop.layout)
        clock = loop.fake
        clock._then = lambda clock: setattr(loop.stop, "is_set", clock.at > 1_000_100.0)
        options = {"shadow_interval_seconds": 20.0, "shadow_openings": 2, "full_tournament_interval_seconds": 40.0}
        options |= {"tournament_openings": 4, "auto_trigger": False, "idle_batches": 0, "max_iterations": 0}
        loop.wiring.triggers = wire_pipeline_events(False).triggers
        loop.services = loop.services._replace(wiring=loop.wiring)
        loop.runner._services = loop.services
        loop.master(**options).run()
        shadow, tournament = (read_report(loop.layout, name) for name in (SHADOW, TOURNAMENT))
        assert shadow["champion"] == champion
        assert shadow["anchors"]["random"]["games"] == 8  # all of the book's four openings, twice two
        assert {row["name"] for row in tournament["ratings"]} == {"iteration 0", "iteration 1", "iteration 2"}
        # two tournaments, whose games add up: each of four openings, from both seats, counted for both players
        assert sum(row["games"] for row in tournament["ratings"]) == 2 * (4 * 2 * 2)
        assert (digests(loop.layout, 2), champion_hash(loop.layout)) == (before, champion)
        stored = {path.name for path in loop.layout.store.iterdir()}
        games = list(loop.layout.evaluations.rglob("*.npz"))
        assert games
        assert not stored & {f"{array_hash(read_arrays(path))[:32]}.npz" for path in games}
        read_ancestry(loop.layout)  # the evidence of decisions is as it was


def test_a_tournament_needs_two_candidates(finished, tmp_path):
    pipeline, *_ = finished
    with small_loop(pipeline, tmp_path) as loop:
        loop.layout.root.mkdir(parents=True)
        begin.begin_lineage(loop.runner.pipeline)
        assert tournament.play_tournament(loop.runner.pipeline, 16, 4, 2) is None


def test_a_failed_evaluation_is_said_and_ends_nothing(copied, monkeypatch):
    pipeline, folder = copied

    def failing(*_):
        raise RunError("no memory", "lower --shadow-openings")

    monkeypatch.setattr(shadow, "shadow_evaluation", failing)
    with small_loop(pipeline, folder) as loop:
        loop.master(shadow_interval_seconds=1.0, max_iterations=1)._cadence.is_due("shadow/tic_tac_toe_2p", 1.0)
        loop.fake.at += 10.0
        master = loop.master(shadow_interval_seconds=1.0, max_iterations=1)
        master.run()
        assert master.stats.successful_iterations == 1
        assert any("shadow failed: no memory" in line for line in loop.said)


def test_when_everything_waits_a_game_plays_more_within_a_budget(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(training=False)) as loop:
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", clock.at > 1_000_100.0)
        master = loop.master(idle_batches=2, max_iterations=0)
        master.run()
        played, exported = (read_manifest(loop.layout.stage(3, name)) for name in ("selfplay", "export"))
        assert played.inputs["batches"] == "3"
        assert exported.facts["store_positions"] == read_manifest(loop.layout.stage(3, "sync")).facts["positions"]
        assert [key for key in loop.keys if "SELFPLAY" in key][-3:] == [
            f"3/selfplay/SELFPLAY_COMPLETE/{n}" for n in (1, 2, 3)
        ]
    with small_loop(pipeline, folder) as loop:  # with training on, it goes on with all of them
        loop.master(max_iterations=1).run()
        assert read_manifest(loop.layout.stage(3, "selfplay")).facts["games"] == 30
        assert loop.keys[-1] == "3/promote/ITERATION_COMPLETE/1"


def test_a_breaker_that_opens_is_waited_for_and_tried_again(copied, monkeypatch):
    pipeline, folder = copied
    failures, trained = [], train.train_stage

    def failing(*arguments):
        failures.append(loop.fake.at)
        if len(failures) <= 3:
            raise RunError("no memory", "lower --batch-size")
        return trained(*arguments)

    monkeypatch.setattr(train, "train_stage", failing)
    states = set()
    clock = FakeClock(lambda clock: states.add(master.stats.current_state))
    with small_loop(pipeline, folder, clock=clock) as loop:
        master = loop.master(max_iterations=4)
        master.run()
        assert (master.stats.successful_iterations, master.stats.failed_iterations) == (1, 3)
        assert failures[3] - failures[2] == pytest.approx(300.0, abs=11.0)
        assert states == {"error"}


def test_shards_of_other_folders_are_polled_into_the_iteration_that_has_not_exported(copied, tmp_path):
    pipeline, folder = copied
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    source = next(iter((folder / "tic_tac_toe_2p" / "store").glob("*.npz")))
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(export=False)) as loop:
        section = dataclasses.replace(pipeline.config.selfplay, sync_from=str(theirs))
        loop.runner.configured = pipeline.config = dataclasses.replace(pipeline.config, selfplay=section)

        def then(clock):
            if clock.at > 1_000_030.0:
                (theirs / "torn.npz").write_bytes(source.read_bytes()[:50])
            loop.stop.is_set = clock.at > 1_000_100.0

        loop.fake._then = then
        master = loop.master(max_iterations=0, idle_batches=0)
        master.run()
        assert master.stats.interrupted
        synced = read_manifest(loop.layout.stage(3, "sync"))
        assert int(synced.inputs["round"]) >= 1
        assert any("torn.npz" in line for line in loop.said)


def test_retention_removes_what_nobody_reads_again_and_everything_goes_on(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder, max_iterations=4) as loop:
        loop.run()  # six iterations now
        layout, champions = loop.layout, {record.iteration for record in records.lineage(loop.layout)}
        manifests = {path: path.read_bytes() for path in layout.root.rglob("manifest.json")}
        freed = retention.clean(layout, RetentionRule(positions=100, candidates=2))
        assert freed > 0
        assert {path: path.read_bytes() for path in layout.root.rglob("manifest.json")} == manifests
        windows = [number for number in range(1, 7) if (layout.stage(number, "export") / WINDOW_FILE).is_file()]
        assert windows == [5, 6]
        kept = {number for number in range(7) if (layout.stage(number, "train") / PARAMETERS).is_file()}
        assert kept == champions | {5, 6}
        shards = [number for number in range(1, 7) if (layout.stage(number, "selfplay") / "shard_0000.npz").is_file()]
        assert shards == [5, 6]  # 60 positions an iteration
        assert len(list(layout.store.glob("*.npz"))) == 4
        lost = json.loads((layout.iteration(1) / REMOVED).read_text())["files"]
        assert "iterations/0001/export/window.npz" in lost
        assert not any((layout.root / name).exists() for name in lost)
        assert retention.clean(layout, RetentionRule(positions=100, candidates=2)) == 0
        read_ancestry(layout)
        loop.stop.is_set = False
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        assert loop.run().successful_iterations == 1
        assert all(read_manifest(loop.layout.stage(7, name)) is not None for name in STAGE_NAMES)
        while records.read_record(loop.layout.champion).previous is not None:
            records.roll_back(loop.layout, lambda path: array_hash(stored_arrays(path)))


def test_a_game_that_waits_for_its_breaker_is_tried_again_while_another_one_plays(
    copied, finished, tmp_path, monkeypatch
):
    """Two games of one kind in two folders, which share their programs."""
    pipeline, folder = copied
    failures, trained = [], train.train_stage

    def failing(pipeline, *arguments):
        if pipeline.layout.root == other.layout.root:
            failures.append(loop.fake.at)
            if len(failures) <= 3:
                raise RunError("no memory", "lower --batch-size")
        return trained(pipeline, *arguments)

    with small_loop(pipeline, folder) as loop:
        second = copy.copy(pipeline)
        second.layout = Layout(folder / "another_2p")
        shutil.copytree(loop.layout.root, second.layout.root)
        other = GameRunner(pipeline.config, second.layout, loop.services)
        other.pipeline = second
        monkeypatch.setattr(train, "train_stage", failing)
        original = loop.runner.run_due

        def slowly():
            loop.fake.at += 20.0  # what a stage takes
            return original()

        loop.runner.run_due = slowly
        master = loop.master(max_iterations=12)
        master._runners[other.game], master.stats.seconds[other.game] = other, 0.0
        master.run()
        assert len(failures) >= 4
        assert failures[3] - failures[2] >= 300.0
        assert max(other.layout.iterations()) >= 3


def test_removed_shards_of_other_folders_are_not_taken_in_again(copied, tmp_path):
    pipeline, folder = copied
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
