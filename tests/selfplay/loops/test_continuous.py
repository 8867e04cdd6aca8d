"""The continuous loop with nothing replaced but the clock: what it runs, tells, waits for, and goes on from."""

import pytest
from support.loops import FakeClock, small_loop, told
from support.pipelines import champion_hash, digests, small_config

from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.errors import ConfigError, LockedError, RunError, UnsupportedEnvironmentError
from stoix_like.selfplay.events import derive
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files.iteration_start import read_start
from stoix_like.selfplay.iterations import begin, steps
from stoix_like.selfplay.loops import continuous
from stoix_like.selfplay.loops.services import StageLimits
from stoix_like.selfplay.loops.start import run_continuous
from stoix_like.selfplay.stages import promote, selfplay, sync
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.presence import MASTER, PresenceLock
from stoix_like.selfplay.watch.stats import LoopState


def test_two_iterations_are_made_and_everything_is_told_once(finished_loop):
    _, _, stats, loop = finished_loop
    assert loop.kept_keys == [*told(1, loop.layout), *told(2, loop.layout)]
    counts = stats.total_iterations, stats.successful_iterations, stats.failed_iterations, stats.consecutive_failures
    assert counts == (2, 2, 0, 0)
    assert (stats.current_state, stats.last_config_trained) == (LoopState.STOPPED, "tic_tac_toe_2p")
    assert not stats.interrupted
    assert sum(loop.fake.slept) == pytest.approx(5.0)  # one pause, between the two
    assert [line for line in loop.said if line.startswith("tic_tac_toe_2p iteration 2: ")]


def test_it_goes_on_where_another_one_has_stopped_and_tells_nothing_again(copied_loop):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        loop.run()
        assert loop.keys[16:] == told(3, loop.layout)
        assert len(set(loop.keys)) == len(loop.keys)


@pytest.mark.parametrize("lost", [1, 3, 8, 11])
def test_events_that_a_killed_process_did_not_write_are_derived_again(copied_loop, lost):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder) as loop:
        before = loop.keys
        with loop.database.transaction() as connection:
            connection.execute("DELETE FROM events WHERE id > ?", (len(before) - lost,))
        loop.runner.recover()
        assert loop.keys == before
        assert derive.derive_missing(loop.log, loop.layout, WatchRule()) == []


def test_without_a_database_everything_is_told_from_the_manifests(copied_loop):
    pipeline, folder = copied_loop
    for path in folder.glob("events.sqlite*"):
        path.unlink()
    with small_loop(pipeline, folder) as loop:
        loop.runner.recover()
        assert loop.keys == [*told(1, loop.layout), *told(2, loop.layout)]


def test_iterations_of_another_command_are_told_when_the_loop_takes_the_game_up(copied_loop):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        steps.run_iteration(loop.runner.pipeline)  # as run_training_loop.py does
        loop.run()
        assert loop.keys[16:] == [*told(3, loop.layout), *told(4, loop.layout)]


def test_handlers_that_raise_change_nothing(finished_loop, tmp_path):
    pipeline, _, _, reference = finished_loop
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


def test_it_waits_while_a_master_loop_runs_and_goes_on_by_itself(copied_loop):
    pipeline, folder = copied_loop
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


def test_a_master_loop_that_starts_in_the_middle_of_a_stage_lets_it_end(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
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


def test_an_iteration_that_a_master_loop_has_finished_meanwhile_is_followed_by_the_next_one(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
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


def test_force_is_refused_where_a_master_loop_runs(copied_loop):
    pipeline, folder = copied_loop
    lock = PresenceLock(folder, MASTER)
    try:
        with pytest.raises(ConfigError, match="--force: a master loop runs"):
            run_continuous(LoopConfig(configs=[("tic_tac_toe", 2)], force=True), folder)
        with small_loop(pipeline, folder, force=True) as loop, pytest.raises(ConfigError, match="--force"):
            loop.run()
    finally:
        lock.close()


def test_a_stage_of_another_process_is_waited_for(copied_loop, monkeypatch):
    pipeline, folder = copied_loop

    def locked(*_):
        raise LockedError("another process is writing", "wait")

    monkeypatch.setattr(selfplay, "selfplay_stage", locked)
    with small_loop(pipeline, folder) as loop:
        loop.stop_after(100.0)
        assert loop.run().total_iterations == 0
        assert loop.breakers.read(loop.runner.game, "selfplay").failures == 0


def test_games_that_are_too_old_are_joined_by_new_ones(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(export=False)) as loop:
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", True)
        loop.run()
    late = FakeClock()
    late.at = 4e9  # many years later
    with small_loop(pipeline, folder, clock=late, limits=StageLimits(max_data_age=3e9), max_iterations=1) as loop:
        monkeypatch.setattr(
            "stoix_like.selfplay.iterations.due.end_of", lambda manifest: 0.0 if is_first(manifest) else late.at
        )
        assert loop.run().successful_iterations == 1
        assert "3/selfplay/SELFPLAY_COMPLETE/2" in loop.keys


def is_first(manifest):
    return manifest.inputs.get("batches") == "1"


def test_an_iteration_that_was_begun_with_other_settings_gives_its_games_to_the_next_one(copied_loop):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(export=False)) as loop:
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", True)
        loop.run()
    with small_loop(pipeline, folder, small_config(folder, actor_lr=0.01), max_iterations=1) as loop:
        assert loop.run().successful_iterations == 1
        assert any("iteration 4 is begun instead" in line for line in loop.said)
        assert "4/promote/ITERATION_COMPLETE/1" in loop.keys


def test_rejected_candidates_make_self_play_explore_more(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    monkeypatch.setattr("stoix_like.selfplay.events.history.exploration_boost", lambda results: 1.3)
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        loop.run()
        start = read_start(loop.layout, 3)
        assert start.exploration_boost == 1.3
        from stoix_like.runtime.stages.manifest import read_manifest

        assert read_manifest(loop.layout.stage(3, "selfplay")).settings["exploration_boost"] == 1.3


def test_numbers_have_the_type_of_their_leaf():
    config = LoopConfig([("tic_tac_toe", 2)], max_iterations=10.0, selfplay_games_per_iteration=1e3)
    numbers = config.max_iterations, config.selfplay_games_per_iteration
    assert (numbers, [type(number) for number in numbers]) == ((10, 1000), [int, int])
    with pytest.raises(ConfigError, match=r"max_iterations: .* 1\.5"):
        LoopConfig([("tic_tac_toe", 2)], max_iterations=1.5)


def test_games_that_cannot_be_played_are_refused(tmp_path):
    with pytest.raises(UnsupportedEnvironmentError, match="hexagonal is not available yet"):
        run_continuous(LoopConfig(configs=[("hexagonal", 2), ("square19", 2)]), tmp_path)
    with pytest.raises(ConfigError, match="tic_tac_toe is a game of 2 players"):
        run_continuous(LoopConfig(configs=[("tic_tac_toe", 4)]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_champion_is_the_one_that_the_gate_has_let_through(finished_loop):
    _, _, _, loop = finished_loop
    events = [logged for logged in loop.kept if logged.event.kind == "MODEL_PROMOTED"]
    assert events, "the configuration of this test promotes someone"
    assert events[-1].event.candidate == champion_hash(loop.layout)


def test_a_time_out_that_no_stage_has_seen_does_not_end_the_loop(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    promoted = promote.promote_stage

    def slow(*arguments):
        result = promoted(*arguments)
        loop.stop.set_deadline(-1e9)
        loop.stop.look(is_stopped=False)  # as the watcher does, while the stage ends
        return result

    monkeypatch.setattr(promote, "promote_stage", slow)
    with small_loop(pipeline, folder, max_iterations=2) as loop:
        assert loop.run().successful_iterations == 2


def test_a_deferred_loop_that_is_stopped_begins_nothing(copied_loop):
    pipeline, folder = copied_loop
    lock = PresenceLock(folder, MASTER)
    clock = FakeClock(lambda clock: setattr(loop.stop, "is_set", True))
    try:
        with small_loop(pipeline, folder, small_config(folder, actor_lr=0.01), clock=clock) as loop:
            stats = loop.run()
            assert (stats.total_iterations, stats.interrupted) == (0, True)
            assert loop.layout.iterations() == [0, 1, 2]
    finally:
        lock.close()


def test_batches_before_one_that_fails_or_is_killed_are_kept(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
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
        assert loop.runner.play_more(loop.runner.due()).kind == "failed"
        assert played
        assert digests(loop.layout, 3) == before
        assert loop.runner.due().step.stage == "train"


def test_a_stage_whose_manifest_was_removed_runs_again_and_the_rest_follows(copied_loop):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(promotion=False)) as loop:
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", True)
        loop.run()
        (loop.layout.stage(3, "export") / "manifest.json").unlink()
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        assert loop.run().successful_iterations == 1
        assert loop.fake.slept == []  # one turn made all of it


def test_a_folder_of_an_older_version_goes_on(copied_loop):
    """Its manifests of sync name shards without their counts, and neither batches nor rounds."""
    from stoix_like.runtime.stages.manifest import read_manifest, write_manifest

    pipeline, folder = copied_loop
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


def test_a_time_out_that_meets_a_starting_master_loop_ends_nothing(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    synced, locks = sync.sync_stage, []

    def slow(*arguments):
        result = synced(*arguments)
        if not locks:
            locks.append(PresenceLock(folder, MASTER))
            loop.stop.set_deadline(-1e9)
            loop.stop.look(is_stopped=False)  # as the watcher does, while the stage ends
        return result

    monkeypatch.setattr(sync, "sync_stage", slow)
    clock = FakeClock(lambda clock: locks[0].close() if clock.at > 1_000_050.0 else None)
    with small_loop(pipeline, folder, clock=clock, max_iterations=1) as loop:
        stats = loop.run()
        assert (stats.successful_iterations, stats.interrupted) == (1, False)
        assert clock.at > 1_000_050.0


def test_a_lock_that_cannot_be_read_for_a_moment_ends_nothing(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    is_running, looks = presence.is_unified_loop_running, []

    def stale(save_dir):
        looks.append(1)
        if len(looks) == 1:
            raise OSError(116, "Stale file handle")
        return is_running(save_dir)

    monkeypatch.setattr(continuous.presence, "is_unified_loop_running", stale)
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        assert loop.run().successful_iterations == 1
        assert any("tried again in 10 s" in line for line in loop.said)


def test_a_loop_says_what_it_does_while_programs_are_compiled(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    states, original = [], begin.begin_iteration
    with small_loop(pipeline, folder, max_iterations=1) as loop:

        def noted(*arguments):
            states.append((loop.loop.stats.current_state, loop.loop.stats.current_config))
            return original(*arguments)

        monkeypatch.setattr(begin, "begin_iteration", noted)
        loop.run()
    assert states == [(LoopState.RUNNING_SELFPLAY, "tic_tac_toe_2p")]


def test_a_loop_that_waits_names_no_game(copied_loop):
    pipeline, folder = copied_loop
    names = []
    with small_loop(pipeline, folder, max_iterations=2) as loop:
        loop.fake._then = lambda _: names.append((loop.loop.stats.current_state, loop.loop.stats.current_config))
        loop.run()
    assert set(names) == {(LoopState.COOLING_DOWN, None)}


def test_a_game_that_waits_does_not_keep_another_from_its_turn_after_an_error(copied_loop, monkeypatch):
    """Its breaker is open for an hour; the other one had an error before its turn, and then has one."""
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, failure_backoff_seconds=3600.0, max_iterations=1) as loop:
        other, looks, is_running = loop.second_game(), [], presence.is_unified_loop_running
        for _ in range(3):
            loop.breakers.fail("another_2p", "look", loop.fake.at, "torn")

        def failing_once(save_dir):
            looks.append(1)
            if len(looks) == 2:
                raise OSError(5, "Input/output error")
            return is_running(save_dir)

        monkeypatch.setattr(continuous.presence, "is_unified_loop_running", failing_once)
        loop.stop_after(600.0)
        engine = loop.continuous([other, loop.runner])
        engine.run()
        assert engine.stats.successful_iterations == 1
        assert loop.fake.at < 1_000_060.0


def test_games_take_turns_and_one_that_waits_gives_its_turn_away(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, max_iterations=3) as loop:
        other, ended, original = loop.second_game(), [], promote.promote_stage

        def noted(pipeline, files):
            ended.append((pipeline.layout.root.name, files.number))
            return original(pipeline, files)

        monkeypatch.setattr(promote, "promote_stage", noted)
        engine = loop.continuous([loop.runner, other])
        engine.run()
        assert ended == [("tic_tac_toe_2p", 3), ("another_2p", 3), ("tic_tac_toe_2p", 4)]
        for _ in range(3):
            loop.breakers.fail("another_2p", "begin", loop.fake.at, "torn")
        engine = loop.continuous([other, loop.runner])
        engine.run()
        assert [game for game, _ in ended[3:]] == ["tic_tac_toe_2p"] * 3
