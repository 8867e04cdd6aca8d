"""What is started when champions no longer gain: when it is due, what becomes of its result, and the shipped sweep."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.loops import small_loop

from stoix_like.algorithms.alphazero import window_learner
from stoix_like.config.checks import replace_leaves
from stoix_like.config.unified_loop import PlateauHookConfig
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.runs.saved import load_run
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.selfplay import export, iteration, train
from stoix_like.selfplay.found_leaves import RESULT, FoundLeaves, read_result, write_result
from stoix_like.selfplay.iteration_start import read_start
from stoix_like.selfplay.orchestration import plateau, rate_sweep
from stoix_like.selfplay.orchestration.events import PlateauDetected
from stoix_like.selfplay.orchestration.history import WatchRule
from stoix_like.selfplay.orchestration.plateau import PlateauContext, answer, due_iteration
from stoix_like.selfplay.progress import Interrupted

GAME = "tic_tac_toe_2p"
WATCH = WatchRule(plateau_iterations=2, plateau_elo=1e6)  # always a plateau
OPTIONS = PlateauHookConfig(enabled=True, function="test", num_trials=2, trial_epochs=1.0)


def told(number):
    return PlateauDetected(game=GAME, iteration=number, run="r", time=0.0, gain=0.0, iterations=2)


@pytest.fixture
def loop(copied):
    """A loop of two finished iterations, of which a plateau was told."""
    pipeline, folder = copied
    config = replace_leaves(pipeline.config, {"save_dir": str(folder)})  # of the one that is compiled anew
    with small_loop(pipeline, folder, config, watch=WATCH) as loop:
        loop.log.append([told(2)])
        yield loop


@pytest.fixture
def register(monkeypatch):
    """Registers a function as `test`, for a test."""
    monkeypatch.setattr(plateau, "_functions", {})
    return lambda function: plateau.register_plateau_hook("test", function)


def due(loop, rule=WATCH):
    return due_iteration(loop.log, loop.layout, rule)


def answered(loop, number):
    loop.layout.plateau(number).mkdir(parents=True, exist_ok=True)
    write_result(loop.layout, number, FoundLeaves({}, {}, None, 0.0))


def test_it_is_due_between_iterations_from_the_event_to_a_result(copied):
    pipeline, folder = copied
    with small_loop(pipeline, folder) as loop:
        assert due(loop) is None  # nothing was told
        loop.log.append([told(1)])
        assert due(loop) == 2
        answered(loop, 1)
        assert due(loop) is None
        loop.log.append([told(2)])
        assert due(loop) == 2
        assert due(loop, WATCH._replace(plateau_elo=0.0)) is None  # it has ended
        assert due(loop, WATCH._replace(plateau_iterations=3)) is None
        (loop.layout.plateau(2)).mkdir()  # begun, and killed
        assert due(loop) == 2
        (loop.layout.plateau(2) / RESULT).write_text("{")
        with pytest.raises(CheckpointError):
            due(loop)
        answered(loop, 2)
        assert due(loop) is None


def test_it_waits_while_an_iteration_is_being_made(loop):
    assert due(loop) == 2
    iteration.begin_iteration(loop.runner.pipeline)
    assert due(loop) is None


def test_the_master_loop_starts_it_once_and_the_next_iteration_has_its_leaves(loop, register):
    calls, rate = [], loop.runner.config.optimization.actor_lr

    def halve(context):
        calls.append(context)
        loop.stop.is_set = len(calls) == 1
        return {"actor_lr": rate / 2.0}

    register(halve)
    first, options = loop.runner.pipeline, {"enabled": True, "function": "test", "idle_batches": 0}
    loop.master(**options).run()
    assert [(one.pipeline, one.iteration, one.folder) for one in calls] == [(first, 2, loop.layout.plateau(2))]
    assert read_result(loop.layout, 2)[:3] == ({"actor_lr": rate / 2.0}, {"actor_lr": rate}, None)
    assert loop.runner.config.optimization.actor_lr == rate / 2.0
    assert loop.runner.pipeline is not first  # its programs are compiled anew
    assert loop.runner.configured.optimization.actor_lr == rate
    iteration.begin_iteration(loop.runner.pipeline)
    assert read_start(loop.layout, 3).settings["actor_lr"] == rate / 2.0
    assert any("the next iterations have actor_lr" in line for line in loop.said)


def test_nothing_is_started_unless_it_is_enabled(loop, register):
    calls = []
    register(lambda context: calls.append(context) or {})
    assert not loop.master(function="test")._answer_plateau()
    assert loop.master(function="test", enabled=True)._answer_plateau()
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("fails", "text"),
    [
        (lambda context: 1 / 0, "division by zero"),
        (lambda context: {"hidden_dim": 99}, "hidden_dim"),
        (lambda context: {"actor_lr": "fast"}, "actor_lr"),
    ],
)
def test_a_failure_is_said_and_kept_and_the_game_goes_on_as_it_was(loop, register, fails, text):
    register(fails)
    before = loop.runner.pipeline
    assert loop.master(function="test", enabled=True)._answer_plateau()
    found = read_result(loop.layout, 2)
    assert found.leaves == {}
    assert text in found.error
    assert due(loop) is None
    assert loop.runner.pipeline is before
    assert any(text in line for line in loop.said)


def test_a_stop_leaves_it_due_and_a_time_out_does_not(loop, register):
    def interrupted(context):
        raise Interrupted("plateau")

    register(interrupted)
    loop.stop.is_set = True
    with pytest.raises(Interrupted):
        answer(loop.runner, OPTIONS, 2)
    assert due(loop) == 2
    loop.stop.timed_out = True
    assert answer(loop.runner, OPTIONS, 2).error == "it did not end in time"
    assert due(loop) is None


def test_a_name_is_registered_once_and_an_unknown_one_is_one_line(register):
    register(lambda context: {})
    for taken in ("test", "cma_es"):
        with pytest.raises(ConfigError, match="taken"):
            plateau.register_plateau_hook(taken, lambda context: {})
    plateau.check_plateau_hook(OPTIONS)
    plateau.check_plateau_hook(PlateauHookConfig(function="cma-es"))  # not enabled
    with pytest.raises(ConfigError, match="did you mean 'cma_es'"):
        plateau.check_plateau_hook(PlateauHookConfig(enabled=True, function="cma-es"))


def test_a_gain_counts_games_as_independent_and_positions_of_one_game_as_not():
    before, after = np.array([3.0, 3.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0, 1.0])
    # differences 2, 2, 0, 0 with mean 1: by game 2 and -2 in all, so sqrt(2^2 + 2^2) / 4
    assert rate_sweep.paired_gain(before, after, np.array([0, 0, 1, 1])) == (1.0, pytest.approx(8.0**0.5 / 4.0))
    # each its own game: sqrt(4 * 1) / 4
    assert rate_sweep.paired_gain(before, after, np.arange(4)) == (1.0, pytest.approx(0.5))


def loss_by_hand(pipeline, rate, decay, num_updates):
    """The loss on held out games after the same updates, made here one by one from what is on disk."""
    stored = load_run(str(pipeline.layout.train_run), "latest").state
    start = jax.jit(pipeline.learner.init)(pipeline.root)
    state = start._replace(**{name: getattr(stored, name) for name in ("params", "optimizer", "step")})
    folder = pipeline.layout.stage(2, "export")
    state = window_learner.window_of(state, export.samples_of(pipeline, read_arrays(folder / "window.npz")))
    section = pipeline.config.optimization
    rates = {"actor_lr": rate, "critic_lr": rate * section.critic_lr / section.actor_lr, "weight_decay": decay}
    state = state._replace(hyper=state.hyper._replace(**{name: jnp.float32(value) for name, value in rates.items()}))
    for _ in range(num_updates):
        state, _ = jax.jit(pipeline.learner.update)(state)
    found = train.validation_losses(pipeline, state.params.average, read_arrays(folder / "validation.npz"))
    return found["validation_policy_loss"] + pipeline.config.optimization.vf_coef * found["validation_value_loss"]


def test_a_trial_is_training_from_the_last_state_judged_on_games_that_are_held_out(loop):
    pipeline, folder = loop.runner.pipeline, loop.layout.plateau(2)
    folder.mkdir(parents=True)
    found = rate_sweep.sweep_rates(PlateauContext(pipeline, 2, folder, OPTIONS))
    trials = json.loads((folder / "trials.json").read_text())
    rate = pipeline.config.optimization.actor_lr
    assert trials[0]["parameters"] == {"actor_lr": pytest.approx(rate), "weight_decay": 1e-6}
    samples = pipeline.settings.most_gradient_steps * pipeline.settings.batch_size
    window = read_arrays(pipeline.layout.stage(2, "export") / "window.npz")
    num_updates = -(-len(window["is_full"]) // samples)
    for trial in trials:
        given = trial["parameters"]
        expected = loss_by_hand(pipeline, given["actor_lr"], given["weight_decay"], num_updates)
        assert trial["loss"] == pytest.approx(expected, rel=1e-5)
    if found:  # the critic's rate keeps its share
        assert found["actor_lr"] == trials[1]["parameters"]["actor_lr"]
        assert found["critic_lr"] == pytest.approx(found["actor_lr"] * 0.001 / 0.0003)


def test_an_interrupted_sweep_makes_no_trial_twice_and_asks_for_the_same(loop, monkeypatch):
    pipeline, folder = loop.runner.pipeline, loop.layout.plateau(2)
    folder.mkdir(parents=True)
    context = PlateauContext(pipeline, 2, folder, PlateauHookConfig(num_trials=4, trial_epochs=1.0))
    rate_sweep.sweep_rates(context)
    whole = (folder / "trials.json").read_text()
    shutil.rmtree(folder)
    folder.mkdir()
    trained, made = rate_sweep._TrialRuns._trained_losses, []

    def counted(runs, number, parameters):
        loop.stop.is_set = number == 2 and number not in made
        made.append(number)
        return trained(runs, number, parameters)

    monkeypatch.setattr(rate_sweep._TrialRuns, "_trained_losses", counted)
    with pytest.raises(Interrupted):
        rate_sweep.sweep_rates(context)
    assert len(json.loads((folder / "trials.json").read_text())) == 2
    assert made == [0, 1, 2]
    loop.stop.is_set = False
    rate_sweep.sweep_rates(context)
    assert (folder / "trials.json").read_text() == whole
    assert made[3:5] == [2, 3]  # and at most those again that are compared
    assert set(made[5:]) <= {0, 1}


def test_a_pipeline_that_validates_on_nothing_is_one_line(loop):
    pipeline, folder = loop.runner.pipeline, loop.layout.plateau(2)
    path = pipeline.layout.stage(2, "export") / "validation.npz"
    empty = {name: values[:0] if values.ndim else values for name, values in read_arrays(path).items()}
    path.unlink()
    np.savez(path, **empty)
    with pytest.raises(RunError, match="validated on"):
        rate_sweep.sweep_rates(PlateauContext(pipeline, 2, folder, OPTIONS))
