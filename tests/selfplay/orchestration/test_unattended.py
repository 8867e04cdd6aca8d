"""What a loop that nobody looks at must not do: starve, spin, end by itself, or miss a stop."""

import dataclasses
import shutil

import pytest
from support.loops import FakeClock, small_loop
from support.pipelines import SMALL

from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.console.reporter import SILENT, Reporter
from stoix_like.selfplay.events import derive
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.loops import continuous, plateau, runner, start
from stoix_like.selfplay.loops import stop as stop_module
from stoix_like.selfplay.loops.master import RETRY_SECONDS
from stoix_like.selfplay.loops.services import Gates
from stoix_like.selfplay.ratings import shadow
from stoix_like.selfplay.stages import selfplay, sync
from stoix_like.selfplay.watch import lines, presence
from stoix_like.selfplay.watch.presence import MASTER, PresenceLock
from stoix_like.selfplay.watch.stats import LoopState, MasterStats

EVENTS = ("STAGE_FAILED", "ITERATION_COMPLETE")


def stop_after(loop, seconds):
    loop.fake._then = lambda clock: setattr(loop.stop, "is_set", clock.at > 1_000_000.0 + seconds)


def test_evaluations_that_take_longer_than_their_interval_let_games_go_on(copied, monkeypatch):
    pipeline, folder = copied
    with small_loop(pipeline, folder) as loop:
        made = []

        def slow(*_):
            made.append(loop.layout.last_iteration())
            loop.fake.at += 1000.0
            loop.stop.is_set = len(made) > 50

        monkeypatch.setattr(shadow, "shadow_evaluation", slow)
        master = loop.master(max_iterations=2, shadow_interval_seconds=900.0)
        assert not master._evaluate()  # from here on they are due
        loop.fake.at += 900.0
        master.run()
        assert master.stats.successful_iterations == 2
        assert 2 <= len(made) <= 50


def test_an_evaluation_that_fails_late_is_tried_again_five_minutes_later(copied, monkeypatch):
    pipeline, folder = copied
    with small_loop(pipeline, folder) as loop:

        def failing(*_):
            loop.fake.at += 2.0 * RETRY_SECONDS
            raise RunError("no memory", "lower --batch-size")

        monkeypatch.setattr(shadow, "shadow_evaluation", failing)
        master = loop.master(shadow_interval_seconds=900.0)
        assert not master._evaluate()
        loop.fake.at += 900.0
        assert master._evaluate()
        assert not master._evaluate()
        loop.fake.at += RETRY_SECONDS - 1.0
        assert not master._evaluate()
        loop.fake.at += 1.0
        assert master._evaluate()


def test_without_free_disk_nothing_is_evaluated_or_taken_in(copied, monkeypatch, tmp_path):
    pipeline, folder = copied
    (tmp_path / "theirs").mkdir()
    section = dataclasses.replace(pipeline.config.selfplay, sync_from=str(tmp_path / "theirs"))
    config = dataclasses.replace(pipeline.config, selfplay=section)
    calls = []
    monkeypatch.setattr(shadow, "shadow_evaluation", lambda *_: calls.append("shadow"))
    for gates, expected in ((Gates(min_free_disk=1e9), []), (Gates(), ["poll", "shadow"])):
        with small_loop(pipeline, folder, config, gates=gates) as loop:
            monkeypatch.setattr(loop.runner, "poll", lambda: calls.append("poll"))
            master = loop.master(shadow_interval_seconds=900.0, poll_interval_seconds=0.0)
            master._cadence.done("shadow/tic_tac_toe_2p", loop.fake.at - 900.0)
            master._poll()
            master._evaluate()
        assert calls == expected


@pytest.mark.parametrize("kind", ["continuous", "master"])
def test_failures_that_cannot_be_stored_open_their_breaker_for_this_process(copied, monkeypatch, kind):
    pipeline, folder = copied

    def failing(*_, **__):
        loop.stop.is_set = len(loop.said) > 100
        raise RunError("no memory", "lower --batch-size")

    monkeypatch.setattr(selfplay, "selfplay_stage", failing)
    with small_loop(pipeline, folder, iteration_cooldown_seconds=0.0) as loop:
        transaction = loop.database.transaction

        def full():
            raise RunError("database or disk is full", "free some space")

        def no_breaker(game, stage, breaker, write=loop.breakers._write):
            monkeypatch.setattr(loop.database, "transaction", full)
            try:
                write(game, stage, breaker)
            finally:
                monkeypatch.setattr(loop.database, "transaction", transaction)

        monkeypatch.setattr(loop.breakers, "_write", no_breaker)
        stop_after(loop, 290.0)
        started = loop.loop if kind == "continuous" else loop.master(max_iterations=0)
        started.run()
        failures = [line for line in loop.said if line.startswith("tic_tac_toe_2p: selfplay of iteration")]
        assert len(failures) == 3
        assert loop.breakers.state(loop.runner.game, "selfplay", 1_000_290.0) == "open"
    with small_loop(pipeline, folder) as again:
        assert again.breakers.read(again.runner.game, "selfplay").failures == 0


@pytest.mark.parametrize(("made", "interrupted", "code"), [(3, False, 0), (3, True, 130), (0, False, 1)])
def test_the_exit_code_of_a_loop_is_the_same_when_nothing_can_be_printed(made, interrupted, code):
    def full(_line):
        raise OSError(28, "No space left on device")

    stats = MasterStats(successful_iterations=made, interrupted=interrupted)
    assert lines.conclude(stats, "next", Reporter(full, full, full, full)) == code


def test_a_time_out_that_meets_a_starting_master_loop_ends_nothing(copied, monkeypatch):
    pipeline, folder = copied
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


def test_a_lock_that_cannot_be_read_for_a_moment_ends_nothing(copied, monkeypatch):
    pipeline, folder = copied
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


ERRORS = (CheckpointError("torn", "put it back"), OSError(5, "Input/output error"), KeyError("games"))


@pytest.mark.parametrize("kind", ["continuous", "master"])
@pytest.mark.parametrize("error", ERRORS, ids=["stoix_like", "system", "bug"])
@pytest.mark.parametrize(("module", "function"), [(derive, "events_of"), (runner, "due_step")])
def test_errors_outside_a_stage_open_a_breaker_and_make_the_loop_unhealthy(
    copied, monkeypatch, kind, error, module, function
):
    pipeline, folder = copied

    def failing(*_):
        raise error

    with small_loop(pipeline, folder, iteration_cooldown_seconds=10.0) as loop:
        monkeypatch.setattr(module, function, failing)
        started = loop.loop if kind == "continuous" else loop.master(max_iterations=0)
        states = set()

        def then(clock):
            states.add(getattr(started.stats.current_state, "value", started.stats.current_state))
            loop.stop.is_set = clock.at > 1_000_900.0

        loop.fake._then = then
        started.run()
        assert "error" in states
        assert loop.breakers.state(loop.runner.game, "look", 1_000_400.0) == "open"
        assert 3 <= started.stats.failed_iterations <= 6
        assert str(error.args[-1]) in started.stats.last_error


@pytest.mark.parametrize("kind", ["continuous", "master"])
def test_errors_of_no_game_make_the_loop_unhealthy_until_they_end(copied, monkeypatch, kind):
    pipeline, folder = copied
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        started = loop.loop if kind == "continuous" else loop.master(max_iterations=1)
        states, work = [], "_defer" if kind == "continuous" else "_do_something"
        original = getattr(started, work)

        def failing():
            if loop.fake.at < 1_000_055.0:
                raise OSError(5, "Input/output error")
            return original()

        monkeypatch.setattr(started, work, failing)
        loop.fake._then = lambda _: states.append(
            getattr(started.stats.current_state, "value", started.stats.current_state)
        )
        started.run()
        assert list(dict.fromkeys(states)) == ["idle", "error"]
        assert started.stats.successful_iterations == 1
        assert "Input/output error" in started.stats.last_error


def test_a_game_that_waits_does_not_keep_another_from_its_turn_after_an_error(copied, monkeypatch):
    """Its breaker is open for an hour; the other one had an error before its turn, and then has one."""
    pipeline, folder = copied
    with small_loop(pipeline, folder, failure_backoff_seconds=3600.0) as loop:
        layout = Layout(folder / "another_2p")
        shutil.copytree(loop.layout.root, layout.root)
        other = runner.GameRunner(loop.runner.configured, layout, loop.services)
        loop.loop.runners = [other, loop.runner]
        for _ in range(3):
            loop.breakers.fail("another_2p", "look", loop.fake.at, "torn")
        turns, defer = [], loop.loop._defer

        def failing_once():
            turns.append(1)
            if len(turns) == 2:
                raise OSError(5, "Input/output error")
            defer()

        monkeypatch.setattr(loop.loop, "_defer", failing_once)
        loop.loop.config = dataclasses.replace(loop.loop.config, max_iterations=1)
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", clock.at > 1_000_600.0)
        assert loop.run().successful_iterations == 1
        assert loop.fake.at < 1_000_060.0


@pytest.mark.parametrize(
    ("error", "said", "tracebacks"),
    [
        (OSError(28, "No space left on device", "runs/shard"), "No space left on device: runs/shard (free some", 0),
        (OSError(5, "Input/output error"), "Input/output error (see that its disk works", 0),
        (RunError("no memory", "lower --batch-size"), "no memory (lower --batch-size)", 0),
        (KeyError("games"), "KeyError('games')", 1),
    ],
)
def test_only_a_bug_is_said_with_its_traceback(copied, monkeypatch, error, said, tracebacks):
    pipeline, folder = copied
    monkeypatch.setattr(selfplay, "selfplay_stage", lambda *_, **__: (_ for _ in ()).throw(error))
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        loop.run()
        assert any(f"selfplay of iteration 3 failed: {said}" in line for line in loop.said)
        assert sum("Traceback" in line for line in loop.said) == tracebacks


def test_a_loop_says_what_it_does_while_programs_are_compiled(copied, monkeypatch):
    pipeline, folder = copied
    states, original = [], begin.begin_iteration
    with small_loop(pipeline, folder, max_iterations=1) as loop:

        def noted(*arguments):
            states.append((loop.loop.stats.current_state, loop.loop.stats.current_config))
            return original(*arguments)

        monkeypatch.setattr(begin, "begin_iteration", noted)
        loop.run()
    assert states == [(LoopState.RUNNING_SELFPLAY, "tic_tac_toe_2p")]


def test_the_command_for_a_stage_that_is_held_runs_that_stage_alone(copied):
    pipeline, folder = copied
    wiring = start.wire_pipeline_events(export=False, promotion=False)
    with small_loop(pipeline, folder, wiring=wiring) as loop:
        stop_after(loop, 30.0)
        loop.run()
        (said,) = [line for line in loop.said if "export waits" in line]
        assert said.endswith(f"--save-dir {folder} --resume --stage export")


def test_a_loop_that_waits_names_no_game(copied):
    pipeline, folder = copied
    names = []
    with small_loop(pipeline, folder, max_iterations=2) as loop:
        loop.fake._then = lambda _: names.append((loop.loop.stats.current_state, loop.loop.stats.current_config))
        loop.run()
    assert set(names) == {(LoopState.COOLING_DOWN, None)}


def test_a_stop_that_is_asked_for_while_a_loop_starts_is_kept(copied, monkeypatch):
    _, folder = copied
    monkeypatch.setattr(stop_module, "_LOOK_SECONDS", 0.01)
    select = start.devices.select

    def asked(*arguments, **options):
        with start.contextlib.closing(start.Database(folder)) as database:
            presence.request_stop(database, presence.CONTINUOUS)
        return select(*arguments, **options)

    monkeypatch.setattr(start.devices, "select", asked)
    monkeypatch.setattr(selfplay, "selfplay_stage", lambda *_, **__: pytest.fail("it plays"))
    monkeypatch.setattr(runner, "Pipeline", lambda *_: pytest.fail("it compiles"))
    config = LoopConfig([("tic_tac_toe", 2)], selfplay_games_per_iteration=10, iteration_cooldown_seconds=3600.0)
    waiting = start.ContinuousLoop._defer
    monkeypatch.setattr(start.ContinuousLoop, "_defer", lambda loop: wait_for_stop(loop) or waiting(loop))
    words = [f"--{name.replace('_', '-')}={'null' if value is None else value}" for name, value in SMALL.items()]
    words = [word for word in words if not word.startswith(("--task-id", "--selfplay-games"))]
    stats = start.run_continuous(config, folder, words=words, reporter=SILENT)
    assert (stats.total_iterations, stats.interrupted) == (0, True)


def wait_for_stop(loop):
    """Until the thread has looked, at most a minute."""
    loop._services.stop.wait(60.0, loop._services.clock)
    if loop._services.stop.is_set:
        raise continuous.Interrupted("a stop")


def test_the_search_after_a_plateau_has_a_breaker_of_its_own(copied, monkeypatch):
    pipeline, folder = copied
    monkeypatch.setattr(plateau, "due_iteration", lambda *_: (_ for _ in ()).throw(CheckpointError("torn", "put back")))
    with small_loop(pipeline, folder, gates=Gates(max_data_age=1e9)) as loop:
        loop.wiring.triggers = start.wire_pipeline_events(False).triggers
        stop_after(loop, 3600.0)
        master = loop.master(enabled=True, function="cma_es", max_iterations=0, auto_trigger=False, idle_batches=0)
        master.run()
        failed = [logged.event for logged in loop.log.read() if logged.event.kind == "STAGE_FAILED"]
        assert {event.failed_stage for event in failed} == {"plateau_hook"}
        assert 3 < len(failed) < 8  # three until it opens, and one after each pause
        assert failed[-1].breaker == "open"
        assert "plateau_hook: torn" in master.stats.last_error


def test_a_game_that_cannot_be_listed_lets_a_master_loop_start(copied, monkeypatch):
    pipeline, folder = copied
    with small_loop(pipeline, folder) as loop:
        monkeypatch.setattr(
            loop.runner, "recover", lambda: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
        )
        start._recover(start.OpenedLoop([loop.runner], loop.services, loop.database, None))


def test_weights_outlive_a_loop_and_are_not_told_again(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder) as loop:
        first, second = loop.master(), loop.master()
        for master in (first, second):
            master._runners["another_2p"] = loop.runner
        first._weights.take_up()
        told = [logged.event for logged in loop.log.read() if logged.event.kind == "CURRICULUM_REBALANCED"]
        assert len(told) == 1
        second._weights.take_up()
        assert second._weights.values == first._weights.values == told[0].weights
        assert [logged.event.kind for logged in loop.log.read()].count("CURRICULUM_REBALANCED") == 1


def test_the_newest_iteration_is_found_behind_a_gap(tmp_path):
    layout = Layout(tmp_path / "othello_2p")
    for number in (0, 51, 53):
        layout.iteration(number).mkdir(parents=True)
    assert layout.last_iteration() == 53
    assert list(layout.newest_first()) == [53, 51]
    layout.iteration(54).mkdir()
    assert layout.last_iteration() == 54
