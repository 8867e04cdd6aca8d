"""A new run begins with published parameters: of either algorithm, for one seed or several. (With runs and checkpoints:
test_spo_run.py and tests/integration/test_variations.py.)
"""

import shutil

import jax
import pytest
from support.asserts import assert_same_bits, refused
from support.exports import MAZE, SMALL, make_saved
from support.marks import full
from support.scripted_runs import command

from stoix_like.errors import CheckpointError
from stoix_like.runtime.export import policy
from stoix_like.runtime.runs import initial_params
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.runs.build import ALGORITHMS
from stoix_like.runtime.weights import policy_folder

DENSE = MAZE | {"observation_adapter": "dense", "num_layers": 1}
PROBE = {"task_id": "probe/action_observation_reward"}


@pytest.fixture(scope="module", params=["ppo", "spo"])
def published(request, tmp_path_factory):
    """(a run with random parameters, the folder of its export)."""
    folder = tmp_path_factory.mktemp(request.param) / "export"
    saved = make_saved(request.param, DENSE)
    policy_folder.write(folder, policy.export_policy(saved))
    return saved, folder


def loaded(algorithm, path, num_seeds=1, **leaves):
    """(the new run as it would begin, the parameters that it takes over)."""
    new = make_saved(algorithm, DENSE | leaves, num_seeds=num_seeds)
    template = saved_run.state_template(new.learner, num_seeds).params
    fresh = jax.tree.map(lambda x: x + 1, new.params)
    task = new.config.environment.task_id
    return fresh, initial_params.load_initial_params(algorithm, task, path, template, fresh, num_seeds)


@pytest.mark.parametrize("num_seeds", [full(1), 2])
@pytest.mark.parametrize("algorithm", ["ppo", "spo"])
def test_every_seed_begins_with_the_published_network_and_else_as_any_run(published, algorithm, num_seeds):
    saved, folder = published
    fresh, taken = loaded(algorithm, folder / "params.safetensors", num_seeds)
    network, given = ALGORITHMS[algorithm].network_params(taken), saved.network_params(saved.params)
    for seed in range(num_seeds):
        assert_same_bits(jax.tree.map(lambda x, s=seed: x[s], network) if num_seeds > 1 else network, given)
    if algorithm == "spo":
        assert_same_bits(taken.duals, fresh.duals)


@pytest.mark.parametrize("published", ["ppo", full("spo")], indirect=True)
def test_a_training_takes_them_and_says_so(published, inside, capsys):
    """It learns nothing, so that they are in its first checkpoint."""
    saved, folder = published
    leaves = SMALL | DENSE | {"kwargs": "{num_rows: 5, num_cols: 5}", "num_updates": 1, "num_eval_envs": 8}
    leaves |= {"num_eval_episodes": 8, "actor_lr": 0, "critic_lr": 0, "save_dir": ".", "run_name": "taken", "seed": 9}
    assert command("train-ppo", **leaves, load_path=folder) == 0
    taken = saved_run.load_run("taken", "0")
    assert_same_bits(taken.network_params(taken.params), saved.network_params(saved.params))
    title = saved.meta.algorithm.upper()
    printed = capsys.readouterr()
    assert f"starts with the network ({title}) of {folder / 'params.safetensors'}" in printed.out + printed.err


def test_what_does_not_fit_is_refused(published, tmp_path):
    saved, folder = published
    path, algorithm = folder / "params.safetensors", saved.meta.algorithm
    hint = "take task, --hidden-dim, --num-layers and --observation-adapter from their configuration"
    with refused(CheckpointError, hint=hint) as caught:
        loaded(algorithm, path, hidden_dim=8)
    assert caught.value.what.startswith(f"the parameters {path} do not fit this run's configuration: ")
    with refused(CheckpointError, f"{path} is of Maze-v0, and its network does not fit {PROBE['task_id']}"):
        loaded(algorithm, path, **PROBE, kwargs={}, observation_adapter=None)
    torn = shutil.copy(path, tmp_path / "torn.safetensors")
    torn.write_bytes(torn.read_bytes()[:500])
    config = make_saved(algorithm, DENSE | {"load_path": str(torn)}).config
    with pytest.raises(CheckpointError, match=r"torn\.safetensors cannot be used: not a safetensors file"):
        initial_params.find_initial_params(config)
