"""What a loop that nobody looks at must survive, whichever policy it has: it goes on, and says what was wrong.

With nothing replaced but the clock, and what fails.
"""

import itertools

import pytest
from support.loops import FakeClock, small_loop, told
from support.marks import full, quick

from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.events import derive
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files import retention
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.loops import runner, start
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import StageLimits
from stoix_like.selfplay.stages import selfplay, train
from stoix_like.selfplay.watch import lines
from stoix_like.selfplay.watch.stats import LoopStats

KINDS = ("continuous", "master")
each_kind = pytest.mark.parametrize("kind", KINDS)
TORN, SYSTEM, BUG = CheckpointError("torn", "put it back"), OSError(5, "Input/output error"), KeyError("games")
OPENED = ["closed", "closed", "open", "open", "open"]


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


@each_kind
def test_a_stage_that_fails_is_tried_again_after_pauses_that_double(copied_loop, monkeypatch, kind):
    """Three failures open its breaker; the trial after each pause fails, too, until the sixth."""
    pipeline, folder = copied_loop
    failures, states, trained = [], set(), train.train_stage

    def failing(*arguments):
        failures.append(clock.at)
        if len(failures) <= 5:
            raise RunError("the loss is not finite", "lower the rate")
        return trained(*arguments)

    monkeypatch.setattr(train, "train_stage", failing)
    clock = FakeClock(lambda _: states.add(str(engine.stats.current_state)))
    with small_loop(pipeline, folder, clock=clock, max_iterations=6) as loop:
        engine = loop.engine(kind, max_iterations=6, idle_batches=0)
        engine.run()
        stats = engine.stats
        assert (stats.successful_iterations, stats.failed_iterations, stats.consecutive_failures) == (1, 5, 0)
        assert stats.last_error == "tic_tac_toe_2p: train: the loss is not finite (lower the rate)"
        gaps = [later - before for before, later in itertools.pairwise(failures)]
        # the continuous loop cools down, and waits for the breaker; the master loop looks every ten seconds
        cooldown, late = (5.0, 1.0) if kind == "continuous" else (0.0, 10.0)
        assert gaps[:2] == [cooldown, cooldown]
        assert gaps[2:] == [pytest.approx(pause, abs=late) for pause in (300.0, 600.0, 1200.0)]
        failed = [key for key in loop.keys if "FAILED" in key]
        assert failed == [f"3/train/{name}/{n}" for n in range(1, 6) for name in ("STAGE_FAILED", "TRAINING_FAILED")]
        events = [logged.event for logged in loop.log.read()]
        assert [event.breaker for event in events if event.kind == "STAGE_FAILED"] == OPENED
        assert "error" in states
        assert stats.waiting == {}
        assert loop.keys[-1] == "3/promote/ITERATION_COMPLETE/1"


@pytest.mark.parametrize(
    ("error", "said", "tracebacks"),
    [
        (OSError(28, "No space left on device", "runs/shard"), "No space left on device: runs/shard (free some", 0),
        (SYSTEM, "Input/output error (see that its disk works", 0),
        (RunError("no memory", "lower --batch-size"), "no memory (lower --batch-size)", 0),
        (BUG, "KeyError('games')", 1),
    ],
)
def test_only_a_bug_is_said_with_its_traceback(copied_loop, monkeypatch, error, said, tracebacks):
    pipeline, folder = copied_loop
    monkeypatch.setattr(selfplay, "selfplay_stage", raising(error))
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        assert loop.run().failed_iterations == 1
        assert any(f"selfplay of iteration 3 failed: {said}" in line for line in loop.said)
        assert sum("Traceback" in line for line in loop.said) == tracebacks


OUTSIDE = {
    "events": (derive, "events_of", TORN),
    "files": (runner, "due_step", SYSTEM),
    "bug": (runner, "due_step", BUG),
}


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("continuous", "events"),
        ("master", "files"),
        full("continuous", "bug"),
        *(full(kind, place) for kind, place in (("continuous", "files"), ("master", "events"), ("master", "bug"))),
    ],
)
def test_errors_outside_a_stage_open_a_breaker_and_make_the_loop_unhealthy(copied_loop, monkeypatch, kind, place):
    (pipeline, folder), (module, function, error) = copied_loop, OUTSIDE[place]
    monkeypatch.setattr(module, function, raising(error))
    with small_loop(pipeline, folder, iteration_cooldown_seconds=10.0) as loop:
        engine, states = loop.engine(kind, max_iterations=0), set()

        def then(clock):
            states.add(str(engine.stats.current_state))
            loop.stop.is_set = clock.at > 1_000_900.0

        loop.fake._then = then
        engine.run()
        assert "error" in states
        assert loop.breakers.state(loop.runner.game, "look", 1_000_400.0) == "open"
        assert 3 <= engine.stats.failed_iterations <= 6
        assert str(error.args[-1]) in engine.stats.last_error


@each_kind
def test_errors_of_no_game_make_the_loop_unhealthy_until_they_end(copied_loop, monkeypatch, kind):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        engine, states = loop.engine(kind, max_iterations=1), []
        plan = engine.policy.plan

        def failing(*arguments):
            if loop.fake.at < 1_000_055.0:
                raise SYSTEM
            return plan(*arguments)

        monkeypatch.setattr(engine.policy, "plan", failing)
        loop.fake._then = lambda _: states.append(str(engine.stats.current_state))
        engine.run()
        assert list(dict.fromkeys(states)) == ["idle", "error"]
        assert loop.said.count("it is tried again in 10 s: [Errno 5] Input/output error") == 6
        assert (engine.stats.successful_iterations, engine.stats.errors_in_a_row) == (1, 0)
        assert "Input/output error" in engine.stats.last_error


@pytest.mark.parametrize(
    ("kind", "error"), [("continuous", RunError("the database is locked", "wait")), ("master", OSError(116, "Stale"))]
)
def test_a_game_that_cannot_be_looked_at_is_looked_at_again(copied_loop, monkeypatch, kind, error):
    """Three failures open the breaker, and the trial after its pause fails, too."""
    pipeline, folder = copied_loop
    original, last_iteration, looks = GameRunner.recover, Layout.last_iteration, []

    def failing(runner):
        looks.append(loop.fake.at)
        if len(looks) > 4:
            return original(runner)
        raise error

    def stale(layout):
        if len(looks) <= 4:
            raise error
        return last_iteration(layout)

    with small_loop(pipeline, folder, max_iterations=5) as loop:
        monkeypatch.setattr(GameRunner, "recover", failing)
        if isinstance(error, OSError):
            monkeypatch.setattr(Layout, "last_iteration", stale)
        loop.stop_after(5000.0)
        engine = loop.engine(kind, max_iterations=5, idle_batches=0)
        engine.run()
        stats = engine.stats
        assert (stats.successful_iterations, stats.failed_iterations, stats.total_iterations) == (1, 4, 5)
        assert stats.last_error.startswith("tic_tac_toe_2p: look: ")
        assert stats.waiting == {}  # it can be read again
        assert len([line for line in loop.said if "its breaker is open" in line]) == 2  # each time once
        waited = [later - before for before, later in itertools.pairwise(looks[:5])]
        assert [seconds >= 300.0 for seconds in waited] == [False, False, True, True]


@each_kind
def test_a_file_that_cannot_be_read_for_a_moment_is_a_failure_of_its_game_alone(copied_loop, kind):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, max_iterations=5) as loop:
        other = loop.second_game()
        path = loop.layout.stage(2, "promote") / "manifest.json"
        text = path.read_text()
        path.write_text("{")
        engine, states = loop.engine(kind, [loop.runner, other], max_iterations=5), set()

        def then(clock):
            states.add(str(engine.stats.current_state))
            if other.layout.last_iteration() == 3:
                path.write_text(text)

        loop.fake._then = then
        engine.run()
        num_failed = 1 if kind == "continuous" else 3  # the master loop looks again at once, until the breaker opens
        assert (engine.stats.successful_iterations, engine.stats.failed_iterations) == (5 - num_failed, num_failed)
        assert engine.stats.last_error.startswith("tic_tac_toe_2p: look: ")
        assert other.layout.last_iteration() >= 4
        assert "error" not in states  # one game that waits is no error of the loop
        assert (loop.layout.last_iteration() > 2) == (kind == "continuous")  # it could be read again


@each_kind
def test_when_the_disk_is_full_old_files_are_removed_and_nothing_is_played(copied_loop, monkeypatch, kind):
    pipeline, folder = copied_loop
    cleaned = []
    monkeypatch.setattr(retention, "clean", lambda layout, rule: cleaned.append(rule))
    with small_loop(pipeline, folder, limits=StageLimits(min_free_disk=1e9)) as loop:
        loop.stop_after(15.0)
        engine = loop.engine(kind, max_iterations=0)
        engine.run()
        positions = 2 * loop.runner.config.alphazero.replay_buffer_size
        assert set(cleaned) == {retention.RetentionRule(positions, 16)}
        assert loop.layout.last_iteration() == 3
        assert engine.stats.total_iterations == 0
        assert "GB of disk are free" in engine.stats.waiting["tic_tac_toe_2p"]


@each_kind
def test_old_files_that_cannot_be_removed_are_said_and_end_nothing(copied_loop, monkeypatch, kind):
    pipeline, folder = copied_loop
    monkeypatch.setattr(retention, "clean", raising(OSError(30, "Read-only file system")))
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        loop.engine(kind, max_iterations=1).run()
        assert read_manifest(loop.layout.stage(3, "promote")) is not None
        assert any("old files are not removed" in line for line in loop.said)


def test_failures_that_cannot_be_stored_open_their_breaker_for_this_process(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    monkeypatch.setattr(selfplay, "selfplay_stage", raising(RunError("no memory", "lower --batch-size")))
    with small_loop(pipeline, folder, iteration_cooldown_seconds=0.0) as loop:
        full = raising(RunError("database or disk is full", "free some space"))
        transaction, write = loop.database.transaction, loop.breakers._write

        def no_breaker(*arguments):
            monkeypatch.setattr(loop.database, "transaction", full)
            try:
                write(*arguments)
            finally:
                monkeypatch.setattr(loop.database, "transaction", transaction)

        monkeypatch.setattr(loop.breakers, "_write", no_breaker)
        loop.stop_after(290.0)
        loop.run()
        failures = [line for line in loop.said if line.startswith("tic_tac_toe_2p: selfplay of iteration")]
        assert len(failures) == 3
        assert loop.breakers.state(loop.runner.game, "selfplay", 1_000_290.0) == "open"
    with small_loop(pipeline, folder) as again:
        assert again.breakers.read(again.runner.game, "selfplay").failures == 0


def test_events_that_cannot_be_written_are_written_later(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
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


SWITCHES = {"sync": "sync", "export": "export", "training": "train", "evaluation": "evaluate", "promotion": "promote"}


@pytest.mark.parametrize("switch", quick(tuple(SWITCHES), ("export", "promotion")))
@each_kind
def test_a_stage_that_is_switched_off_is_waited_for_and_is_no_failure(copied_loop, kind, switch):
    pipeline, folder = copied_loop
    stage = SWITCHES[switch]
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(**{switch: False})) as loop:
        loop.stop_after(100.0)
        engine = loop.engine(kind, max_iterations=0, idle_batches=0)
        engine.run()
        assert (engine.stats.total_iterations, engine.stats.failed_iterations) == (0, 0)
        assert loop.runner.due().step.stage == stage
        (said,) = [line for line in loop.said if f"waits: {stage}: " in line]  # once
        assert said.endswith(f"--save-dir {folder} --resume --stage {stage}")
    with small_loop(pipeline, folder, max_iterations=1) as loop:  # with the switch on, it goes on
        assert loop.run().successful_iterations == 1


@pytest.mark.parametrize(("made", "interrupted", "code"), [(3, False, 0), (3, True, 130), (0, False, 1)])
def test_the_exit_code_of_a_loop_is_the_same_when_nothing_can_be_printed(made, interrupted, code):
    full = raising(OSError(28, "No space left on device"))
    stats = LoopStats(successful_iterations=made, interrupted=interrupted)
    assert lines.conclude(stats, "next", Reporter(full, full, full, full)) == code


def test_a_game_that_cannot_be_listed_lets_a_master_loop_start(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder) as loop:
        monkeypatch.setattr(loop.runner, "recover", raising(PermissionError(13, "Permission denied")))
        start._recover(start.OpenedLoop([loop.runner], loop.services, loop.database, None))


def test_the_newest_iteration_is_found_behind_a_gap(tmp_path):
    layout = Layout(tmp_path / "othello_2p")
    for number in (0, 51, 53):
        layout.iteration(number).mkdir(parents=True)
    assert layout.last_iteration() == 53
    assert list(layout.newest_first()) == [53, 51]
    layout.iteration(54).mkdir()
    assert layout.last_iteration() == 54
