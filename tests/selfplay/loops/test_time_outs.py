"""Time-outs of stages: each ends one stage, counts as its failure, and leaves nothing behind for the next one."""

import signal
import threading
import time

import pytest
from support.loops import FakeClock, small_loop
from support.pipelines import small_config

from stoix_like.runtime.training.stopping import stopping_on_signals
from stoix_like.selfplay.events import kinds
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files.folders import STAGE_NAMES
from stoix_like.selfplay.iterations.due import Step
from stoix_like.selfplay.loops import stop as stop_module
from stoix_like.selfplay.loops.stop import LoopStop
from stoix_like.selfplay.stages import evaluate, export, promote, selfplay, sync, train

#: {stage: where the loop calls it}.
CALLS = {
    "selfplay": (selfplay, "selfplay_stage"),
    "sync": (sync, "sync_stage"),
    "export": (export, "export_stage"),
    "train": (train, "train_stage"),
    "evaluate": (evaluate, "evaluate_stage"),
    "promote": (promote, "promote_stage"),
}


def end_of_time(stop):
    """The time of the stage that runs is over, and the watcher sees it."""
    assert stop.has_deadline
    stop.set_deadline(-1e9)
    stop.look(is_stopped=False)
    assert stop.timed_out


class Watched:
    """Notes the deadline of each stage when it begins, and lets the first call of one take too long."""

    def __init__(self, monkeypatch, slow=None):
        self.seen, self._slow, self.stop = [], slow, None
        for stage, (module, name) in CALLS.items():
            monkeypatch.setattr(module, name, self._watched(stage, getattr(module, name)))

    def _watched(self, stage, original):
        def call(*arguments, **options):
            left = None if self.stop._deadline is None else self.stop._deadline - time.monotonic()
            self.seen.append((stage, left, self.stop.is_set))
            if stage == self._slow:
                self._slow = None
                end_of_time(self.stop)
            return original(*arguments, **options)

        return call


def test_a_time_out_in_self_play_is_its_failure_and_the_next_stages_have_their_own_time(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    watched = Watched(monkeypatch, slow="selfplay")
    with small_loop(pipeline, folder) as loop:
        watched.stop = loop.stop
        master = loop.master(max_iterations=2, stage_timeout_seconds=1000.0)
        master.run()
        stats = master.stats
        assert (stats.successful_iterations, stats.failed_iterations) == (1, 1)
        assert stats.last_error == "tic_tac_toe_2p: selfplay: it did not end in time"
        failed = [logged.event for logged in loop.log.read() if logged.event.kind == kinds.StageFailed.kind]
        assert [(event.iteration, event.failed_stage, event.error) for event in failed] == [
            (3, "selfplay", "it did not end in time")
        ]
        assert loop.breakers.read(loop.runner.game, "selfplay").failures == 0  # it was played at the second trial
        assert not loop.stop.has_deadline
    assert [stage for stage, *_ in watched.seen] == ["selfplay", *STAGE_NAMES]
    assert all(0.0 < left <= 1000.0 and not is_set for _, left, is_set in watched.seen)


def test_self_play_of_the_continuous_loop_has_all_the_time_also_after_a_stage_that_had_too_little(
    copied_loop, monkeypatch
):
    """The stages after it share theirs: it is counted once, and ends with the iteration that has failed."""
    pipeline, folder = copied_loop
    watched, in_pauses = Watched(monkeypatch, slow="evaluate"), []
    clock = FakeClock(lambda clock: in_pauses.append(loop.stop.has_deadline))
    with small_loop(pipeline, folder, clock=clock, max_iterations=3, pipeline_timeout_seconds=1000.0) as loop:
        watched.stop = loop.stop
        stats = loop.run()
        assert (stats.successful_iterations, stats.failed_iterations) == (2, 1)
        assert stats.last_error == "tic_tac_toe_2p: evaluate: it did not end in time"
    first, second = STAGE_NAMES[: STAGE_NAMES.index("evaluate") + 1], STAGE_NAMES[STAGE_NAMES.index("evaluate") :]
    assert [stage for stage, *_ in watched.seen] == [*first, *second, *STAGE_NAMES]
    assert [left for stage, left, _ in watched.seen if stage == "selfplay"] == [None, None]
    shared = [left for stage, left, _ in watched.seen[1:5]]
    assert shared == sorted(shared, reverse=True)
    assert all(0.0 < left <= 1000.0 for stage, left, _ in watched.seen if stage != "selfplay")
    assert not any(is_set for *_, is_set in watched.seen)
    assert set(in_pauses) == {False}


@pytest.mark.parametrize("stage", ["sync", pytest.param("export", marks=pytest.mark.full), "evaluate"])
def test_a_time_out_after_the_last_look_of_a_stage_is_a_failure_of_the_next_one(copied_loop, monkeypatch, stage):
    pipeline, folder = copied_loop
    module, name = CALLS[stage]
    original, slow = getattr(module, name), [stage]

    def call(*arguments, **options):
        done = original(*arguments, **options)
        if slow:
            slow.pop()
            end_of_time(loop.stop)
        return done

    monkeypatch.setattr(module, name, call)
    with small_loop(pipeline, folder, max_iterations=2, pipeline_timeout_seconds=1000.0) as loop:
        stats = loop.run()
        assert (stats.successful_iterations, stats.failed_iterations, stats.interrupted) == (1, 1, False)
        following = STAGE_NAMES[STAGE_NAMES.index(stage) + 1]
        assert stats.last_error == f"tic_tac_toe_2p: {following}: the stages before it have taken all the time"


def test_an_iteration_that_is_begun_instead_of_another_one_plays_without_a_time_limit(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, wiring=wire_pipeline_events(sync=False)) as loop:
        loop.fake._then = lambda clock: setattr(loop.stop, "is_set", True)
        loop.run()
        assert loop.runner.due() == (3, Step("sync"))
    watched = Watched(monkeypatch)
    with small_loop(pipeline, folder, small_config(folder, actor_lr=0.00123), max_iterations=1) as loop:
        watched.stop = loop.stop
        assert loop.run().successful_iterations == 1
        assert loop.layout.last_iteration() == 4
    assert [left for stage, left, _ in watched.seen if stage == "selfplay"] == [None]


@pytest.mark.parametrize("kind", ["continuous", "master"])
def test_a_stop_that_comes_while_a_stage_is_out_of_time_ends_the_loop(copied_loop, monkeypatch, kind):
    pipeline, folder = copied_loop
    original = evaluate.evaluate_stage

    def slow(*arguments):
        end_of_time(loop.stop)
        loop.stop.look(is_stopped=True)
        return original(*arguments)

    monkeypatch.setattr(evaluate, "evaluate_stage", slow)
    with small_loop(pipeline, folder, max_iterations=3) as loop:
        loop.engine(kind, max_iterations=3).run()
        assert loop.stop.is_set
        assert loop.layout.iterations() == [0, 1, 2, 3]
        assert loop.runner.due().step.stage == "evaluate"
        assert not [key for key in loop.keys if "FAILED" in key]  # a stop is no failure


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_while_a_stage_is_out_of_time_ends_the_loop_at_its_next_chunk(number, not_under_nohup):
    stop = LoopStop()
    with stopping_on_signals(stop):
        stop.set_deadline(1e18)
        end_of_time(stop)
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            pytest.fail("it counted as the second one")
        assert stop.is_set
        assert not stop.go_on()  # the stage is interrupted, and has not failed
        assert stop.is_set
        if number != signal.SIGHUP:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)


@pytest.mark.parametrize("comes_first", ["stop", "time-out"])
def test_a_stop_is_kept_whether_it_comes_before_or_after_a_time_out(comes_first):
    stop = LoopStop()
    stop.set_deadline(-1e9)  # long ago
    for is_stopped in (True, False) if comes_first == "stop" else (False, True):
        stop.look(is_stopped)
    assert not stop.go_on()
    assert stop.is_set
    assert not stop.has_deadline


@pytest.mark.parametrize("look", ["watcher", "heartbeat"])
def test_a_stage_that_ends_while_a_thread_looks_at_its_time_leaves_no_time_out(monkeypatch, look):
    stop, ends = LoopStop(), []
    stop.set_deadline(-1e9)  # long ago

    def monotonic():  # which a look asks for, after it has seen a deadline and before it compares
        ends.append(threading.Thread(target=stop.go_on))
        ends[0].start()
        ends[0].join(0.1)  # the stage ends now, if the look lets it
        return 0.0

    monkeypatch.setattr(stop_module.time, "monotonic", monotonic)
    if look == "watcher":
        stop.look(is_stopped=False)
    else:
        assert stop.is_late  # it was, when it was asked
    monkeypatch.undo()
    ends[0].join()
    assert not stop.is_set
    assert not stop.has_deadline
