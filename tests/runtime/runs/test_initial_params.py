"""A new run begins with published parameters: of either algorithm, for one seed or several. (With runs and checkpoints:
test_spo_run.py and tests/integration/test_variations.py.)
"""

import jax
import pytest
from support.asserts import assert_same_bits
from support.exports import MAZE, SEARCH, SMALL, make_saved
from support.marks import full
from support.scripted_runs import command

from stoix_like.runtime.export import policy
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.weights import policy_folder

DENSE = MAZE | {"observation_adapter": "dense", "num_layers": 1}
OTHER = {"ppo": "spo", "spo": "ppo"}


@pytest.fixture(scope="module", params=list(OTHER))
def published(request, tmp_path_factory):
    """(algorithm, a run with random parameters, the folder of its export)."""
    folder = tmp_path_factory.mktemp(request.param) / "export"
    saved = make_saved(request.param, DENSE)
    policy_folder.write(folder, policy.export_policy(saved))
    return request.param, saved, folder


def begin(algorithm, capsys, *, code=0, **leaves):
    """(the network that a run which learns nothing begins with, the text on stderr)."""
    leaves = SMALL | DENSE | {"kwargs": "{num_rows: 5, num_cols: 5}"} | leaves
    leaves |= {"num_updates": 2, "num_eval_envs": 8, "num_eval_episodes": 8, "actor_lr": 0, "critic_lr": 0}
    leaves |= {"save_dir": ".", "run_name": "taken", "seed": 9}
    if algorithm == "spo":
        leaves |= SEARCH | {"num_minibatches": 1}
    assert command(f"train-{algorithm}", **leaves) == code
    printed = capsys.readouterr()
    if code:
        return None, printed.err
    taken = saved_run.load_run("taken", "0")
    return taken.network_params(taken.params), printed.out + printed.err


@pytest.mark.parametrize("where", [full("the same algorithm"), "the other one"])
def test_it_begins_with_the_published_network(published, where, inside, capsys):
    algorithm, saved, folder = published
    ours = algorithm if where == "the same algorithm" else OTHER[algorithm]
    network, message = begin(ours, capsys, load_path=folder)
    assert_same_bits(network, saved.network_params(saved.params))
    assert f"starts with the network ({algorithm.upper()}) of {folder / 'params.safetensors'}" in message


@pytest.mark.parametrize("published", ["ppo", full("spo")], indirect=True)
def test_every_seed_begins_with_it(published, inside, capsys):
    algorithm, saved, folder = published
    network, _ = begin(algorithm, capsys, load_path=folder / "params.safetensors", num_seeds=2)
    given = saved.network_params(saved.params)
    for seed in (0, 1):
        assert_same_bits(jax.tree.map(lambda x, seed=seed: x[seed], network), given)


def test_what_does_not_fit_or_is_damaged_is_refused_in_one_line(published, inside, capsys):
    algorithm, _, folder = published
    _, message = begin(algorithm, capsys, code=4, load_path=folder, hidden_dim=8)
    error, hint = message.splitlines()
    assert error.startswith(f"error: the parameters {folder}/params.safetensors do not fit this run's configuration: ")
    assert hint == "hint: take task, --hidden-dim, --num-layers and --observation-adapter from their configuration"
    probe = {"task_id": "probe/action_observation_reward", "kwargs": "{}"}
    _, message = begin(algorithm, capsys, code=4, load_path=folder, **probe)
    error, _ = message.splitlines()
    assert error.endswith("safetensors is of Maze-v0, and its network does not fit probe/action_observation_reward")
    (inside / "torn.safetensors").write_bytes((folder / "params.safetensors").read_bytes()[:500])
    _, message = begin(algorithm, capsys, code=4, load_path="torn.safetensors")
    error, _ = message.splitlines()
    refused = "error: the parameters torn.safetensors cannot be used: not a safetensors file, or a damaged"
    assert error.startswith(refused)
    assert not (inside / "taken").exists()
