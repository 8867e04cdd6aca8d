"""The sweeps of rates and of sizes: trials against training by hand, decisions, and what a kill leaves."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.loops import small_loop
from support.pipelines import changed

from stoix_like.algorithms.alphazero import window_learner
from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.sections.master_loop import PlateauHookConfig
from stoix_like.errors import RunError
from stoix_like.runtime.runs.saved import load_run
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.loops.plateau import run_plateau_hook
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages import export, train
from stoix_like.selfplay.tuning import architecture_search, rate_sweep, window_training
from stoix_like.selfplay.tuning.context import PlateauContext

GAMES = np.array([0, 0, 1, 1])


@pytest.fixture
def loop(copied, monkeypatch):
    """A loop of two finished iterations, some of whose games are held out."""
    monkeypatch.setattr(window_training, "LEAST_GAMES", 1)
    changed(copied, validation_share=0.5)
    with small_loop(copied, copied.layout.root.parent) as loop:
        (loop.layout.stage(2, "export") / "manifest.json").unlink()
        export.export_stage(copied, files_of(loop.layout, 2))
        loop.layout.plateau(2).mkdir(parents=True)
        yield loop


def context_of(loop, **options):
    options = PlateauHookConfig(**{"plateau_trials": 2, "plateau_epochs": 1.0} | options)
    return PlateauContext(loop.runner.pipeline, loop.runner.configured, 2, loop.layout.plateau(2), options)


def trials_of(context):
    return json.loads((context.folder / "trials.json").read_text())["trials"]


def test_a_gain_counts_games_as_independent_and_positions_of_one_game_as_not():
    before, after = np.array([3.0, 3.0, 1.0, 1.0]), np.ones(4)
    # differences 2, 2, 0, 0 with mean 1: by game 2 and -2 in all; of two games sqrt((2^2 + 2^2) * 2 / 1) / 4
    assert window_training.paired_gain(before, after, GAMES) == (1.0, pytest.approx(1.0))
    # each its own game: sqrt(4 * 1 * 4 / 3) / 4
    assert window_training.paired_gain(before, after, np.arange(4)) == (1.0, pytest.approx((16.0 / 3.0) ** 0.5 / 4.0))


@pytest.mark.parametrize(
    ("gains", "better"),
    [
        ([1.0] * 4, True),  # the same in all games
        ([1.5, 0.5] * 2, True),  # by game 2 and 2: no spread
        ([1.6, 1.6, 0.4, 0.4], False),  # mean 1, by game 1.2 and -1.2: an error of 0.6
        ([1.2, 1.2, 0.8, 0.8], True),  # an error of 0.2
        ([-1.0] * 4, False),
        ([0.0] * 4, False),
        ([np.nan] * 4, False),
    ],
)
def test_better_is_what_gains_more_than_three_standard_errors(gains, better):
    before = np.full(4, 5.0)
    assert window_training.is_better(before, before - np.array(gains), GAMES) is better


def test_settings_that_diverge_lose_to_any_that_do_not():
    assert window_training.is_better(np.full(4, np.nan), np.ones(4), GAMES)
    assert not window_training.is_better(np.full(4, np.nan), np.full(4, np.nan), GAMES)


def trained_by_hand(pipeline, state, num_updates):
    """The loss on the games that are held out, of a state after so many updates on the window, made one by one."""
    folder, section = pipeline.layout.stage(2, "export"), pipeline.config.optimization
    state = window_learner.window_of(state, export.samples_of(pipeline, read_arrays(folder / "window.npz")))
    for _ in range(num_updates):
        state, _ = jax.jit(pipeline.learner.update)(state)
    found = train.validation_losses(pipeline, state.params.average, read_arrays(folder / "validation.npz"))
    return found["validation_policy_loss"] + section.vf_coef * found["validation_value_loss"]


def with_hyper(state, **values):
    return state._replace(hyper=state.hyper._replace(**{name: jnp.float32(value) for name, value in values.items()}))


def updates_of(pipeline):
    """The updates of one pass over the window."""
    window = read_arrays(pipeline.layout.stage(2, "export") / "window.npz")
    return -(-len(window["is_full"]) // (pipeline.settings.most_gradient_steps * pipeline.settings.batch_size))


def loss_by_hand(pipeline, rate, decay):
    """The loss of a trial, from what is on disk."""
    stored, section = load_run(str(pipeline.layout.train_run), "latest").state, pipeline.config.optimization
    start = jax.jit(pipeline.learner.init)(pipeline.root)
    state = start._replace(**{name: getattr(stored, name) for name in ("params", "optimizer", "step")})
    critic = rate * section.critic_lr / section.actor_lr
    state = with_hyper(state, actor_lr=rate, critic_lr=critic, weight_decay=decay)
    return trained_by_hand(pipeline, state, updates_of(pipeline))


def test_a_trial_is_training_from_the_last_state_and_an_interrupted_sweep_makes_none_twice(loop, monkeypatch):
    monkeypatch.setattr(rate_sweep, "AT_ONCE", 2)
    context, pipeline = context_of(loop, plateau_trials=3), loop.runner.pipeline
    rate_sweep.sweep_rates(context)
    trials, whole = trials_of(context), (context.folder / "trials.json").read_text()
    assert trials[0]["parameters"] == {"actor_lr": pipeline.config.optimization.actor_lr, "weight_decay": 0.0}
    assert trials[1]["parameters"]["weight_decay"] >= 1e-6
    for trial in trials[:2]:
        given = trial["parameters"]
        assert trial["loss"] == pytest.approx(
            loss_by_hand(pipeline, given["actor_lr"], given["weight_decay"]), rel=1e-5
        )
    shutil.rmtree(context.folder)
    context.folder.mkdir()
    trained, made = rate_sweep._TrialRuns._trained_losses, []

    def counted(runs, first, trials):
        loop.stop.is_set = first == 2 and 2 not in made
        made.extend(range(first, first + len(trials)))
        return trained(runs, first, trials)

    monkeypatch.setattr(rate_sweep._TrialRuns, "_trained_losses", counted)
    with pytest.raises(Interrupted):
        rate_sweep.sweep_rates(context)
    assert len(trials_of(context)) == 2
    assert made == [0, 1, 2]
    loop.stop.is_set = False
    rate_sweep.sweep_rates(context)
    assert (context.folder / "trials.json").read_text() == whole  # to the bit, the last one without another beside it
    assert made[3] == 2  # and at most those again that are compared
    assert set(made[4:]) <= {0, 1}


@pytest.fixture
def losses(monkeypatch):
    """Trials have losses that are known and train nothing: `slope` is added from one to the next. The groups made."""
    made = []

    def known(runs, first, trials):
        made.append((first, len(trials)))
        return [np.full(len(runs.games), 1.0 + known.slope * number) for number in range(first, first + len(trials))]

    known.slope, known.made = 0.1, made
    monkeypatch.setattr(rate_sweep._TrialRuns, "_trained_losses", known)
    return known


@pytest.mark.parametrize(("slope", "leaves"), [(-0.1, 3), (0.1, 0)])
def test_the_best_trial_becomes_the_settings_of_the_next_iterations(loop, losses, slope, leaves):
    """Through the whole hook."""
    losses.slope = slope
    options = PlateauHookConfig(plateau_hook=True, plateau_function="cma_es", plateau_trials=3, plateau_epochs=1.0)
    found = run_plateau_hook(loop.runner, options, 2)
    assert (found.error, len(found.leaves)) == (None, leaves)
    if leaves:
        last = trials_of(context_of(loop))[2]["parameters"]
        assert {name: found.leaves[name] for name in last} == last
        assert found.leaves["critic_lr"] == pytest.approx(last["actor_lr"] * 0.001 / 0.0003)  # its share stays
        loop.runner.read_tuned_leaves()
        assert loop.runner.config.optimization.actor_lr == last["actor_lr"]


def test_a_best_trial_that_may_be_chance_changes_nothing(loop, monkeypatch):
    def losses(runs, first, trials):
        spread = np.where(runs.games == runs.games[0], 1.0, -1.0)  # one game gains what the others lose
        gain = 0.01 + spread - spread.mean()
        return [1.0 - number * gain for number in range(first, first + len(trials))]

    monkeypatch.setattr(rate_sweep._TrialRuns, "_trained_losses", losses)
    context = context_of(loop)
    assert rate_sweep.sweep_rates(context) == {}
    assert trials_of(context)[1]["loss"] < trials_of(context)[0]["loss"]


def test_trials_of_other_lengths_are_not_compared(loop, losses):
    rate_sweep.sweep_rates(context_of(loop))
    rate_sweep.sweep_rates(context_of(loop, plateau_epochs=3.0))
    assert losses.made == [(0, 2), (0, 2)]


def test_no_other_trial_is_begun_when_the_time_is_over(loop, losses):
    context = context_of(loop, plateau_trials=20, plateau_seconds=1e-6)
    rate_sweep.sweep_rates(context)
    assert len(trials_of(context)) == rate_sweep.AT_ONCE


def test_too_few_games_that_are_held_out_are_one_line(loop, monkeypatch):
    monkeypatch.setattr(window_training, "LEAST_GAMES", 20)
    with pytest.raises(RunError, match="games that are validated on"):
        rate_sweep.sweep_rates(context_of(loop))


@pytest.mark.full
def test_a_size_learns_the_window_from_random_parameters_and_is_judged_on_games_that_are_held_out(loop):
    context = context_of(loop)
    assert architecture_search.search_architectures(context) == {}
    first, wider = json.loads((context.folder / "architectures.json").read_text())
    width, depth = context.pipeline.config.architecture.hidden_dim, context.pipeline.config.architecture.num_layers
    assert [(row["hidden_dim"], row["num_layers"]) for row in (first, wider)] == [(width, depth), (2 * width, depth)]
    assert first["gain"] == 0
    assert wider["num_parameters"] > first["num_parameters"]
    config = replace_leaves(context.pipeline.config, {"hidden_dim": 2 * width})
    pipeline, count = Pipeline(config, context.pipeline.reporter), updates_of(context.pipeline)
    state = with_hyper(jax.jit(pipeline.learner.init)(pipeline.root), num_updates=count)
    assert wider["loss"] == pytest.approx(trained_by_hand(pipeline, state, count), rel=1e-5)


def test_the_sizes_that_are_tried(loop):
    sizes = architecture_search.sizes_of(context_of(loop, plateau_trials=9))
    assert [tuple(size) for size in sizes] == [(8, 1), (16, 1), (4, 1), (8, 2), (16, 2)]
    assert architecture_search.sizes_of(context_of(loop, plateau_trials=3)) == sizes[:3]


@pytest.mark.parametrize("gain", [0.5, -0.5, float("nan")])
def test_a_better_size_is_proposed_with_the_command_that_begins_with_it(loop, monkeypatch, gain):
    def trial(context, window, size, progress):
        is_first = size.hidden_dim == context.pipeline.config.architecture.hidden_dim
        return architecture_search._Trial(size, 1, np.full(len(window.games), 2.0 if is_first else 2.0 - gain), 1.0)

    notes = []
    pipeline = loop.runner.pipeline
    monkeypatch.setattr(architecture_search, "_trial", trial)
    monkeypatch.setattr(pipeline, "reporter", pipeline.reporter._replace(note=notes.append))
    options = PlateauHookConfig(
        plateau_hook=True, plateau_function="architectures", plateau_trials=2, plateau_epochs=1.0
    )
    found = run_plateau_hook(loop.runner, options, 2)
    assert (found.error, found.leaves) == (None, {})
    *proposals, last = notes
    assert last.endswith("architectures: the settings stay as they are")
    width = 2 * pipeline.config.architecture.hidden_dim
    assert len(proposals) == (gain == 0.5)
    for proposal in proposals:
        assert "loss 1.5000 instead of 2.0000" in proposal
        assert f"--board-type tic_tac_toe --save-dir {loop.layout.root.parent}-{width}" in proposal
        assert f"--hidden-dim {width}" in proposal
