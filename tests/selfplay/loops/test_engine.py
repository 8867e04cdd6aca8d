"""The engine by plans that are written here: what it counts, when it looks, and how it ends. No game is played."""

import contextlib
import functools
import json

import pytest
from support.loops import FakeClock, make_services

from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import RunError
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.loops import engine
from stoix_like.selfplay.loops.attempts import Attempts
from stoix_like.selfplay.loops.engine import LoopEngine, LoopLimits, Pause, Task
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import Outcome
from stoix_like.selfplay.watch.stats import LoopState

RAN, FAILED = Outcome("ran", "sync"), Outcome("failed", "train", "no memory")
HELD = Outcome("waits", "train", "its breaker is open", retry_at=5e6)


class Loop:
    """An engine over games that nobody has begun, whose rounds a function plans."""

    def __init__(self, folder, plan, max_iterations=0):
        self.said, self.clock, self._plan = [], FakeClock(), plan
        self.services = make_services(Database(folder), self.clock.clock, self.said.append)
        config = SelfPlayConfig()
        self.games = [GameRunner(config, Layout(folder / name), self.services) for name in ("a_2p", "b_2p")]
        self.engine = LoopEngine(self, self.games, self.services, LoopLimits(max_iterations, 3))
        self.stats, self.stop = self.engine.stats, self.services.stop
        self.rounds = 0

    def plan(self, look, stats):
        self.rounds += 1
        yield from self._plan(self, look)

    def task(self, outcome, game=0, *, seconds=0.0, is_counted=True, deadline=None):
        """A task that takes so long on the loop's clock, and comes to this."""

        def work():
            self.clock.at += seconds
            return outcome

        return Task(self.games[game], "sync", work, deadline, is_counted)


@pytest.fixture
def start(tmp_path):
    """Makes loops whose databases are closed afterwards."""
    with contextlib.ExitStack() as stack:

        def make(plan, **options):
            loop = Loop(tmp_path, plan, **options)
            stack.callback(loop.services.log._database.close)
            return loop

        yield make


def test_a_plan_is_sent_what_came_of_each_task_and_begins_anew_when_it_has_ended(start):
    seen = []

    def plan(loop, _):
        seen.append((yield loop.task(RAN)))
        seen.append((yield loop.task(HELD)))
        loop.stop.is_set = loop.rounds == 2

    loop = start(plan)
    loop.engine.run()
    assert seen == [RAN, HELD] * 2
    assert (loop.stats.interrupted, loop.stats.current_state) == (True, LoopState.STOPPED)
    assert loop.said == ["a_2p waits: train: its breaker is open"] * 2  # something was done in between


def test_failures_are_counted_of_tasks_that_count_and_end_the_loop_at_its_last_iteration(start):
    def plan(loop, _):
        yield loop.task(FAILED, is_counted=False, seconds=100.0)
        yield loop.task(RAN, seconds=2.0)
        yield loop.task(FAILED, seconds=3.0)

    loop = start(plan, max_iterations=1)
    loop.engine.run()
    stats = loop.stats
    assert (stats.failed_iterations, stats.consecutive_failures, stats.total_iterations) == (1, 1, 1)
    assert (stats.last_error, stats.last_config_trained) == ("a_2p: train: no memory", "a_2p")
    assert stats.last_iteration_time == 5.0  # without what does not count
    assert stats.seconds == {"a_2p": 105.0, "b_2p": 0.0}
    assert not stats.interrupted


def test_the_plan_goes_on_after_the_last_task_and_nothing_that_it_names_then_is_done(start):
    reached = []

    def plan(loop, _):
        yield loop.task(FAILED)
        reached.append(True)
        yield Task(loop.games[0], "sync", functools.partial(pytest.fail, "it is done"), None)

    loop = start(plan, max_iterations=1)
    loop.engine.run()
    assert reached == [True]


def test_a_game_is_looked_at_once_until_something_is_done(start, monkeypatch):
    looks = []
    monkeypatch.setattr(GameRunner, "recover", lambda runner: looks.append(runner.game))

    def plan(loop, look):
        assert look(loop.games[0]) == look(loop.games[0]) == (1, ("selfplay", 1))
        look(loop.games[1])
        yield loop.task(RAN)
        look(loop.games[0])
        loop.stop.is_set = True

    loop = start(plan)
    loop.engine.run()
    assert looks == ["a_2p", "b_2p", "a_2p"]


def test_a_game_that_cannot_be_looked_at_is_one_failure_of_a_round(start, monkeypatch):
    monkeypatch.setattr(GameRunner, "recover", lambda runner: 1 / 0)

    def plan(loop, look):
        assert look(loop.games[0]) is look(loop.games[0])
        assert look(loop.games[0]).kind == "failed"
        yield Pause(LoopState.IDLE, 10.0)
        loop.stop.is_set = True

    loop = start(plan)
    loop.engine.run()
    assert loop.stats.failed_iterations == 1
    assert "ZeroDivisionError" in loop.stats.last_error


def test_a_game_whose_files_are_not_looked_at_gives_back_disk_all_the_same(start, monkeypatch):
    cleaned = []
    monkeypatch.setattr(engine, "clean_if_full", lambda runner, _: cleaned.append(runner.game))
    monkeypatch.setattr(Attempts, "held", lambda attempts, what: HELD)

    def plan(loop, look):
        assert look(loop.games[1]) == HELD
        loop.stop.is_set = True
        yield Pause(LoopState.IDLE, 10.0)

    start(plan).engine.run()
    assert cleaned == ["b_2p"]


def test_errors_between_tasks_add_up_though_tasks_before_them_wait_or_run(start):
    """As while the database is locked, and a stage is switched off: no self-play is ever reached."""
    states = []

    def plan(loop, _):
        yield loop.task(HELD._replace(retry_at=None))
        loop.stop.is_set = loop.rounds == 5
        loop.clock._then = lambda _: states.append(str(loop.stats.current_state))
        raise RunError("the database is locked", "wait")

    loop = start(plan)
    loop.engine.run()
    assert list(dict.fromkeys(states)) == ["idle", "error"]
    assert loop.stats.errors_in_a_row == 5


def test_an_iteration_begins_with_what_is_done_for_it_and_not_with_waiting(start):
    def plan(loop, _):
        yield loop.task(HELD)
        yield Pause(LoopState.IDLE, 3600.0)
        yield loop.task(FAILED, seconds=2.0)

    loop = start(plan, max_iterations=1)
    loop.engine.run()
    assert loop.stats.last_iteration_time == 2.0


class ChangedMeanwhile(dict):
    """A mapping that gets another key while Python walks through it, as another thread may give it."""

    def items(self):
        for number, item in enumerate(super().items()):
            self[f"another_{number}"] = "train"
            yield item


def test_what_the_heartbeat_reads_is_a_copy_that_is_made_in_one_step(start):
    stats = start(lambda loop, _: iter(())).stats
    stats.waiting = ChangedMeanwhile(b_2p="train")
    assert stats.as_dict()["waiting"] == {"b_2p": "train"}
    stats.waiting = {}
    told = stats.as_dict()
    stats.waiting["a_2p"], stats.seconds["a_2p"] = "train", 7.0
    assert (told["waiting"], told["seconds"]["a_2p"], told["total_iterations"]) == ({}, 0.0, 0)
    json.dumps(told)


@pytest.mark.parametrize(("held", "state"), [((0, 1), "error"), ((0,), "idle"), ((), "idle")])
def test_a_loop_is_unhealthy_while_all_of_its_games_wait_for_breakers(start, held, state):
    states = []

    def plan(loop, _):
        for game in held:
            yield loop.task(HELD, game)
        loop.clock._then = lambda _: states.append((str(loop.stats.current_state), loop.stats.current_config))
        yield Pause(LoopState.IDLE, 3.0)
        loop.stop.is_set = True

    loop = start(plan)
    loop.engine.run()
    assert set(states) == {(state, None)}
    assert sum(loop.clock.slept) == pytest.approx(3.0)


def test_a_time_out_that_a_task_has_not_seen_is_sent_and_ends_nothing(start):
    def plan(loop, _):
        def late():
            assert loop.stop.has_deadline
            loop.stop.look(is_stopped=False)  # as the watcher does
            return RAN

        outcome = yield Task(loop.games[0], "sync", late, deadline=-1e9)
        assert (outcome.kind, outcome.is_late) == ("ran", True)
        assert not loop.stop.is_set
        assert not loop.stop.has_deadline
        outcome = yield loop.task(RAN)
        assert not outcome.is_late
        loop.stop.is_set = True

    start(plan).engine.run()


def test_a_plan_that_is_interrupted_is_closed(start):
    closed = []

    def plan(loop, _):
        def interrupted():
            raise Interrupted("train")

        try:
            yield Task(loop.games[0], "sync", interrupted, None)
        finally:
            closed.append(loop.stats.seconds["a_2p"])

    loop = start(plan)
    loop.engine.run()
    assert len(closed) == 1
    assert loop.stats.interrupted
