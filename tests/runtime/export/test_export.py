"""The command export_policy.py on a run of two seeds."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.exports import make_saved, written_run
from support.paths import contents
from support.scripted_runs import command

import stoix_like as sl
from stoix_like.runtime.runs import saved as saved_run

FILES = ("policy.stablehlo", "params.safetensors", "model_card.md", "policy.json")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two seeds, 4 and 5, of random parameters. Copy it before touching it."""
    saved = make_saved("ppo", {"task_id": "probe/action_observation_reward"}, num_seeds=2, seed=4)
    return written_run(tmp_path_factory.mktemp("trained") / "two", saved, 2, 4)


def test_the_command(trained, tmp_path, capfd):
    shutil.copytree(trained, tmp_path / "two")
    assert command("export", tmp_path / "two", "--checkpoint", "2", "--seed", "5") == 0
    out, err = capfd.readouterr()
    folder = tmp_path / "two" / "export"
    lines = out.splitlines()
    what = "checkpoint 2 (update 2), seed 5 of 4, 5: its policy, for cpu, cuda, tpu"
    assert lines[0] == f"PPO on probe/action_observation_reward, {what}"
    for line, name in zip(lines[1:5], FILES, strict=True):
        assert line.split() == [str(folder / name), f"{(folder / name).stat().st_size:,}", "bytes"]
    assert lines[5].startswith(f'next: stoix_like.load_policy("{folder}")')
    assert (len(lines), err) == (6, "")

    policy, saved = sl.load_policy(folder), saved_run.load_run(str(trained), "2")
    description = policy.description
    assert (description["checkpoint"], description["update"], description["seed"]) == ("2", 2, 5)
    assert description["evaluation"] == {"evaluator/mean_return": (2 + 5) / 8}
    observation = sl.Observation({"features": jnp.array([[-1.0], [1.0], [0.5]])}, jnp.ones((3, 2), bool))
    for key in jax.random.split(jax.random.key(0), 3):
        expected = saved.learner.network_policy(saved.seed_params(1), None, observation, key, False)
        np.testing.assert_array_equal(policy(observation, key, False).action, expected)


def test_the_command_takes_the_best_of_the_first_seed(trained, tmp_path, capfd):
    assert command("export", trained, "--out", tmp_path / "new" / "place") == 0
    description = sl.load_policy(tmp_path / "new" / "place").description
    assert (description["seed"], description["update"], description["checkpoint"]) == (4, 4, "best")
    assert description["evaluation"] == {"evaluator/mean_return": (4 + 4) / 8}
    assert not (trained / "export").exists()


@pytest.mark.parametrize(
    ("argv", "code", "error"),
    [
        (["--seed", "0"], 2, "--seed: {run} did not train seed 0"),
        (["--seed", "x"], 2, "argument --seed: expected a whole number in [0, 2147483647], got 'x'"),
        (["--checkpoint", "3"], 4, "no checkpoint of update 3 in {run}/checkpoints"),
        (["--out", "{run}/config.yaml"], 1, "cannot write the export in {run}/config.yaml: File exists"),
    ],
)
def test_the_command_refuses(trained, capfd, argv, code, error):
    before = contents(trained)
    assert command("export", trained, *(word.format(run=trained) for word in argv)) == code
    first, second = capfd.readouterr().err.splitlines()
    assert first == f"error: {error.format(run=trained)}"
    assert second.startswith("hint: ")
    assert contents(trained) == before
