"""Between chunks: when something is due, what is stored as best, what a stop loses (nothing), and bad numbers."""

import functools
import json
import os
import re
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest
from support.asserts import assert_same_bits, key_data
from support.marks import full
from support.paths import contents
from support.scripted_runs import SMALL_PPO_RUN as SMALL
from support.scripted_runs import assert_same_run, command, cut_back, flags, rows_of

from stoix_like.config.sections.runs import PPOConfig
from stoix_like.errors import RunError
from stoix_like.evaluation import episodes
from stoix_like.runtime.evaluators.episode_player import EpisodePlayer
from stoix_like.runtime.evaluators.scores import Evaluator, make_levels
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.telemetry import read_rows
from stoix_like.runtime.training import chunk
from stoix_like.runtime.training import train as training
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.callbacks import Callback, StopTraining
from stoix_like.runtime.training.driver import Driver

KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("inside")
train = functools.partial(command, "train-ppo")


def _evaluator(saved, **options):
    """As its training made it."""
    settings = saved.config.evaluation
    levels = make_levels(saved.env, settings.level_set, settings.num_eval_episodes)
    return Evaluator(saved.env, saved.learner.policy, levels, settings.num_eval_envs, **options)


@pytest.mark.full
def test_sampled_actions_are_scored_beside_the_deterministic_ones_if_asked_for():
    """As an evaluator of its own would score the same parameters; `best` goes by the deterministic score."""
    leaves = SMALL | {"num_updates": 2, "num_eval_envs": 64, "num_eval_episodes": 64}
    assert train("--evaluate-sampled", **leaves, run_name="both") == 0
    rows = rows_of("both", "EVALUATOR")
    prefixes = ("evaluator", "evaluator_sampled")
    deterministic, sampled = ([row for row in rows if f"{name}/mean_return" in row] for name in prefixes)
    assert [row["update"] for row in deterministic] == [row["update"] for row in sampled] == [2]
    run = saved_run.load_run("both", "latest")
    scored = _evaluator(run, mode="sampled")
    scores = scored(run.params, KEY, 2)
    assert sampled[0]["evaluator_sampled/mean_return"] == pytest.approx(scores.mean_return()[0], rel=1e-6)
    assert sampled[0]["evaluator_sampled/mean_return"] < deterministic[0]["evaluator/mean_return"]
    assert saved_run.load_run("both", "best").meta.host["scores"] == [deterministic[0]["evaluator/mean_return"]]


class _Killed(BaseException):
    """Nothing handles it: the run ends where it is."""


def _kill(*_, **__):
    raise _Killed


def test_a_run_reports_evaluates_and_saves_when_due_and_tells_its_time_in_order(ppo_run):
    assert [row["update"] for row in rows_of(ppo_run, "TRAINER")] == list(range(1, 9))
    assert [row["update"] for row in rows_of(ppo_run, "EVALUATOR")] == [2, 4, 6, 8]
    saved = [row["misc/path"] for row in rows_of(ppo_run, "MISC") if row["misc/event"] == "checkpoint_saved"]
    assert saved == [f"checkpoints/{update}" for update in range(9)]
    assert all(row["seed"] == 0 and row["timesteps"] == 32 * row["update"] for row in rows_of(ppo_run, "ACTOR"))
    rows = read_rows(ppo_run / "metrics.jsonl")
    times = [row["elapsed_seconds"] for row in rows]
    assert times == sorted(times)
    (compiled,) = [row for row in rows if row.get("misc/event") == "compiled"]
    assert compiled["elapsed_seconds"] >= compiled["misc/compile_seconds"] > 0


def test_an_evaluation_says_which_episodes_were_cut_for_never_ending(ppo_run, monkeypatch):
    saved = saved_run.load_run(str(ppo_run), "best")

    def results(most_steps):
        monkeypatch.setattr(episodes, "MOST_STEPS", most_steps)
        return _evaluator(saved)(saved.params, KEY, 0).results

    lengths = results(1000)["episode_length"]
    longest = int(lengths.max())
    assert "unfinished" not in results(longest)  # an episode that ends with its last step is whole
    cut = results(longest - 1)
    assert (cut["unfinished"] == (lengths == longest)).all()
    assert (cut["episode_length"] == np.minimum(lengths, longest - 1)).all()


def test_the_best_checkpoint_holds_the_parameters_that_were_scored(ppo_run):
    """Scored again with the same key they give the same bits, and they are those of the update that scored best."""
    saved = saved_run.load_run(str(ppo_run), "best")
    rows = {row["update"]: row["evaluator/mean_return"] for row in rows_of(ppo_run, "EVALUATOR")}
    best = max(rows.values())
    assert len(set(rows.values())) > 1
    assert (saved.meta.update, saved.meta.host["scores"]) == (min(u for u, r in rows.items() if r == best), [best])
    again = _evaluator(saved)(saved.params, KEY, saved.meta.update)
    assert again.mean_return().tolist() == [best]
    assert_same_bits(saved.params, saved_run.load_run(str(ppo_run), str(saved.meta.update)).params)
    leaves = (jax.tree.leaves(saved_run.load_run(str(ppo_run), one).params) for one in ("best", "latest"))
    assert any((left != right).any() for left, right in zip(*leaves, strict=True))


def test_a_run_cut_back_to_an_earlier_checkpoint_ends_the_same_and_a_finished_one_changes_nothing(ppo_run, capsys):
    killed = cut_back(shutil.copytree(ppo_run, "killed"), 3)
    assert train("--resume", "killed", "--no-use-ocdbt") == 0  # the format of checkpoints may change
    assert_same_run(ppo_run, killed)
    for folder in (killed / "checkpoints", killed / "checkpoints" / "best"):
        newest = max(CheckpointStore(folder).updates())
        assert newest > 3
        assert list((folder / str(newest)).glob("state/*/.zarray"))
    capsys.readouterr()
    shutil.copytree(ppo_run, "copy")
    assert train("--resume", "copy") == 0
    assert contents(Path("copy/checkpoints")) == contents(ppo_run / "checkpoints")
    assert_same_run(ppo_run, "copy")
    assert capsys.readouterr().out == "note: copy has finished its 8 updates; --num-updates N continues to more\n"


class Halve(Callback):
    """Halves the entropy coefficient every four updates."""

    def next_update(self, clock):
        return clock.next_due(4, after=self.ran_at)

    def run(self, state, clock):
        return state._replace(hyper=state.hyper._replace(ent_coef=state.hyper.ent_coef / 2))


class StopAt(Callback):
    """Ends the run at an update."""

    def __init__(self, update):
        self.update = update

    def next_update(self, clock):
        return clock.next_due(self.update, after=self.ran_at)

    def run(self, state, clock):
        raise StopTraining("far enough")


def halved(*argv, callbacks=(), **leaves):
    """(status, entropy coefficient in the last checkpoint) of a run with `Halve` last."""
    loaded = load_config(PPOConfig, "ppo", [*argv, *flags(**leaves)], default_config="ppo/quick")
    result = training.train("ppo", loaded, [*callbacks, Halve()])
    assert CheckpointStore(result.path / "checkpoints").updates()[-1] == result.last_update
    return result.status, float(saved_run.load_run(str(result.path)).state.hyper.ent_coef)


@pytest.mark.full
def test_what_a_callback_changes_is_in_the_checkpoint_however_the_run_ends(monkeypatch, capsys):
    """Also at the last update, whose state is saved before its evaluation too, and if the evaluation fails or stops."""
    leaves = SMALL | {"ent_coef": 0.04}
    assert halved(**leaves, run_name="ended", callbacks=[StopAt(4)]) == ("far enough", pytest.approx(0.02))
    assert "far enough after update 4, saved: 128 steps" in capsys.readouterr().out
    assert halved("--resume", "ended") == ("done", pytest.approx(0.01))
    with monkeypatch.context() as patch:
        patch.setattr(EpisodePlayer, "_round", _out_of_memory)
        with pytest.raises(RunError, match="the evaluation cannot be played"):
            halved(**leaves | {"eval_interval": 4}, run_name="failed")
    state = saved_run.load_run("failed", "latest").state
    assert (int(state.step), float(state.hyper.ent_coef)) == (4, pytest.approx(0.02))
    # other leaves that change on the way leave it as it is
    assert halved("--resume", "failed", "--actor-lr", "0.5") == ("done", pytest.approx(0.01))


@pytest.mark.full
def test_a_finished_run_may_change_a_leaf_without_training(capsys):
    """With a report after every chunk, of which there is none."""
    leaves = {name: value for name, value in SMALL.items() if name != "log_interval"} | {"num_updates": 2}
    assert train(**leaves, run_name="changed") == 0
    before = rows_of("changed", "TRAINER", "ACTOR", "EVALUATOR")
    assert train("--resume", "changed", "--actor-lr", "0.5") == 0
    assert "note: resumed with actor_lr = 0.5 (was 0.001)" in capsys.readouterr().out
    assert rows_of("changed", "TRAINER", "ACTOR", "EVALUATOR") == before
    assert "actor_lr: 0.5" in Path("changed/config.yaml").read_text()


@pytest.mark.full
def test_a_save_between_two_reports_loses_no_episodes():
    """Reports every 4 updates, checkpoints every 3: resumed from update 3, all episodes are reported once."""
    assert train(**SMALL | {"log_interval": 4, "save_interval": 3}, run_name="killed") == 0
    played = [sum(row["actor/episodes"] for row in rows_of("killed", "ACTOR"))]
    assert train("--resume", cut_back("killed", 3)) == 0
    played.append(sum(row["actor/episodes"] for row in rows_of("killed", "ACTOR")))
    assert played == [8 * 8 * 4] * 2  # every step of the task ends an episode


def test_a_loss_that_is_not_finite_stops_the_run_and_names_a_checkpoint_to_continue_from_with_lower_rates(capsys):
    leaves = SMALL | {"log_interval": 4, "save_interval": 1, "eval_interval": 0}
    code = train(**leaves, run_name="broken", actor_lr="1e30", critic_lr="1e30")
    lines = capsys.readouterr().err.splitlines()
    assert (code, len(lines)) == (1, 2)
    assert re.fullmatch(r"error: trainer/.* is not finite at update .*training stopped", lines[0])
    named = lines[1].partition("the last good checkpoint is ")[2].partition(";")[0]
    helps = "lower the learning rates, or scale the rewards, and continue with --resume"
    assert lines[1] == f"hint: the last good checkpoint is {named}; {helps}"
    saved = saved_run.load_run("broken", Path(named).name)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(key_data(saved.params)))
    store = CheckpointStore(Path("broken/checkpoints"))
    assert store.updates()[-1] == int(Path(named).name)  # --resume goes on from the one that was named
    rows = [json.loads(line) for line in Path("broken/metrics.jsonl").read_text().splitlines()]
    assert f"error: {rows[-1]['misc/message']}" == lines[0]
    assert (rows[-1]["misc/event"], rows[-1]["category"]) == ("failed", "MISC")
    assert train("--resume", "broken", "--actor-lr", "1e-3", "--critic-lr", "1e-3", "--log-interval", "1") == 0
    changed = "actor_lr = 0.001 (was 1e+30), critic_lr = 0.001 (was 1e+30)"
    assert changed in capsys.readouterr().out
    rows = rows_of("broken", "TRAINER")
    assert [row["update"] for row in rows] == list(range(1, 9))
    assert all(row["trainer/policy_loss"] is not None for row in rows)
    assert "actor_lr: 0.001" in Path("broken/config.yaml").read_text()


def _out_of_memory(*_args):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte.\nmore")


@pytest.mark.parametrize(
    ("owner", "name", "program", "what", "save_interval", "last"),
    [
        (chunk, "compile_chunk", lambda *_: _out_of_memory, "update 1 cannot be computed", 1, 0),
        full(EpisodePlayer, "_round", _out_of_memory, "the evaluation cannot be played", 0, 2),
        full(BestCheckpoint, "update", _out_of_memory, "the best parameters cannot be saved", 1, 1),
    ],
    ids=["update", "evaluation", "best"],
)
def test_out_of_memory_names_the_checkpoint_to_go_on_from(
    owner, name, program, what, save_interval, last, monkeypatch, capsys
):
    """What an evaluation cannot show was learned all the same: it is saved."""
    monkeypatch.setattr(owner, name, program)
    assert train(**SMALL | {"save_interval": save_interval}, run_name="full") == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {what}: RESOURCE_EXHAUSTED: Out of memory allocating 1 byte."
    run = Path("full").absolute()
    assert hint.endswith(f"; --resume {run} continues from checkpoint {run}/checkpoints/{last}")
    assert CheckpointStore(run / "checkpoints").updates()[-1] == last


@pytest.mark.full
def test_an_evaluation_that_was_made_up_for_is_told_once(ppo_run, monkeypatch):
    """Killed after it, before a checkpoint says that it was made: the continued run makes it again."""
    leaves = SMALL | {"save_interval": 0, "run_name": "noted"}
    with monkeypatch.context() as patch:
        patch.setattr(EpisodePlayer, "_round", _out_of_memory)
        assert train(**leaves) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_train_chunk", _kill)
        with pytest.raises(_Killed):
            train("--resume", "noted")
    saved = CheckpointStore(Path("noted/checkpoints")).load_meta()
    assert (saved.update, saved.host["evaluated_at"]) == (2, 0)
    assert [row["update"] for row in rows_of("noted", "EVALUATOR")] == [2]
    assert train("--resume", "noted") == 0
    assert rows_of("noted", "EVALUATOR") == rows_of(ppo_run, "EVALUATOR")


def test_a_checkpoint_says_what_has_been_evaluated_and_only_the_last_is_rewritten(monkeypatch):
    """Evaluations come before checkpoints of the same update, but for the last, which may take long."""
    rewritten, rewrite = [], CheckpointStore.rewrite_host
    monkeypatch.setattr(
        CheckpointStore,
        "rewrite_host",
        lambda self, *arguments: rewritten.append(arguments[0]) or rewrite(self, *arguments),
    )
    assert train(**SMALL, run_name="stated") == 0
    store = CheckpointStore(Path("stated/checkpoints"))
    evaluated = {update: store.load_meta(update).host["evaluated_at"] for update in store.updates()}
    assert evaluated == {0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 4, 6: 6, 7: 6, 8: 8}
    assert rewritten == [8]


def test_a_second_interrupt_names_the_checkpoint_that_is_left(ppo_run, monkeypatch, capsys):
    advance = Driver._train_chunk

    def interrupted_advance(self, state, length):
        if self._clock.update == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return advance(self, state, length)

    monkeypatch.setattr(Driver, "_train_chunk", interrupted_advance)
    assert train(**SMALL, run_name="twice") == 130
    out, err = capsys.readouterr()
    assert out.splitlines()[-2] == "the last checkpoint is of update 3"
    assert re.fullmatch(r"next: \S+ scripts/\S+ --resume twice", out.splitlines()[-1])
    assert err.splitlines()[-1] == "interrupted"


@pytest.mark.full
@pytest.mark.parametrize("signal_number", [full(signal.SIGINT), signal.SIGTERM])
def test_a_run_is_stopped_in_the_middle_of_its_last_evaluation(signal_number, monkeypatch, capsys):
    """Everything learned is saved, and the continued run evaluates; a policy that searches may take minutes for it."""
    played = EpisodePlayer._round
    saved_before = []

    def interrupted_round(self, *arguments):
        saved_before.append(CheckpointStore(Path("cut/checkpoints")).updates()[-1])
        os.kill(os.getpid(), signal_number)
        return played(self, *arguments)

    leaves = SMALL | {"num_eval_episodes": 16, "eval_interval": 0, "save_interval": 0}
    with monkeypatch.context() as patch:
        patch.setattr(EpisodePlayer, "_round", interrupted_round)
        assert train(**leaves, run_name="cut") == 130
    assert saved_before == [8]  # a kill would have lost nothing either
    assert CheckpointStore(Path("cut/checkpoints")).updates()[-1] == 8
    assert rows_of("cut", "EVALUATOR") == []
    assert train("--resume", "cut") == 0
    (row,) = rows_of("cut", "EVALUATOR")
    run = saved_run.load_run("cut", "latest")
    assert (row["update"], row["evaluator/mean_return"]) == (8, _evaluator(run)(run.params, KEY, 8).mean_return()[0])
    capsys.readouterr()
    assert train("--resume", "cut") == 0
    assert "has finished its 8 updates" in capsys.readouterr().out
    assert len(rows_of("cut", "EVALUATOR")) == 1
