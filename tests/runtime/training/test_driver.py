"""Between chunks: when something is due, what is stored as best, what a stop loses (nothing), and bad numbers."""

import functools
import json
import os
import re
import shutil
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full
from support.paths import load_script

from stoix_like.commands.entry import exit_code
from stoix_like.evaluation import episodes
from stoix_like.runtime.evaluators.episode_player import EpisodePlayer
from stoix_like.runtime.evaluators.scores import Evaluator
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.telemetry import read_rows
from stoix_like.runtime.training import chunk
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.driver import Driver, next_stop

PREFIXES = ("evaluator", "evaluator_sampled")
SMALL = {
    "task_id": "probe/action_observation_reward",
    "num_envs": 8,
    "rollout_length": 4,
    "num_minibatches": 2,
    "epochs": 1,
    "hidden_dim": 8,
    "num_eval_envs": 8,
    "num_eval_episodes": 8,
    "num_updates": 8,
    "eval_interval": 2,
    "save_interval": 1,
    "log_interval": 1,
    "keep_last_n": 100,
}


@functools.cache
def _script():
    return load_script("train_ppo")


def _flags(**leaves):
    return [word for name, value in leaves.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def _train(*argv):
    return exit_code(_script().main, argv)


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of eight updates with a checkpoint of each. Copy it before touching it."""
    folder = tmp_path_factory.mktemp("finished")
    assert _train(*_flags(**SMALL, save_dir=folder, run_name="a")) == 0
    return folder / "a"


@pytest.mark.full
def test_sampled_actions_are_scored_beside_the_deterministic_ones_if_asked_for():
    """As an evaluator of its own would score the same parameters; `best` goes by the deterministic score."""
    leaves = SMALL | {"num_updates": 2, "num_eval_envs": 64, "num_eval_episodes": 64}
    assert _train("--evaluate-sampled", *_flags(**leaves, run_name="both")) == 0
    rows = _rows(Path("runs/both"), "EVALUATOR")
    deterministic, sampled = ([row for row in rows if f"{name}/mean_return" in row] for name in PREFIXES)
    assert [row["update"] for row in deterministic] == [row["update"] for row in sampled] == [2]
    run = saved_run.load_run("runs/both", "latest")
    scored = Evaluator(run.env, run.learner.policy, run.config.evaluation, 1, mode="sampled")
    scores = scored(run.params, jax.random.key(0), 2)
    assert sampled[0]["evaluator_sampled/mean_return"] == pytest.approx(scores.mean_return()[0], rel=1e-6)
    assert sampled[0]["evaluator_sampled/mean_return"] < deterministic[0]["evaluator/mean_return"]
    assert saved_run.load_run("runs/both", "best").meta.host["scores"] == [deterministic[0]["evaluator/mean_return"]]


def _words(tree):
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(tree)]


def _assert_same_bits(one, other):
    for left, right in zip(_words(one), _words(other), strict=True):
        np.testing.assert_array_equal(left, right)


def _rows(run, category):
    timed = {"elapsed_seconds", "actor/steps_per_second", "evaluator/duration_ms"}
    rows = [row for row in read_rows(run / "metrics.jsonl") if row["category"] == category]
    return [{name: value for name, value in row.items() if name not in timed} for row in rows]


class _Killed(BaseException):
    """Nothing handles it: the run ends where it is."""


def _kill(*_, **__):
    raise _Killed


def _killed_after(finished, update, path="killed"):
    """A copy of the run as a kill leaves it: the last checkpoint is of `update`; rows may go further."""
    run = Path(shutil.copytree(finished, path))
    for folder in (run / "checkpoints").iterdir():
        if folder.name.isdigit() and int(folder.name) > update:
            shutil.rmtree(folder)
    return run


@pytest.mark.parametrize(
    ("update", "last", "intervals", "expected"),
    [
        (0, 100, (20, 30, 0), 20),
        (20, 100, (20, 30, 0), 30),
        (30, 100, (20, 30, 0), 40),
        (60, 100, (20, 30, 7), 63),
        (99, 100, (20, 30, 0), 100),
        (0, 100, (0, 0, 0), 100),
        (0, 5, (20, 30, 0), 5),
        (5, 7, (1, 0, 0), 6),
        (0, 3, (), 3),
    ],
)
def test_next_stop(update, last, intervals, expected):
    assert next_stop(update, last, *intervals) == expected


def test_stops_are_every_multiple_and_the_last():
    update, stops = 0, []
    while update < 50:
        update = next_stop(update, 50, 12, 0, 20)
        stops.append(update)
    assert stops == [12, 20, 24, 36, 40, 48, 50]


def test_a_run_reports_evaluates_and_saves_when_due(finished):
    assert [row["update"] for row in _rows(finished, "TRAINER")] == list(range(1, 9))
    assert [row["update"] for row in _rows(finished, "EVALUATOR")] == [2, 4, 6, 8]
    saved = [row["misc/path"] for row in _rows(finished, "MISC") if row["misc/event"] == "checkpoint_saved"]
    assert saved == [f"checkpoints/{update}" for update in range(9)]
    assert all(row["seed"] == 0 and row["timesteps"] == 32 * row["update"] for row in _rows(finished, "ACTOR"))


def test_an_evaluation_says_which_episodes_were_cut_for_never_ending(finished, monkeypatch):
    saved = saved_run.load_run(str(finished), "best")

    def results(most_steps):
        monkeypatch.setattr(episodes, "MOST_STEPS", most_steps)
        evaluator = Evaluator(saved.env, saved.learner.policy, saved.config.evaluation, 1)
        return evaluator(saved.params, jax.random.key(0), 0).results

    lengths = results(1000)["episode_length"]
    longest = int(lengths.max())
    assert "unfinished" not in results(longest)  # an episode that ends with its last step is whole
    cut = results(longest - 1)
    assert (cut["unfinished"] == (lengths == longest)).all()
    assert (cut["episode_length"] == np.minimum(lengths, longest - 1)).all()


def test_the_best_checkpoint_holds_the_parameters_that_were_scored(finished):
    """Scored again with the same key they give the same bits, and they are those of the update that scored best."""
    saved = saved_run.load_run(str(finished), "best")
    rows = {row["update"]: row["evaluator/mean_return"] for row in _rows(finished, "EVALUATOR")}
    best = max(rows.values())
    assert len(set(rows.values())) > 1
    assert (saved.meta.update, saved.meta.host["scores"]) == (min(u for u, r in rows.items() if r == best), [best])
    evaluator = Evaluator(saved.env, saved.learner.policy, saved.config.evaluation, 1)
    again = evaluator(saved.params, jax.random.key(0), saved.meta.update)
    assert again.mean_return().tolist() == [best]
    _assert_same_bits(saved.params, saved_run.load_run(str(finished), str(saved.meta.update)).params)
    assert any(
        (left != right).any()
        for left, right in zip(
            _words(saved.params), _words(saved_run.load_run(str(finished), "latest").params), strict=True
        )
    )


def test_a_run_cut_back_to_an_earlier_checkpoint_ends_the_same(finished):
    killed = _killed_after(finished, 3)
    assert _train("--resume", "killed") == 0
    assert (saved_run.load_run("killed", "latest").meta.update, saved_run.load_run("killed", "best").meta.update) == (
        8,
        saved_run.load_run(str(finished), "best").meta.update,
    )
    for checkpoint in ("latest", "best"):
        one, other = (saved_run.load_run(str(run), checkpoint) for run in (finished, killed))
        _assert_same_bits(one.params, other.params)
    _assert_same_bits(saved_run.load_run(str(finished)).state, saved_run.load_run("killed").state)
    for category in ("TRAINER", "ACTOR", "EVALUATOR"):
        assert _rows(finished, category) == _rows(killed, category)


def test_a_finished_run_continued_changes_nothing(finished, capsys):
    shutil.copytree(finished, "copy")
    before = {path: path.read_bytes() for path in Path("copy/checkpoints").rglob("*") if path.is_file()}
    assert _train("--resume", "copy") == 0
    assert {path: path.read_bytes() for path in Path("copy/checkpoints").rglob("*") if path.is_file()} == before
    for category in ("TRAINER", "ACTOR", "EVALUATOR"):
        assert _rows(finished, category) == _rows(Path("copy"), category)
    assert capsys.readouterr().out == "note: copy has finished its 8 updates; --num-updates N continues to more\n"


def test_a_save_between_two_reports_loses_no_episodes():
    """Reports every 4 updates, checkpoints every 3: resumed from update 3, all episodes are reported once."""
    assert _train(*_flags(**SMALL | {"log_interval": 4, "save_interval": 3}, save_dir=".", run_name="whole")) == 0
    killed = _killed_after(Path("whole"), 3)
    assert _train("--resume", "killed") == 0
    episodes = {run: sum(row["actor/episodes"] for row in _rows(run, "ACTOR")) for run in (Path("whole"), killed)}
    assert episodes == {Path("whole"): 8 * 8 * 4, killed: 8 * 8 * 4}  # every step of the task ends an episode


@pytest.mark.parametrize("intervals", [full((1, 1)), (4, 1)], ids=["log 1 save 1", "log 4 save 1"])
def test_a_loss_that_is_not_finite_stops_the_run_and_names_a_good_checkpoint(intervals, capsys):
    log_interval, save_interval = intervals
    leaves = SMALL | {"log_interval": log_interval, "save_interval": save_interval, "eval_interval": 0}
    code = _train(*_flags(**leaves, save_dir=".", run_name="broken", actor_lr="1e30", critic_lr="1e30"))
    lines = capsys.readouterr().err.splitlines()
    assert code == 1
    assert len(lines) == 2
    assert lines[0].startswith("error: trainer/")
    assert lines[0].endswith("training stopped")
    assert "is not finite at update" in lines[0]
    named = lines[1].partition("the last good checkpoint is ")[2].partition(";")[0]
    assert lines[1] == f"hint: the last good checkpoint is {named}; lower the learning rates and continue with --resume"
    saved = saved_run.load_run("broken", Path(named).name)
    assert all(np.isfinite(leaf).all() for leaf in _words(saved.params))
    store = CheckpointStore(Path("broken/checkpoints"))
    assert store.updates()[-1] == int(Path(named).name)  # --resume goes on from the one that was named
    rows = [json.loads(line) for line in Path("broken/metrics.jsonl").read_text().splitlines()]
    assert f"error: {rows[-1]['misc/message']}" == lines[0]
    assert (rows[-1]["misc/event"], rows[-1]["category"]) == ("failed", "MISC")


def _out_of_memory(*_args):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte.\nmore")


@pytest.mark.parametrize("fails", ["update", "evaluation", full("best")])
def test_out_of_memory_names_the_checkpoint_to_go_on_from(fails, monkeypatch, capsys):
    """What an evaluation cannot show was learned all the same: it is saved."""
    if fails == "update":
        monkeypatch.setattr(chunk, "compile_chunk", lambda *_: _out_of_memory)
    elif fails == "evaluation":
        monkeypatch.setattr(EpisodePlayer, "_round", _out_of_memory)
    else:
        monkeypatch.setattr(BestCheckpoint, "update", _out_of_memory)
    leaves = SMALL | {"save_interval": 0 if fails == "evaluation" else 1}
    assert _train(*_flags(**leaves, save_dir=".", run_name="full")) == 1
    error, hint = capsys.readouterr().err.splitlines()
    what = {
        "update": "update 1 cannot be computed",
        "evaluation": "the evaluation cannot be played",
        "best": "the best parameters cannot be saved",
    }[fails]
    assert error == f"error: {what}: RESOURCE_EXHAUSTED: Out of memory allocating 1 byte."
    last = {"update": 0, "evaluation": 2, "best": 1}[fails]
    run = Path("full").absolute()
    assert hint.endswith(f"; --resume {run} continues from checkpoint {run}/checkpoints/{last}")
    assert CheckpointStore(run / "checkpoints").updates()[-1] == last


@pytest.mark.parametrize("last", [full(False), True], ids=["in between", "at the end"])
def test_an_evaluation_that_failed_is_made_up_for(last, finished, monkeypatch):
    """Continued, the run evaluates first where it had only been saved, and ends as one that never failed."""
    leaves = SMALL | {"eval_interval": 0} if last else SMALL
    with monkeypatch.context() as patch:
        patch.setattr(EpisodePlayer, "_round", _out_of_memory)
        assert _train(*_flags(**leaves, save_dir=".", run_name="late")) == 1
    stopped = CheckpointStore(Path("late/checkpoints")).updates()[-1]
    assert (stopped, _rows(Path("late"), "EVALUATOR")) == (8 if last else 2, [])
    assert _train("--resume", "late") == 0
    evaluated = [row["update"] for row in _rows(Path("late"), "EVALUATOR")]
    assert evaluated == ([8] if last else [2, 4, 6, 8])
    expected = _rows(finished, "EVALUATOR")[-len(evaluated) :]
    assert [row["evaluator/mean_return"] for row in _rows(Path("late"), "EVALUATOR")] == [
        row["evaluator/mean_return"] for row in expected
    ]


def test_a_run_that_shall_stop_is_saved_before_it_is_evaluated(finished, monkeypatch):
    """An evaluation may take longer than whoever stops it waits."""
    advance = Driver._advance

    def stop_at_two(self, program, length):
        advance(self, program, length)
        if self.update == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_advance", stop_at_two)
        assert _train(*_flags(**SMALL, save_dir=".", run_name="stopped")) == 130
    assert CheckpointStore(Path("stopped/checkpoints")).updates()[-1] == 2
    assert _rows(Path("stopped"), "EVALUATOR") == []
    assert _train("--resume", "stopped") == 0
    assert _rows(Path("stopped"), "EVALUATOR") == _rows(finished, "EVALUATOR")


@pytest.mark.parametrize("killed_in", [full("_advance"), "save"], ids=["after it is noted", "before it is noted"])
def test_an_evaluation_that_was_made_up_for_is_told_once(killed_in, finished, monkeypatch):
    """However soon after it the run is killed, and continued."""
    leaves = SMALL | {"save_interval": 0, "save_dir": ".", "run_name": "noted"}
    with monkeypatch.context() as patch:
        patch.setattr(EpisodePlayer, "_round", _out_of_memory)
        assert _train(*_flags(**leaves)) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Driver, killed_in, _kill)
        with pytest.raises(_Killed):
            _train("--resume", "noted")
    saved = CheckpointStore(Path("noted/checkpoints"))
    assert saved.updates()[-1] == 2
    assert saved.load_meta().host["evaluated_at"] == (2 if killed_in == "_advance" else 0)
    assert [row["update"] for row in _rows(Path("noted"), "EVALUATOR")] == [2]
    assert _train("--resume", "noted") == 0
    assert _rows(Path("noted"), "EVALUATOR") == _rows(finished, "EVALUATOR")


def test_a_second_interrupt_names_the_checkpoint_that_is_left(finished, monkeypatch, capsys):
    advance = Driver._advance

    def interrupted_advance(self, program, length):
        if self.update == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        advance(self, program, length)

    monkeypatch.setattr(Driver, "_advance", interrupted_advance)
    assert _train(*_flags(**SMALL, save_dir=".", run_name="twice")) == 130
    out, err = capsys.readouterr()
    assert out.splitlines()[-2] == "the last checkpoint is of update 3"
    assert re.fullmatch(r"next: \S+ scripts/\S+ --resume twice", out.splitlines()[-1])
    assert err.splitlines()[-1] == "interrupted"


@pytest.mark.parametrize("signal_number", [full(signal.SIGINT), signal.SIGTERM])
def test_a_run_is_stopped_in_the_middle_of_its_last_evaluation(signal_number, monkeypatch, capsys):
    """Everything learned is saved, and the continued run evaluates; a policy that searches may take minutes for it."""
    played = EpisodePlayer._round
    saved_before = []

    def interrupted_round(self, *arguments):
        saved_before.append(CheckpointStore(Path("cut/checkpoints")).updates()[-1])
        os.kill(os.getpid(), signal_number)
        return played(self, *arguments)

    leaves = SMALL | {"num_eval_episodes": 16, "eval_interval": 0, "save_interval": 0, "save_dir": "."}
    with monkeypatch.context() as patch:
        patch.setattr(EpisodePlayer, "_round", interrupted_round)
        assert _train(*_flags(**leaves, run_name="cut")) == 130
    assert saved_before == [8]  # a kill would have lost nothing either
    assert CheckpointStore(Path("cut/checkpoints")).updates()[-1] == 8
    assert _rows(Path("cut"), "EVALUATOR") == []
    assert _train("--resume", "cut") == 0
    assert _train(*_flags(**leaves, run_name="whole")) == 0
    assert len(_rows(Path("cut"), "EVALUATOR")) == 1
    assert _rows(Path("cut"), "EVALUATOR") == _rows(Path("whole"), "EVALUATOR")
    capsys.readouterr()
    assert _train("--resume", "cut") == 0
    assert "has finished its 8 updates" in capsys.readouterr().out
    assert len(_rows(Path("cut"), "EVALUATOR")) == 1
    assert saved_run.load_run("cut", "latest").params is not None  # the checkpoint is whole


def test_a_run_tells_its_time_in_order(finished):
    rows = list(read_rows(finished / "metrics.jsonl"))
    times = [row["elapsed_seconds"] for row in rows]
    assert times == sorted(times)
    (compiled,) = [row for row in rows if row.get("misc/event") == "compiled"]
    assert compiled["elapsed_seconds"] >= compiled["misc/compile_seconds"] > 0


def test_a_broken_run_continues_with_lower_rates(capsys):
    leaves = SMALL | {"eval_interval": 0}
    assert _train(*_flags(**leaves, save_dir=".", run_name="broken", actor_lr="1e30", critic_lr="1e30")) == 1
    assert _train("--resume", "broken", "--actor-lr", "1e-3", "--critic-lr", "1e-3") == 0
    changed = "actor_lr = 0.001 (was 1e+30), critic_lr = 0.001 (was 1e+30)"
    assert f"note: resumed with {changed}\n" in capsys.readouterr().out
    assert [row["misc/changed"] for row in _rows(Path("broken"), "MISC") if "misc/changed" in row] == [changed]
    rows = _rows(Path("broken"), "TRAINER")
    assert [row["update"] for row in rows] == list(range(1, 9))
    assert all(row["trainer/policy_loss"] is not None for row in rows)
    assert "actor_lr: 0.001" in Path("broken/config.yaml").read_text()
