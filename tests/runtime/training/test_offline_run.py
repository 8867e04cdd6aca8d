"""A run of a learner without a policy, whose data are an input: placed after `init` and after a resume, never saved."""

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.offline import ROW, OfflineConfig, Params, State, write_pairs

import stoix_like as sl
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.evaluators.saved_run import EvaluationSettings, evaluate_run
from stoix_like.runtime.export.policy import export_policy
from stoix_like.runtime.runs.build import ALGORITHMS
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.runs.sources import load_config

TASK = "probe/constant_reward"


@pytest.fixture
def train(tmp_path, monkeypatch):
    """(flags) -> the result of a run of the linear model in a folder of the test."""
    monkeypatch.setitem(ALGORITHMS, "offline", ROW)
    monkeypatch.chdir(tmp_path)

    def run(*flags):
        few = {"task_id": TASK, "num_updates": 40, "actor_lr": 0.1, "num_eval_envs": 5, "eval_interval": 20}
        leaves = {} if "--resume" in flags else few
        return sl.train("offline", load_config(OfflineConfig, "offline", flags, "ppo/maze", leaves=leaves))

    return run


def rows(path, category):
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["category"] == category]


def test_items_are_scored_the_best_is_chosen_by_them_and_data_are_not_saved(train, tmp_path):
    write_pairs(tmp_path / "pairs.npz")
    result = train("--run-name", "a")
    evaluated = rows(result.path, "EVALUATOR")
    assert [row["update"] for row in evaluated] == [20, 40]
    assert evaluated[0]["evaluator/mean_return"] < evaluated[1]["evaluator/mean_return"] < 0.0
    assert evaluated[1]["evaluator/mean_return"] > -1e-4
    assert evaluated[1]["evaluator/episodes"] == 32
    assert rows(result.path, "TRAINER")[-1]["trainer/samples_trained_max"] == 40 * 8
    meta = CheckpointStore(result.path / "checkpoints").load_meta()
    assert (meta.update, set(meta.inputs)) == (40, {"data"})
    assert '"data/x"' not in (result.path / "checkpoints/40/meta.json").read_text()
    saved = sl.load_run(str(result.path))
    np.testing.assert_allclose(saved.params.critic, [1.0, -2.0, 0.5], atol=0.02)
    assert saved.state.data["x"].shape == (32, 3)


def test_a_resume_needs_the_same_data_from_wherever_they_are(train, tmp_path):
    """An interrupted run that is resumed with its file elsewhere ends with the bits of one that was not interrupted."""
    first = write_pairs(tmp_path / "pairs.npz")
    whole = train("--run-name", "whole", "--num-updates", "60")
    train("--run-name", "cut")
    first.rename(tmp_path / "moved.npz")
    train("--resume", "runs/cut", "--num-updates", "60", "--data-file", str(tmp_path / "moved.npz"))
    states = [sl.load_run(f"runs/{name}", "latest").state for name in ("cut",)]
    del whole
    (tmp_path / "moved.npz").rename(first)
    states.append(sl.load_run("runs/whole", "latest").state)
    jax.tree.map(np.testing.assert_array_equal, *(s._replace(key=jax.random.key_data(s.key)) for s in states))
    assert int(states[0].samples_trained) == 60 * 8
    write_pairs(first, seed=1)
    with pytest.raises(CheckpointError, match=r"checkpoint 60 of .*whole was written with another data: its hash was"):
        train("--resume", "runs/whole", "--num-updates", "80")
    write_pairs(first, num=16)
    with pytest.raises(CheckpointError, match="was written with another data"):
        sl.load_run("runs/whole").state  # noqa: B018


@pytest.mark.parametrize("how", ["vmap", "map"])
def test_seeds_share_the_data_and_learn_as_if_alone(train, tmp_path, monkeypatch, how):
    write_pairs(tmp_path / "pairs.npz")
    build = ROW.build
    both = lambda config: (made := build(config))._replace(learner=made.learner._replace(seeds=how))
    monkeypatch.setitem(ALGORITHMS, "offline", ROW._replace(build=both))
    train("--run-name", "two", "--num-seeds", "2", "--num-updates", "3")
    two = sl.load_run("runs/two", "latest")
    for seed in range(2):
        train("--run-name", f"alone{seed}", "--seed", str(seed), "--num-updates", "3")
        alone = sl.load_run(f"runs/alone{seed}", "latest").params.critic
        # "vmap" batches the products, which may round otherwise
        np.testing.assert_allclose(two.params.critic[seed], alone, rtol=0.0 if how == "map" else 1e-6)


def test_what_has_no_policy_cannot_play_and_says_so(train, tmp_path):
    write_pairs(tmp_path / "pairs.npz")
    train("--run-name", "a", "--num-updates", "2")
    for settings in (EvaluationSettings(network=True), EvaluationSettings(deterministic=False)):
        with pytest.raises(ConfigError, match="no policy that takes one action a step"):
            evaluate_run("runs/a", settings=settings)
    with pytest.raises(ConfigError, match="no policy that takes one action a step"):
        export_policy(sl.load_run("runs/a"))


def test_what_has_no_policy_is_evaluated_by_its_own_scores(train, tmp_path):
    write_pairs(tmp_path / "pairs.npz")
    train("--run-name", "a", "--num-updates", "2")
    run = sl.load_run("runs/a")
    with np.load(tmp_path / "pairs.npz") as pairs:
        wanted = -((pairs["x"] @ np.asarray(run.params.critic) - pairs["y"]) ** 2)
    row = evaluate_run("runs/a")["seeds"]["0"]["episode_return"]
    assert row["episodes"] == 32
    np.testing.assert_allclose([row["mean"], row["min"]], [wanted.mean(), wanted.min()], rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"data": {"x": np.zeros((32, 3), np.float32)}}, "the input data has other fields than the state"),
        ({"data": {"x": np.zeros((32, 3)), "y": np.zeros(32, np.float32)}}, r"the input data/x is float64\[32, 3\]"),
        ({"params": np.zeros(3)}, "the input params is a part of what every run saves"),
    ],
)
def test_inputs_that_do_not_fit_the_state(train, tmp_path, monkeypatch, given, what):
    write_pairs(tmp_path / "pairs.npz")
    monkeypatch.setitem(ALGORITHMS, "offline", ROW._replace(inputs=lambda _: given))
    with pytest.raises(ConfigError, match=what):
        train("--run-name", "a")


def test_a_reference_that_load_path_names_is_an_input(train, tmp_path, monkeypatch):
    """It is placed in a new run and after a resume, is not saved, and another one is refused."""

    class WithReference(NamedTuple):
        params: Params
        hyper: Any
        key: Any
        step: Any
        data: Any
        samples_trained: Any
        reference: Any

    def build(config):
        made = ROW.build(config)
        plain = made.learner

        def update(state):
            after, metrics = plain.update(State(*state[:-1]))
            gap = jnp.abs(state.params.critic - state.reference.critic).max()
            return WithReference(*after, state.reference), metrics | {"trainer/gap_to_reference": gap}

        init = lambda key: WithReference(*plain.init(key), Params(jnp.zeros(3)))
        return made._replace(learner=plain._replace(init=init, update=update))

    write_pairs(tmp_path / "pairs.npz")
    train("--run-name", "old", "--num-updates", "5")
    read_reference = lambda config: sl.load_run(config.checkpointing.load_path, "latest").params
    with_reference = lambda config: ROW.inputs(config) | {"reference": read_reference(config)}
    monkeypatch.setitem(ALGORITHMS, "tuned", ROW._replace(build=build, inputs=with_reference))
    few = {
        "task_id": TASK,
        "num_updates": 2,
        "actor_lr": 0.1,
        "num_eval_envs": 5,
        "eval_interval": 0,
        "log_interval": 1,
    }
    few |= {"load_path": "runs/old", "run_name": "new"}
    tuned = lambda flags, leaves: sl.train(
        "tuned", load_config(OfflineConfig, "tuned", flags, "ppo/maze", leaves=leaves)
    )
    path = tuned([], few).path
    expected = sl.load_run("runs/old", "latest").params.critic
    np.testing.assert_array_equal(sl.load_run("runs/new").state.reference.critic, expected)
    told = rows(path, "TRAINER")
    assert told[0]["trainer/gap_to_reference"] == 0.0 < told[1]["trainer/gap_to_reference"]
    assert "reference/critic" not in (path / "checkpoints/2/meta.json").read_text()
    tuned(["--resume", "runs/new", "--num-updates", "3"], {})
    np.testing.assert_array_equal(sl.load_run("runs/new", "latest").state.reference.critic, expected)
    train("--resume", "runs/old", "--num-updates", "9")
    with pytest.raises(CheckpointError, match="was written with another reference"):
        tuned(["--resume", "runs/new", "--num-updates", "4"], {})
