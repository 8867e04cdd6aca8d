"""Iterations that another command finishes while a loop does not look: told once, in their order, and gone on from."""

import contextlib
import functools

import pytest
from support.loops import FakeClock, small_loop, tasks_of, told
from support.marks import full
from support.pipelines import digests

from stoix_like.config.checks.access import replace_leaves
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.events import history, kinds
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files.folders import STAGE_NAMES
from stoix_like.selfplay.files.iteration_start import read_start
from stoix_like.selfplay.files.tuned_leaves import TuningResult, write_result
from stoix_like.selfplay.iterations import begin, steps
from stoix_like.selfplay.iterations.begin import IterationOptions
from stoix_like.selfplay.loops import plateau


def run_one(loop, kind):
    """Runs a loop until it has finished an iteration itself."""
    engine = loop.engine(kind, max_iterations=1)
    engine.run()
    assert engine.stats.successful_iterations == 1


@pytest.mark.parametrize("finished_meanwhile", [1, full(2)])
@pytest.mark.parametrize("kind", ["continuous", "master"])
def test_another_command_finishes_the_iteration_of_a_loop_between_two_of_its_stages(
    copied_loop, kind, finished_meanwhile
):
    pipeline, folder = copied_loop
    wiring = wire_pipeline_events()

    def another_command(event):
        if event.iteration == 3:
            for _ in range(finished_meanwhile):  # as run_training_loop.py does: the rest of this one, then the next
                steps.run_iteration(loop.runner.pipeline)

    wiring.subscribe("another", another_command, kinds=(kinds.SelfplayComplete.kind,))
    with small_loop(pipeline, folder, wiring=wiring, max_iterations=1) as loop:
        run_one(loop, kind)
        last = 3 + finished_meanwhile
        assert loop.keys[16:] == [key for number in range(3, last + 1) for key in told(number, loop.layout)]
        assert loop.layout.iterations() == list(range(last + 1))


def test_another_command_finishes_iterations_while_a_loop_cools_down(copied_loop):
    pipeline, folder = copied_loop
    done = []

    def another_command(clock):
        if not done:
            done.append(steps.run_iteration(loop.runner.pipeline).iteration)

    with small_loop(pipeline, folder, clock=FakeClock(another_command), max_iterations=2) as loop:
        assert loop.run().successful_iterations == 2
        assert done == [4]
        assert loop.keys[16:] == [key for number in (3, 4, 5) for key in told(number, loop.layout)]


@contextlib.contextmanager
def before_the_lock(monkeypatch, is_time, act):
    """Another process acts once, between a look at what is due and the lock: when `is_time()`."""
    lock, acted = begin.work_lock, []

    @contextlib.contextmanager
    def late(layout):
        if not acted and is_time():
            acted.append(True)
            act()
        with lock(layout):
            yield

    for module in (begin, steps):
        monkeypatch.setattr(module, "work_lock", late)
    yield
    assert acted


def finish(loop, times=1):
    """What another process does that finishes the iteration, and the next ones."""
    for _ in range(times):
        steps.run_iteration(loop.runner.pipeline)


OTHERS = ("sync", "train", "promote")


def run_by_hand(loop):
    assert steps.run_iteration(loop.runner.pipeline).iteration == 3


@pytest.mark.parametrize("stage", ["evaluate", *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)])
@pytest.mark.parametrize(
    "run", [run_by_hand, lambda loop: run_one(loop, "continuous"), lambda loop: run_one(loop, "master")]
)
def test_a_stage_that_another_process_has_done_meanwhile_is_not_done_again(copied_loop, monkeypatch, run, stage):
    """A later champion, of iteration 4, must not become the opponent of the candidate of iteration 3."""
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, max_iterations=1) as loop:
        before = STAGE_NAMES[STAGE_NAMES.index(stage) - 1]
        done = dict[str, str]()

        def meanwhile():
            finish(loop, 2)
            done.update(digests(loop.layout, 3))

        def is_time():
            return read_manifest(loop.layout.stage(3, before)) is not None

        with before_the_lock(monkeypatch, is_time, meanwhile):
            run(loop)
        assert digests(loop.layout, 3) == done
        assert list(done) == list(STAGE_NAMES)


def test_more_games_are_not_played_into_an_iteration_that_another_process_has_finished(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder) as loop:
        assert loop.begin().kind == "ran"
        for _ in range(2):
            assert loop.step().kind == "ran"
        assert loop.runner.may_play_more(loop.runner.due(), 4)
        found = loop.runner.due()
        with before_the_lock(monkeypatch, lambda: True, lambda: finish(loop)):
            assert loop.runner.play_more(found).kind == "ran"
        assert read_manifest(loop.layout.stage(3, "selfplay")).inputs["batches"] == "1"
        assert list(digests(loop.layout, 3)) == list(STAGE_NAMES)


def test_an_iteration_that_another_process_has_begun_meanwhile_is_not_left(copied_loop, monkeypatch):
    """`--new-iteration` leaves the iteration that was unfinished when it was asked for, and no later one."""
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder) as loop:
        pipeline = loop.runner.pipeline
        assert begin.begin_iteration(pipeline) == 3

        def meanwhile():
            finish(loop)
            assert begin.begin_iteration(pipeline) == 4

        with before_the_lock(monkeypatch, lambda: True, meanwhile):
            assert begin.begin_iteration(pipeline, IterationOptions(new_iteration=True)) == 4


def test_the_boost_of_an_iteration_is_that_of_the_decisions_when_it_begins(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder) as loop:
        monkeypatch.setattr(history, "exploration_boost", lambda results: 1.0 + 0.1 * len(list(results)))
        with before_the_lock(monkeypatch, lambda: True, lambda: finish(loop)):
            assert loop.begin().kind == "ran"
        assert read_start(loop.layout, 4).exploration_boost == pytest.approx(1.3)


def test_leaves_that_are_tuned_meanwhile_hold_for_the_iteration_that_begins(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, replace_leaves(pipeline.config, {"save_dir": str(folder)})) as loop:
        rate = loop.runner.config.optimization.actor_lr

        def tune():
            loop.layout.plateau(2).mkdir(parents=True)
            write_result(loop.layout, 2, TuningResult({"actor_lr": rate / 2}, {"actor_lr": rate}, None, 0.0))

        with before_the_lock(monkeypatch, lambda: True, tune):
            assert loop.begin().kind == "waits"
        assert loop.begin().kind == "ran"
        assert read_start(loop.layout, 3).settings["actor_lr"] == rate / 2


def test_a_plateau_hook_is_not_started_beside_an_iteration_that_has_begun_meanwhile(copied_loop, monkeypatch):
    pipeline, folder = copied_loop
    with small_loop(pipeline, folder, watch=WatchRule(1, 1e9)) as loop:
        master = loop.master(plateau_hook=True, plateau_function="cma_es")
        begun = functools.partial(begin.begin_iteration, loop.runner.pipeline)
        monkeypatch.setattr(plateau, "run_plateau_hook", lambda *_: pytest.fail("it is started"))
        with before_the_lock(monkeypatch, lambda: True, begun):
            assert [outcome.kind for outcome in tasks_of(master, "plateau_hook")] == ["ran"]
        assert loop.layout.last_iteration() == 3
