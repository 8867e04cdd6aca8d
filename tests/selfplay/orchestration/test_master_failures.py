"""What must not end a master loop, stop its other games, or make it spin."""

import copy
import dataclasses
import itertools
import shutil

import pytest
from support.loops import small_loop

from stoix_like.config.checks.access import replace_leaves
from stoix_like.errors import RunError
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.tuned_leaves import RESULT
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.loops import retention
from stoix_like.selfplay.loops.master import RETRY_SECONDS
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import Gates
from stoix_like.selfplay.pipeline.progress import Interrupted
from stoix_like.selfplay.ratings import shadow, tournament
from stoix_like.selfplay.watch.lines import SHADOW, read_report

WATCH = WatchRule(plateau_iterations=2, plateau_elo=1e6)  # always a plateau


def two_games(loop, master):
    """Adds a second game, a copy of the first, to a master loop; returns its runner."""
    second = copy.copy(loop.runner.pipeline)
    second.layout = Layout(loop.layout.root.parent / "another_2p")
    shutil.copytree(loop.layout.root, second.layout.root)
    other = GameRunner(loop.runner.configured, second.layout, loop.services)
    other.pipeline = second
    master._runners[other.game], master.stats.seconds[other.game] = other, 0.0
    return other


def stop_after(loop, seconds):
    loop.fake._then = lambda clock: setattr(loop.stop, "is_set", clock.at > 1_000_000.0 + seconds)


def test_a_damaged_result_of_a_search_stops_its_game_alone(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder, watch=WATCH) as loop:
        stop_after(loop, 30.0)
        master = loop.master(enabled=True, function="cma_es", max_iterations=1)
        other = two_games(loop, master)
        loop.layout.plateau(1).mkdir(parents=True)
        (loop.layout.plateau(1) / RESULT).write_text("{")
        for number in (1, 2):  # so that nothing is due of the other one
            other.layout.plateau(number).mkdir(parents=True)
        loop.layout.plateau(1)
        (other.layout.plateau(2) / RESULT).write_text('{"leaves": {}, "configured": {}, "error": null, "time": 0}')
        master.run()
        assert other.layout.last_iteration() == 3
        assert loop.layout.last_iteration() == 2
        assert "result.json cannot be read" in str(master.stats.last_error or loop.said)


def test_a_folder_of_other_shards_that_is_gone_ends_nothing(copied, tmp_path):
    pipeline, folder = copied
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


def test_an_evaluation_that_kills_the_process_is_due_later_and_one_that_is_stopped_at_once(copied, monkeypatch):
    pipeline, folder = copied
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
        monkeypatch.setattr(shadow, "shadow_evaluation", evaluation)
        master = loop.master(shadow_interval_seconds=50.0)
        assert not master._evaluate()  # the first is due an interval later
        loop.fake.at += 50.0
        with pytest.raises(Killed):
            master._evaluate()
        assert not loop.master(shadow_interval_seconds=50.0)._evaluate()
        loop.fake.at += 50.0
        with pytest.raises(Interrupted):
            loop.master(shadow_interval_seconds=50.0)._evaluate()
        loop.stop.is_set = False
        with pytest.raises(Interrupted):
            loop.master(shadow_interval_seconds=50.0)._evaluate()
        assert len(calls) == 3


def test_an_evaluation_that_fails_is_tried_again_soon(copied):
    """Another command works on the game when it is due."""
    pipeline, folder = copied
    with small_loop(pipeline, folder) as loop:
        master = loop.master(shadow_interval_seconds=5e4, shadow_openings=2)
        assert not master._evaluate()
        loop.fake.at += 5e4
        with begin.work_lock(loop.layout):
            assert master._evaluate()
        assert read_report(loop.layout, SHADOW) is None
        assert not master._evaluate()
        loop.fake.at += RETRY_SECONDS
        assert master._evaluate()
        assert read_report(loop.layout, SHADOW) is not None
        loop.fake.at += RETRY_SECONDS
        assert not master._evaluate()


@pytest.mark.parametrize("error", [RunError("the database is locked", "wait"), OSError(116, "Stale file handle")])
@pytest.mark.parametrize("kind", ["continuous", "master"])
def test_a_game_that_cannot_be_looked_at_is_looked_at_again(copied, monkeypatch, kind, error):
    """Three failures open the breaker, and the trial after its pause fails, too."""
    pipeline, folder = copied
    original, looks = GameRunner.recover, []

    def failing(runner):
        looks.append(loop.fake.at)
        if len(looks) > 4:
            return original(runner)
        raise error

    def stale(layout):
        if len(looks) <= 4:
            raise error
        return last_iteration(layout)

    last_iteration = Layout.last_iteration
    with small_loop(pipeline, folder, max_iterations=5) as loop:
        monkeypatch.setattr(GameRunner, "recover", failing)
        if isinstance(error, OSError):
            monkeypatch.setattr(Layout, "last_iteration", stale)
        stop_after(loop, 5000.0)
        started = loop.loop if kind == "continuous" else loop.master(max_iterations=5, idle_batches=0)
        started.run()
        stats = started.stats
        assert (stats.successful_iterations, stats.failed_iterations, stats.total_iterations) == (1, 4, 5)
        assert stats.last_error.startswith("tic_tac_toe_2p: look: ")
        assert not any("look: " in text for text in getattr(stats, "waiting", {}).values())  # it can be read again
        assert len([line for line in loop.said if "its breaker is open" in line]) == 2  # each time once
        waited = [later - before for before, later in itertools.pairwise(looks[:5])]
        assert [seconds >= 300.0 for seconds in waited] == [False, False, True, True]


@pytest.mark.parametrize("kind", ["continuous", "master"])
def test_when_the_disk_is_full_old_files_are_removed(copied, kind):
    pipeline, folder = copied
    with small_loop(pipeline, folder, gates=Gates(min_free_disk=1e9)) as loop:
        cleaned = []
        loop.runner.clean = lambda *rule: cleaned.append(rule)
        stop_after(loop, 15.0)
        started = loop.loop if kind == "continuous" else loop.master(max_iterations=0)
        started.run()
        assert set(cleaned) == {(2.0, 16)}
        assert loop.layout.last_iteration() == 3
        assert started.stats.total_iterations == 0


def test_old_files_that_cannot_be_removed_are_said_and_end_nothing(copied, monkeypatch):
    pipeline, folder = copied

    def failing(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(retention, "clean", failing)
    with small_loop(pipeline, folder) as loop:
        loop.master(max_iterations=1).run()
        assert read_manifest(loop.layout.stage(3, "promote")) is not None
        assert any("old files are not removed" in line for line in loop.said)


def test_one_game_that_waits_for_its_breaker_is_no_error_of_the_loop(copied, monkeypatch):
    pipeline, folder = copied
    with small_loop(pipeline, folder) as loop:
        master = loop.master(max_iterations=0, idle_batches=0, auto_trigger=False)
        two_games(loop, master)
        loop.wiring.triggers = wire_pipeline_events(False).triggers
        states = []
        loop.fake._then = lambda clock: (
            states.append(master.stats.current_state) or setattr(loop.stop, "is_set", clock.at > 1_000_040.0)
        )
        manifest = loop.layout.stage(2, "promote") / "manifest.json"
        manifest.write_text("{")
        master.run()
        assert set(states) == {"idle"}
        assert "manifest.json" in master.stats.waiting["tic_tac_toe_2p"]


def test_the_intervals_of_a_tournament_know_that_its_matches_share_openings(copied, monkeypatch):
    pipeline, folder = copied
    rate, rated = tournament.ratings.rate, []
    monkeypatch.setattr(
        tournament.ratings, "rate", lambda records, **rest: rated.append(records) or rate(records, **rest)
    )
    with small_loop(pipeline, folder) as loop:
        tournament.play_tournament(loop.runner.pipeline, 16, 4, 2)
    for record in rated[-1]:
        assert len(record.by_opening) * 2 == record.games
        assert sum(record.by_opening) == record.score


def test_a_tournament_with_another_size_of_matches_spends_no_more_than_it_may(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder, replace_leaves(pipeline.config, {"pairs_per_look": 1})) as loop:
        given = loop.runner.pipeline, 16, 4
        first = tournament.play_tournament(*given, 2)
        second = tournament.play_tournament(*given, 1)
        games = [sum(row["games"] for row in one["ratings"]) for one in (first, second)]
        assert games == [4 * 2 * 2] * 2
