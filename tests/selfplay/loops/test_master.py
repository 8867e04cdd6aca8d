"""The master loop with nothing replaced but the clock: what comes first, matches for the report, more play, shares."""

import dataclasses
import json

import pytest
from support.loops import small_loop, tasks_of
from support.pipelines import champion_hash, digests

from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.sections.master_loop import CurriculumConfig, LoopEvaluationConfig
from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files.tuned_leaves import RESULT
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.loops import plateau
from stoix_like.selfplay.loops.evaluations import RETRY_SECONDS, ReportMatches
from stoix_like.selfplay.loops.game_shares import GameShares
from stoix_like.selfplay.loops.services import StageLimits
from stoix_like.selfplay.ratings import shadow
from stoix_like.selfplay.ratings.lineage import read_ancestry
from stoix_like.selfplay.ratings.shadow import SHADOW
from stoix_like.selfplay.ratings.tournament import TOURNAMENT
from stoix_like.selfplay.stages import train


def test_it_makes_the_same_iterations_as_the_continuous_loop(finished_loop, tmp_path):
    pipeline, _, _, reference = finished_loop
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


def test_evaluations_for_the_report_add_games_decide_nothing_and_are_never_learned_from(copied_loop):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(False)) as loop:
        before, champion = digests(loop.layout, 2), champion_hash(loop.layout)
        loop.stop_after(100.0)
        options = {"shadow_interval_seconds": 20.0, "shadow_openings": 2, "full_tournament_interval_seconds": 40.0}
        loop.master(**options, tournament_openings=4, idle_batches=0, max_iterations=0).run()
        shadow, tournament = (
            json.loads((loop.layout.evaluations / name).read_bytes()) for name in (SHADOW, TOURNAMENT)
        )
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


class Matches:
    """The matches for the report of a game, each a call of a function, on the clock of its loop."""

    def __init__(self, loop, monkeypatch, shadow_evaluation):
        monkeypatch.setattr(shadow, "shadow_evaluation", shadow_evaluation)
        self._loop = loop
        self.config = LoopEvaluationConfig(shadow_interval_seconds=900.0)
        assert not self.play()  # the first is due an interval later
        loop.fake.at += 900.0

    def play(self):
        """What came of those that are due. Read from disk each time, as a process that is started again does."""
        matches = ReportMatches(self.config, self._loop.services)
        return [matches.play(self._loop.runner, kind).kind for kind in matches.due(self._loop.runner)]


def test_evaluations_that_take_longer_than_their_interval_let_games_go_on(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder) as loop:
        made = []

        def slow(*_):
            made.append(loop.layout.last_iteration())
            loop.fake.at += 1000.0
            loop.stop.is_set = len(made) > 50

        Matches(loop, monkeypatch, slow)
        master = loop.master(max_iterations=2, shadow_interval_seconds=900.0)
        master.run()
        assert master.stats.successful_iterations == 2
        assert 2 <= len(made) <= 50


def test_an_evaluation_that_fails_is_said_counts_for_no_iteration_and_is_played_again_soon(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder) as loop:

        def failing(*_):
            loop.fake.at += 2.0 * RETRY_SECONDS
            raise RunError("no memory", "lower --shadow-openings")

        matches = Matches(loop, monkeypatch, failing)
        assert matches.play() == ["failed"]
        assert any("shadow failed: no memory" in line for line in loop.said)
        for seconds, found in ((0.0, []), (RETRY_SECONDS - 1.0, []), (1.0, ["failed"])):
            loop.fake.at += seconds
            assert matches.play() == found
        loop.fake.at += RETRY_SECONDS
        master = loop.master(shadow_interval_seconds=900.0, max_iterations=1)
        master.run()
        assert (master.stats.successful_iterations, master.stats.failed_iterations) == (1, 0)


def test_an_evaluation_waits_for_another_command_and_is_then_played(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder) as loop:
        played = []
        matches = Matches(loop, monkeypatch, lambda *_: played.append(1))
        with begin.work_lock(loop.layout):
            assert matches.play() == ["failed"]
        loop.fake.at += RETRY_SECONDS
        assert played == []
        assert matches.play() == ["ran"]
        loop.fake.at += RETRY_SECONDS
        assert matches.play() == []


def test_an_evaluation_that_kills_the_process_is_due_later_and_one_that_is_stopped_at_once(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    calls = []

    class Killed(BaseException):
        pass

    def evaluation(*_):
        calls.append(loop.fake.at)
        if len(calls) == 1:
            raise Killed
        loop.stop.is_set = True
        raise Interrupted("evaluate")

    with small_loop(pipeline, folder) as loop:
        matches = Matches(loop, monkeypatch, evaluation)
        with pytest.raises(Killed):
            matches.play()
        assert matches.play() == []
        loop.fake.at += 900.0
        for _ in range(2):
            with pytest.raises(Interrupted):
                matches.play()
            loop.stop.is_set = False
        assert len(calls) == 3


def test_without_free_disk_nothing_is_evaluated_or_taken_in(copied_loop, monkeypatch, tmp_path):
    pipeline, folder = copied_loop
    (tmp_path / "theirs").mkdir()
    config = replace_leaves(pipeline.config, {"sync_from": str(tmp_path / "theirs")})
    for limits, expected in ((StageLimits(min_free_disk=1e9), []), (StageLimits(), ["ran"])):
        with small_loop(pipeline, folder, config, limits=limits) as loop:
            monkeypatch.setattr(shadow, "shadow_evaluation", lambda *_: None)
            monkeypatch.setattr(loop.runner, "poll", lambda: None)
            loop.services.cadence.done("shadow/tic_tac_toe_2p", loop.fake.at - 900.0)
            for name in ("sync", "shadow"):
                master = loop.master(shadow_interval_seconds=900.0, poll_interval_seconds=0.0)
                assert [outcome.kind for outcome in tasks_of(master, name)] == expected


def test_when_everything_waits_a_game_plays_more_within_a_budget(copied_loop):
    pipeline, folder = copied_loop
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


def test_shards_of_other_folders_are_polled_into_the_iteration_that_has_not_exported(copied_loop, tmp_path):
    pipeline, folder = copied_loop
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


def test_a_folder_of_other_shards_that_is_gone_ends_nothing(copied_loop, tmp_path):
    pipeline, folder = copied_loop
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(export=False)) as loop:
        section = dataclasses.replace(pipeline.config.selfplay, sync_from=str(theirs))
        loop.runner.configured = pipeline.config = dataclasses.replace(pipeline.config, selfplay=section)

        def then(clock):
            if clock.at > 1_000_030.0 and theirs.exists():
                theirs.rmdir()
            loop.stop.is_set = clock.at > 1_000_200.0

        loop.fake._then = then
        master = loop.master(max_iterations=0, idle_batches=0)
        master.run()
        assert loop.fake.at > 1_000_200.0
        assert any("theirs" in line and "sync failed" in line for line in loop.said)


def test_a_game_that_waits_for_its_breaker_is_tried_again_while_another_one_plays(copied_loop, monkeypatch):
    """Two games of one kind in two folders, which share their programs."""
    pipeline, folder = copied_loop
    failures, trained = [], train.train_stage

    def failing(pipeline, *arguments):
        loop.fake.at += 120.0  # what an iteration takes
        if pipeline.layout.root == other.layout.root:
            failures.append(loop.fake.at)
            if len(failures) <= 3:
                raise RunError("no memory", "lower --batch-size")
        return trained(pipeline, *arguments)

    with small_loop(pipeline, folder) as loop:
        other = loop.second_game()
        monkeypatch.setattr(train, "train_stage", failing)
        loop.master([loop.runner, other], max_iterations=9).run()
        assert len(failures) >= 4
        assert failures[3] - failures[2] >= 300.0
        assert max(other.layout.iterations()) >= 3


def test_a_damaged_result_of_a_search_stops_its_game_alone(copied_loop):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, watch=WatchRule(plateau_iterations=2, plateau_elo=1e6)) as loop:
        loop.stop_after(30.0)
        other = loop.second_game()
        master = loop.master([loop.runner, other], plateau_hook=True, plateau_function="cma_es", max_iterations=2)
        loop.layout.plateau(1).mkdir(parents=True)
        (loop.layout.plateau(1) / RESULT).write_text("{")
        other.layout.plateau(2).mkdir(parents=True)  # so that nothing is due of the other one
        (other.layout.plateau(2) / RESULT).write_text('{"leaves": {}, "configured": {}, "error": null, "time": 0}')
        master.run()
        assert (loop.layout.last_iteration(), other.layout.last_iteration()) == (2, 3)
        assert "result.json cannot be read" in str(master.stats.last_error or loop.said)


def test_the_search_after_a_plateau_has_a_breaker_of_its_own(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    monkeypatch.setattr(plateau, "due_iteration", lambda *_: (_ for _ in ()).throw(CheckpointError("torn", "put back")))
    wiring = wire_pipeline_events(False)
    with small_loop(pipeline, folder, limits=StageLimits(max_data_age=1e9), wiring=wiring) as loop:
        loop.stop_after(3600.0)
        master = loop.master(plateau_hook=True, plateau_function="cma_es", max_iterations=0, idle_batches=0)
        master.run()
        failed = [logged.event for logged in loop.log.read() if logged.event.kind == "STAGE_FAILED"]
        assert {event.failed_stage for event in failed} == {"plateau_hook"}
        assert 3 < len(failed) < 8  # three until it opens, and one after each pause
        assert failed[-1].breaker == "open"
        assert "plateau_hook: torn" in master.stats.last_error


def test_weights_outlive_a_loop_and_are_not_told_again(copied_loop):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder) as loop:
        games = {"another_2p": loop.runner, loop.runner.game: loop.runner}
        first, second = (GameShares(CurriculumConfig(), games, loop.services) for _ in range(2))
        first.take_up()
        (told,) = [logged.event for logged in loop.log.read() if logged.event.kind == "CURRICULUM_REBALANCED"]
        second.take_up()
        assert second.values == first.values == told.weights
        assert [logged.event.kind for logged in loop.log.read()].count("CURRICULUM_REBALANCED") == 1
