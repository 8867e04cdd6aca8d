"""What is started when champions no longer gain: when it is due, and what becomes of its result."""

import dataclasses
import functools
import gc
import json
import weakref

import pytest
from support.loops import small_loop, tasks_of

from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.sections.master_loop import PlateauHookConfig
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.events.cadence import Cadence
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.files.iteration_start import read_start
from stoix_like.selfplay.files.tuned_leaves import RESULT, TuningResult, read_result, write_result
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.loops import plateau
from stoix_like.selfplay.loops.plateau import due_iteration, run_plateau_hook
from stoix_like.selfplay.tuning import registry

WATCH = WatchRule(plateau_iterations=2, plateau_elo=1e6)  # always a plateau
OPTIONS = PlateauHookConfig(plateau_hook=True, plateau_function="test")
ENABLED = {"plateau_hook": True, "plateau_function": "test", "idle_batches": 0}


@pytest.fixture
def loop(copied_loop):
    """A loop of two finished iterations on a plateau."""
    pipeline, folder = copied_loop
    config = replace_leaves(pipeline.config, {"save_dir": str(folder)})  # of the one that is compiled anew
    with small_loop(pipeline, folder, config, watch=WATCH) as loop:
        yield loop


@pytest.fixture
def register(monkeypatch):
    """Registers a function as `test`, for a test."""
    monkeypatch.setattr(registry, "_hooks", {**registry._hooks})
    return lambda function: registry.register_plateau_hook("test", function)


def fail(error, *_):
    raise error


def due(loop, rule=WATCH):
    return due_iteration(loop.layout, rule)


def hook_runs(master):
    """What came of the functions that a master loop starts now."""
    return [outcome.kind for outcome in tasks_of(master, "plateau_hook")]


def finish(loop, number, *, leaves=None):
    """Writes the result of a search after an iteration."""
    loop.layout.plateau(number).mkdir(parents=True, exist_ok=True)
    write_result(loop.layout, number, TuningResult(leaves or {}, {}, None, 0.0))


def test_it_is_due_between_iterations_on_a_plateau_until_there_is_a_result(loop):
    assert due(loop) == 2
    assert due(loop, WATCH._replace(plateau_elo=0.0)) is None  # champions gain enough
    assert due(loop, WATCH._replace(plateau_iterations=3)) is None  # too few iterations to say
    loop.layout.plateau(2).mkdir(parents=True)  # begun, and killed
    assert due(loop) == 2
    (loop.layout.plateau(2) / RESULT).write_text("{")
    with pytest.raises(CheckpointError):
        due(loop)
    finish(loop, 2)
    assert due(loop) is None
    (loop.layout.plateau(2) / RESULT).unlink()
    begin.begin_iteration(loop.runner.pipeline)
    assert due(loop) is None


@pytest.mark.parametrize(
    ("results", "next_one"),
    [
        ([(2, {"tau": 0.1})], 4),
        ([(2, {})], 2 + 4),
        ([(2, {}), (6, {})], 6 + 8),
        ([(2, {}), (6, {"tau": 0.1})], 6 + 2),
        ([(2, {"tau": 0.1}), (4, {})], 4 + 4),
    ],
)
def test_the_next_one_is_due_after_twice_as_many_iterations_if_nothing_was_found(loop, monkeypatch, results, next_one):
    for number, leaves in results:
        finish(loop, number, leaves=leaves)
    last = [0]
    monkeypatch.setattr(plateau.begin, "next_iteration", lambda layout: last[0] + 1)
    found = []
    for last[0] in range(results[-1][0], next_one + 1):
        found.append(due(loop))
    assert found == [None] * (len(found) - 1) + [next_one]


def test_the_master_loop_starts_it_between_iterations_and_the_next_one_has_its_leaves(loop, register):
    calls, rate = [], loop.runner.config.optimization.actor_lr

    def halve(context):
        calls.append((context.iteration, context.folder, context.pipeline.config.optimization.actor_lr))
        return {"actor_lr": rate / 2.0}

    register(halve)
    first = weakref.ref(loop.runner.pipeline)
    loop.master(**ENABLED, max_iterations=2).run()
    # a result with leaves: the next one is due two iterations later, which the loop ends with
    assert calls == [(2, loop.layout.plateau(2), rate)]
    assert read_result(loop.layout, 2)[:3] == ({"actor_lr": rate / 2.0}, {"actor_lr": rate}, None)
    assert [read_start(loop.layout, number).settings["actor_lr"] for number in (2, 3, 4)] == [rate, rate / 2, rate / 2]
    assert read_manifest(loop.layout.stage(3, "train")).settings["actor_lr"] == rate / 2.0
    assert loop.runner.configured.optimization.actor_lr == rate
    assert loop.runner.pipeline is not first()
    assert any("the next iterations have actor_lr" in line for line in loop.said)


def test_a_pipeline_that_is_replaced_is_freed(loop):
    pipeline = type(loop.runner.pipeline)(loop.runner.config, loop.services.reporter)
    pipeline.games.begin(4)
    pipeline.matches.against("random")
    seen = weakref.ref(pipeline)
    del pipeline
    gc.collect()
    assert seen() is None


@pytest.mark.full
def test_the_other_loop_takes_up_an_iteration_with_leaves_that_were_tuned_meanwhile(loop, register):
    """A continuous loop that has deferred has read its configuration before."""
    rate = loop.runner.config.optimization.actor_lr
    loop.layout.plateau(2).mkdir(parents=True)
    write_result(loop.layout, 2, TuningResult({"actor_lr": rate / 2}, {"actor_lr": rate}, None, 0.0))
    tuned = replace_leaves(loop.runner.configured, {"actor_lr": rate / 2})
    begin.begin_iteration(type(loop.runner.pipeline)(tuned, loop.services.reporter))
    loop.config = dataclasses.replace(loop.config, max_iterations=1)
    loop.continuous([loop.runner]).run()
    assert loop.layout.last_iteration() == 3
    assert read_manifest(loop.layout.stage(3, "train")).settings["actor_lr"] == rate / 2.0


def test_nothing_is_started_unless_it_is_enabled(loop, register):
    calls = []
    register(lambda context: calls.append(context) or {})
    assert hook_runs(loop.master(plateau_function="test")) == []
    assert hook_runs(loop.master(plateau_function="test", plateau_hook=True)) == ["ran"]
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("fails", "text"),
    [
        (lambda context: 1 / 0, "division by zero"),
        (lambda context: {"hidden_dim": 99}, "hidden_dim"),
        (lambda context: 5, "it returned 5"),
        (lambda context: {"actor_lr": "fast"}, "actor_lr"),
    ],
)
def test_a_failure_is_told_and_kept_and_the_game_goes_on_as_it_was(loop, register, fails, text):
    register(fails)
    assert hook_runs(loop.master(plateau_function="test", plateau_hook=True)) == ["ran"]
    found = read_result(loop.layout, 2)
    assert found.leaves == {}
    assert text in found.error
    assert due(loop) is None
    assert any(text in line for line in loop.said)
    assert [event.error for _, event in loop.log.read() if event.kind == "STAGE_FAILED"] == [found.error]


def test_a_function_may_return_nothing(loop, register):
    register(lambda context: None)
    assert run_plateau_hook(loop.runner, OPTIONS, 2)[:3] == ({}, {}, None)


def test_a_stop_leaves_it_due_and_a_time_out_does_not(loop, register):
    def interrupted(context):
        raise Interrupted("plateau")

    register(interrupted)
    loop.stop.is_set = True
    with pytest.raises(Interrupted):
        run_plateau_hook(loop.runner, OPTIONS, 2)
    assert due(loop) == 2
    loop.stop.is_set, loop.stop.timed_out = False, True
    assert run_plateau_hook(loop.runner, OPTIONS, 2).error == "it did not end in time"
    assert due(loop) is None


def test_a_function_that_ends_the_process_is_started_three_times(loop, register):
    class Killed(BaseException):
        pass

    calls = []

    def kills(context):
        calls.append(context)
        raise Killed

    register(kills)
    for _ in range(3):
        with pytest.raises(Killed):
            run_plateau_hook(loop.runner, OPTIONS, 2)
        assert due(loop) == 2
    assert "it has ended the process 3 times" in run_plateau_hook(loop.runner, OPTIONS, 2).error
    assert len(calls) == 3
    assert due(loop) is None


def test_a_result_that_cannot_be_kept_is_tried_again_later_and_the_game_goes_on(loop, register, monkeypatch):
    calls = []
    register(lambda context: calls.append(loop.fake.at) or {})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plateau, "write_result", full)
    loop.fake._then = lambda clock: setattr(loop.stop, "is_set", clock.at > 1_000_700.0)
    loop.wiring.triggers = loop.wiring.triggers._replace(export=False)  # so that it waits in iteration 3
    master = loop.master(**ENABLED, max_iterations=0)
    assert hook_runs(master) == ["failed"]
    assert hook_runs(master) == []
    loop.fake.at += 300.0
    assert hook_runs(master) == ["failed"]
    assert len(calls) == 2
    master.run()
    assert len(calls) == 2
    assert read_manifest(loop.layout.stage(3, "selfplay")) is not None


def test_a_busy_database_does_not_keep_the_one_trial_of_a_breaker(loop, register, monkeypatch):
    register(lambda context: {})
    master = loop.master(**ENABLED, max_iterations=0)
    monkeypatch.setattr(plateau, "due_iteration", functools.partial(fail, CheckpointError("a folder is gone", "wait")))
    for _ in range(3):
        assert hook_runs(master) == ["failed"]
        loop.fake.at += 300.0
    # three failures have opened the breaker, and its pause is over: it lets one trial through
    with monkeypatch.context() as patch:
        patch.setattr(Cadence, "done", functools.partial(fail, RunError("the database is locked", "wait")))
        with pytest.raises(RunError):
            hook_runs(master)
    loop.fake.at += 8000.0
    assert hook_runs(master) == ["failed"]


def test_leaves_that_were_tuned_before_stay_beside_new_ones(loop, register):
    register(lambda context: {"tau": 0.5})
    rate, tau = loop.runner.config.optimization.actor_lr, loop.runner.config.optimization.tau
    loop.layout.plateau(1).mkdir(parents=True)
    before = {"actor_lr": rate / 2, "tau": 0.25}
    write_result(loop.layout, 1, TuningResult(before, {"actor_lr": rate, "tau": tau}, None, 0.0))
    found = run_plateau_hook(loop.runner, OPTIONS, 2)
    assert found.leaves == {"actor_lr": rate / 2, "tau": 0.5}
    assert found.configured == {"actor_lr": rate, "tau": tau}


def test_a_name_is_registered_once_and_an_unknown_one_is_one_line(register):
    register(lambda context: {})
    for taken in ("test", "cma_es"):
        with pytest.raises(ConfigError, match="taken"):
            registry.register_plateau_hook(taken, lambda context: {})
    registry.check_plateau_hook(OPTIONS)
    registry.check_plateau_hook(PlateauHookConfig(plateau_function="cma-es"))  # not enabled
    with pytest.raises(ConfigError, match="did you mean 'cma_es'"):
        registry.check_plateau_hook(PlateauHookConfig(plateau_hook=True, plateau_function="cma-es"))


def test_the_present_state_and_what_is_waited_for_are_told(loop, register, monkeypatch):
    register(lambda context: json.dumps(1) and {})
    master = loop.master(**ENABLED)
    monkeypatch.setattr(type(loop.runner), "_free_disk", lambda runner: 0.5)
    assert hook_runs(master) == []  # no disk
    assert due(loop) == 2
    loop.stop_after(5.0)
    master.run()
    assert master.stats.waiting == {"tic_tac_toe_2p": "selfplay: 0.5 GB of disk are free"}
