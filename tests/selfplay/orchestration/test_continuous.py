"""The continuous loop with nothing replaced but the clock: what it runs, tells, waits for, and goes on from."""

import itertools

import pytest
from support.loops import FakeClock, small_loop, told
from support.pipelines import champion_hash, digests, small_config

from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.errors import ConfigError, LockedError, RunError, UnsupportedEnvironmentError
from stoix_like.selfplay.events import derive
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files.iteration_start import read_start
from stoix_like.selfplay.iterations import begin, steps
from stoix_like.selfplay.loops.services import Gates
from stoix_like.selfplay.loops.start import run_continuous
from stoix_like.selfplay.stages import evaluate, promote, selfplay, sync, train
from stoix_like.selfplay.watch.presence import MASTER, PresenceLock
from stoix_like.selfplay.watch.stats import LoopState


def test_two_iterations_are_made_and_everything_is_told_once(finished):
    _, _, stats, loop = finished
    assert loop.kept_keys == [*told(1, loop.layout), *told(2, loop.layout)]
    counts = stats.total_iterations, stats.successful_iterations, stats.failed_iterations, stats.consecutive_failures
    assert counts == (2, 2, 0, 0)
    assert (stats.current_state, stats.last_config_trained) == (LoopState.STOPPED, "tic_tac_toe_2p")
    assert not stats.interrupted
    assert sum(loop.fake.slept) == pytest.approx(5.0)  # one pause, between the two
    assert [line for line in loop.said if line.startswith("tic_tac_toe_2p iteration 2: ")]


def test_it_goes_on_where_another_one_has_stopped_and_tells_nothing_again(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        loop.run()
        assert loop.keys[16:] == told(3, loop.layout)
        assert len(set(loop.keys)) == len(loop.keys)


@pytest.mark.parametrize("lost", [1, 3, 8, 11])
def test_events_that_a_killed_process_did_not_write_are_derived_again(copied, lost):
    pipeline, folder = copied
    with small_loop(pipeline, folder) as loop:
        before = loop.keys
        with loop.database.transaction() as connection:
            connection.execute("DELETE FROM events WHERE id > ?", (len(before) - lost,))
        loop.runner.recover()
        assert loop.keys == before
        assert derive.derive_missing(loop.log, loop.layout, WatchRule()) == []


def test_without_a_database_everything_is_told_from_the_manifests(copied):
    pipeline, folder = copied
    for path in folder.glob("events.sqlite*"):
        path.unlink()
    with small_loop(pipeline, folder) as loop:
        loop.runner.recover()
        assert loop.keys == [*told(1, loop.layout), *told(2, loop.layout)]


def test_iterations_of_another_command_are_told_when_the_loop_takes_the_game_up(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        steps.run_iteration(loop.runner.pipeline)  # as run_training_loop.py does
        loop.run()
        assert loop.keys[16:] == [*told(3, loop.layout), *told(4, loop.layout)]


def test_handlers_that_raise_change_nothing(finished, tmp_path):
    pipeline, _, _, reference = finished
    wiring = wire_pipeline_events()

    def noisy(_event):
        raise ValueError("a bad handler")

    wiring.subscribe("noisy", noisy, from_start=True)
    with small_loop(pipeline, tmp_path, max_iterations=2, wiring=wiring) as loop:
        stats = loop.run()
        assert (stats.successful_iterations, stats.failed_iterations) == (2, 0)
        assert loop.keys == reference.kept_keys
        for number in (1, 2):
            assert digests(loop.layout, number) == digests(reference.layout, number)
        assert any("a bad handler" in line for line in loop.said)


def test_a_stage_that_fails_opens_its_breaker_and_is_tried_again_after_pauses_that_double(copied, monkeypatch):
    pipeline, folder = copied
    failures, trained = [], train.train_stage

    def failing(*arguments):
        failures.append(clock.at)
        if len(failures) <= 5:
            raise RunError("the loss is not finite", "lower the rate")
        return trained(*arguments)

    clock = FakeClock()
    monkeypatch.setattr(train, "train_stage", failing)
    with small_loop(pipeline, folder, clock=clock, max_iterations=6, failure_backoff_seconds=300.0) as loop:
        stats = loop.run()
        assert (stats.successful_iterations, stats.failed_iterations) == (1, 5)
        assert stats.last_error == "tic_tac_toe_2p: train: the loss is not finite (lower the rate)"
        gaps = [round(after - before) for before, after in itertools.pairwise(failures)]
        assert gaps == [5, 5, 300, 600, 1200]  # the cooldown is part of each pause
        failed = [key for key in loop.keys if "FAILED" in key]
        assert failed == [f"3/train/{kind}/{n}" for n in range(1, 6) for kind in ("STAGE_FAILED", "TRAINING_FAILED")]
        states = [logged.event.breaker for logged in loop.log.read() if logged.event.kind == "STAGE_FAILED"]
        assert states == ["closed", "closed", "open", "open", "open"]
        assert loop.breakers.state(loop.runner.game, "train", clock.at) == "closed"
        assert loop.keys[-1] == "3/promote/ITERATION_COMPLETE/1"


def test_a_bug_in_a_stage_is_a_failure_with_its_traceback(copied, monkeypatch):
    pipeline, folder = copied
    monkeypatch.setattr(sync, "sync_stage", lambda *_: 1 / 0)
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        stats = loop.run()
        assert stats.failed_iterations == 1
        assert "ZeroDivisionError" in stats.last_error
        assert any("Traceback" in line for line in loop.said)


def test_it_waits_while_a_master_loop_runs_and_goes_on_by_itself(copied):
    pipeline, folder = copied
    states = []

    def then(clock):
        states.append(loop.loop.stats.current_state)
        if clock.at > 1_000_130.0:
            lock.close()

    lock = PresenceLock(folder, MASTER)
    with small_loop(pipeline, folder, clock=FakeClock(then), max_iterations=1) as loop:
        stats = loop.run()
        assert stats.successful_iterations == 1
        assert set(states) == {LoopState.DEFERRED}
        assert loop.fake.at == pytest.approx(1_000_180.0, abs=1.0)  # three looks of a minute
        assert [line for line in loop.said if "a master loop runs" in line]


def test_a_master_loop_that_starts_in_the_middle_of_a_stage_lets_it_end(copied, monkeypatch):
    pipeline, folder = copied
    locks, synced, running = [], sync.sync_stage, []

    def starting(*arguments):
        locks.append(PresenceLock(folder, MASTER))
        return synced(*arguments)

    def then(clock):
        running.append((steps.due_step(loop.layout, 3).stage, loop.loop.stats.current_state))
        if clock.at > 1_000_050.0:
            locks[0].close()

    monkeypatch.setattr(sync, "sync_stage", starting)
    with small_loop(pipeline, folder, clock=FakeClock(then), max_iterations=1) as loop:
        assert loop.run().successful_iterations == 1
        assert set(running) == {("export", LoopState.DEFERRED)}  # the stage was finished, and the next one not begun


def test_an_iteration_that_a_master_loop_has_finished_meanwhile_is_followed_by_the_next_one(copied, monkeypatch):
    pipeline, folder = copied
    locks, synced = [], sync.sync_stage

    def starting(*arguments):
        if not locks:
            locks.append(PresenceLock(folder, MASTER))
        return synced(*arguments)

    def then(clock):
        if loop.layout.last_iteration() == 3 and begin.next_iteration(loop.layout) == 3:
            steps.run_iteration(pipeline)  # as the master loop does
            locks[0].close()

    monkeypatch.setattr(sync, "sync_stage", starting)
    with small_loop(pipeline, folder, clock=FakeClock(then), max_iterations=1) as loop:
        assert loop.run().successful_iterations == 1
        assert begin.next_iteration(loop.layout) == 5
        assert not any("waits" in line and "a master loop runs" not in line for line in loop.said)


def test_force_is_refused_where_a_master_loop_runs(copied):
    pipeline, folder = copied
    lock = PresenceLock(folder, MASTER)
    try:
        with pytest.raises(ConfigError, match="--force: a master loop runs"):
            run_continuous(LoopConfig(configs=[("tic_tac_toe", 2)], force=True), folder)
        with small_loop(pipeline, folder, force=True) as loop, pytest.raises(ConfigError, match="--force"):
            loop.run()
    finally:
        lock.close()


@pytest.mark.parametrize("stage", ["sync", "export", "training", "evaluation", "promotion"])
def test_a_stage_that_is_switched_off_is_waited_for_and_is_no_failure(copied, stage):
    pipeline, folder = copied
    clock = FakeClock(lambda clock: setattr(loop.stop, "is_set", clock.at > 1_000_100.0))
    with small_loop(pipeline, folder, clock=clock, wiring=wire_pipeline_events(**{stage: False})) as loop:
        stats = loop.run()
        assert (stats.total_iterations, stats.failed_iterations) == (0, 0)
        due = steps.due_step(loop.layout, 3).stage
        assert due == {"training": "train", "evaluation": "evaluate", "promotion": "promote"}.get(stage, stage)
    with small_loop(pipeline, folder, max_iterations=1) as loop:  # with the switch on, it goes on
        assert loop.run().successful_iterations == 1


def test_a_full_disk_and_a_stage_of_another_process_are_waited_for(copied, monkeypatch):
    pipeline, folder = copied

    def stop_later(clock):
        loop.stop.is_set = clock.at > 1_000_100.0

    with small_loop(pipeline, folder, clock=FakeClock(stop_later), gates=Gates(min_free_disk=1e9)) as loop:
        assert loop.run().total_iterations == 0
        assert any("GB of disk are free" in line for line in loop.said)

    def locked(*_):
        raise LockedError("another process is writing", "wait")

    monkeypatch.setattr(selfplay, "selfplay_stage", locked)
    with small_loop(pipeline, folder, clock=FakeClock(stop_later)) as loop:
        assert loop.run().total_iterations == 0
        assert loop.breakers.read(loop.runner.game, "selfplay").failures == 0


def test_games_that_are_too_old_are_joined_by_new_ones(copied, monkeypatch):
    pipeline, folder = copied
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(export=False)) as loop:
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", True)
        loop.run()
    late = FakeClock()
    late.at = 4e9  # many years later
    with small_loop(pipeline, folder, clock=late, gates=Gates(max_data_age=3e9), max_iterations=1) as loop:
        monkeypatch.setattr(
            "stoix_like.selfplay.iterations.due.end_of", lambda manifest: 0.0 if is_first(manifest) else late.at
        )
        assert loop.run().successful_iterations == 1
        assert "3/selfplay/SELFPLAY_COMPLETE/2" in loop.keys


def is_first(manifest):
    return manifest.inputs.get("batches") == "1"


def test_stages_that_take_too_long_are_a_failure(copied, monkeypatch):
    pipeline, folder = copied

    def slow(*_):
        assert loop.stop.has_deadline
        loop.stop.set_deadline(-1e9)  # long ago
        loop.stop.look(is_stopped=False)  # as the watcher does
        return original(*_)

    original = evaluate.evaluate_stage
    monkeypatch.setattr(evaluate, "evaluate_stage", slow)
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        stats = loop.run()
        assert stats.last_error == "tic_tac_toe_2p: evaluate: it did not end in time"
        assert not loop.stop.is_set


def test_an_iteration_that_was_begun_with_other_settings_gives_its_games_to_the_next_one(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(export=False)) as loop:
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", True)
        loop.run()
    with small_loop(pipeline, folder, small_config(folder, actor_lr=0.01), max_iterations=1) as loop:
        assert loop.run().successful_iterations == 1
        assert any("iteration 4 is begun instead" in line for line in loop.said)
        assert "4/promote/ITERATION_COMPLETE/1" in loop.keys


def test_rejected_candidates_make_self_play_explore_more(copied, monkeypatch):
    pipeline, folder = copied
    monkeypatch.setattr("stoix_like.selfplay.events.history.exploration_boost", lambda results: 1.3)
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        loop.run()
        start = read_start(loop.layout, 3)
        assert start.exploration_boost == 1.3
        from stoix_like.runtime.stages.manifest import read_manifest

        assert read_manifest(loop.layout.stage(3, "selfplay")).settings["exploration_boost"] == 1.3


def test_games_that_cannot_be_played_are_refused(tmp_path):
    with pytest.raises(UnsupportedEnvironmentError, match="hex8 is not available yet"):
        run_continuous(LoopConfig(configs=[("hex8", 2), ("square8", 2)]), tmp_path)
    with pytest.raises(ConfigError, match="tic_tac_toe is a game of 2 players"):
        run_continuous(LoopConfig(configs=[("tic_tac_toe", 4)]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_champion_is_the_one_that_the_gate_has_let_through(finished):
    _, _, _, loop = finished
    events = [logged for logged in loop.kept if logged.event.kind == "MODEL_PROMOTED"]
    assert events, "the configuration of this test promotes someone"
    assert events[-1].event.candidate == champion_hash(loop.layout)


def test_a_time_out_that_no_stage_has_seen_does_not_end_the_loop(copied, monkeypatch):
    pipeline, folder = copied
    promoted = promote.promote_stage

    def slow(*arguments):
        result = promoted(*arguments)
        loop.stop.set_deadline(-1e9)
        loop.stop.look(is_stopped=False)  # as the watcher does, while the stage ends
        return result

    monkeypatch.setattr(promote, "promote_stage", slow)
    with small_loop(pipeline, folder, max_iterations=2) as loop:
        assert loop.run().successful_iterations == 2


def test_a_deferred_loop_that_is_stopped_begins_nothing(copied):
    pipeline, folder = copied
    lock = PresenceLock(folder, MASTER)
    clock = FakeClock(lambda clock: setattr(loop.stop, "is_set", True))
    try:
        with small_loop(pipeline, folder, small_config(folder, actor_lr=0.01), clock=clock) as loop:
            stats = loop.run()
            assert (stats.total_iterations, stats.interrupted) == (0, True)
            assert loop.layout.iterations() == [0, 1, 2]
    finally:
        lock.close()


def test_files_that_cannot_be_read_are_a_failure_of_their_game_and_end_nothing(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder, max_iterations=2) as loop:
        path = loop.layout.stage(2, "promote") / "manifest.json"
        text = path.read_text()
        path.write_text("{")
        loop.fake._then = lambda clock: path.write_text(text)
        stats = loop.run()
        assert (stats.successful_iterations, stats.failed_iterations) == (1, 1)
        assert "look: " in stats.last_error
        assert loop.breakers.read(loop.runner.game, "look").failures == 0  # it could be read again


def test_a_database_that_cannot_be_written_is_written_later(copied, monkeypatch):
    pipeline, folder = copied
    append, calls = EventLog.append, []

    def failing(self, events):
        calls.append(events)
        if 2 <= len(calls) <= 4:
            raise RunError("database or disk is full", "free some space")
        return append(self, events)

    monkeypatch.setattr(EventLog, "append", failing)
    with small_loop(pipeline, folder, max_iterations=4) as loop:
        assert loop.run().successful_iterations >= 1
        assert [key for key in loop.keys[16:] if "FAILED" not in key][:8] == told(3, loop.layout)
        assert len(set(loop.keys)) == len(loop.keys)


def test_batches_before_one_that_fails_or_is_killed_are_kept(copied, monkeypatch):
    pipeline, folder = copied
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(training=False)) as loop:
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", True)
        loop.run()
        before = digests(loop.layout, 3)
        played = []

        def failing(*arguments):
            played.append(arguments)
            raise RunError("no memory", "lower --num-envs")

        monkeypatch.setattr(selfplay, "play_shard", failing)
        loop.stop.is_set = False
        assert loop.runner.play_more().kind == "failed"
        assert played
        assert digests(loop.layout, 3) == before
        assert loop.runner.due()[1].stage == "train"


def test_a_stage_whose_manifest_was_removed_runs_again_and_the_rest_follows(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(promotion=False)) as loop:
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", True)
        loop.run()
        (loop.layout.stage(3, "export") / "manifest.json").unlink()
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        assert loop.run().successful_iterations == 1
        assert loop.fake.slept == []  # one turn made all of it


def test_a_folder_of_an_older_version_goes_on(copied):
    """Its manifests of sync name shards without their counts, and neither batches nor rounds."""
    from stoix_like.runtime.stages.manifest import read_manifest, write_manifest

    pipeline, folder = copied
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        for number in (1, 2):
            stage = loop.layout.stage(number, "sync")
            synced = read_manifest(stage)
            names = [name for name, *_ in synced.facts["added"]]
            write_manifest(stage, synced._replace(inputs={}, facts=synced.facts | {"added": names}))
        for path in folder.glob("events.sqlite*"):
            path.unlink()
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        assert loop.run().successful_iterations == 1
        assert read_manifest(loop.layout.stage(3, "sync")).facts["games"] == 30
