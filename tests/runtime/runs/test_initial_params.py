"""A new run begins with published parameters or with those of a run: of either algorithm, for one seed or several.
(With trained runs: test_spo_run.py and tests/integration/test_variations.py.)
"""

import functools
import json
import shutil
from types import MappingProxyType

import jax
import pytest
from jax.sharding import SingleDeviceSharding
from support.asserts import assert_same_bits, refused
from support.exports import MAZE, SMALL, make_saved, written_run
from support.marks import full
from support.scripted_runs import command

import stoix_like as sl
from stoix_like.config.dicts import config_to_dict
from stoix_like.errors import CheckpointError
from stoix_like.runtime.export import policy
from stoix_like.runtime.runs import agents, initial_params
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.runs.build import ALGORITHMS
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.storage import signed_json
from stoix_like.runtime.weights import policy_folder
from stoix_like.types import NetworkParams

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
    return fresh, initial_params.load_initial_params(algorithm, new.config, path, template, fresh)


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


@pytest.mark.parametrize(("theirs", "ours"), [("ppo", "ppo"), ("ppo", "spo"), full("spo", "ppo"), full("spo", "spo")])
def test_every_seed_begins_with_the_network_of_a_run_of_one(tmp_path, theirs, ours):
    saved = make_saved(theirs, DENSE)
    path = written_run(tmp_path / "one", saved, 3)
    _, taken = loaded(ours, path, num_seeds=2)
    given = saved.params if theirs == ours else saved.network_params(saved.params)
    taken = taken if theirs == ours else ALGORITHMS[ours].network_params(taken)
    for seed in range(2):
        assert_same_bits(jax.tree.map(lambda x, s=seed: x[s], taken), given)


@pytest.mark.parametrize(("theirs", "ours"), [("ppo", "spo"), full("ppo", "ppo")])
def test_parameters_of_several_seeds_need_as_many(tmp_path, theirs, ours):
    saved = make_saved(theirs, DENSE, num_seeds=2)
    path = written_run(tmp_path / "two", saved, 3)
    _, taken = loaded(ours, path, num_seeds=2)
    network = ALGORITHMS[ours].network_params(taken)
    assert_same_bits(network, saved.network_params(saved.params))
    for others in (1, 3):
        what = f"the parameters of {path} are of 2 seeds, and this run trains {others}"
        with refused(CheckpointError, what, "give --num-seeds 2, or a run of one seed"):
            loaded(ours, path, num_seeds=others)


def test_a_stored_configuration_that_is_not_read_any_more_does_not_matter(tmp_path):
    """Of algorithms whose shapes tell all: only arrays are taken over."""
    saved = make_saved("ppo", DENSE)
    path = written_run(tmp_path / "old", saved, 3)
    for meta in (path / "checkpoints").rglob("meta.json"):
        body = json.loads(meta.read_text())["body"]
        body["config"]["optimization"]["no_such_leaf"] = True
        meta.write_text(signed_json.signed_text(body))
    assert_same_bits(loaded("ppo", path)[1], saved.params)


DECODER = {"hidden_dim": 24, "num_heads": 2, "num_layers": 1}


@pytest.mark.parametrize(
    ("leaves", "differs"),
    [
        ({}, None),
        ({"num_heads": 3}, ("num_heads", "2", "3")),
        ({"rope_theta": 100.0}, ("rope_theta", "10000", "100")),
        ({"num_heads": 1, "head_dim": 24}, ("num_heads", "2", "1")),
    ],
)
def test_a_decoder_of_the_same_shapes_that_is_another_function_is_refused(tmp_path, leaves, differs):
    """All have one width, so that every array has the same shape."""
    before, config = sl.pretrain_config(**DECODER), sl.agent_config(**DECODER | leaves)
    shape = jax.ShapeDtypeStruct((2,), float, sharding=SingleDeviceSharding(jax.devices()[0]))
    template = NetworkParams(torso={"w": shape}, actor=None, critic=None)
    meta = CheckpointMeta("pretrain", "FrozenLake-text-v0", 3, config_to_dict(before), {})
    values = NetworkParams(torso={"w": jax.numpy.ones(2, float)}, actor=None, critic=None)
    CheckpointStore(tmp_path / "base/checkpoints", create=True).save({"params": values}, meta)
    load = functools.partial(initial_params.load_initial_params, "agent", config, tmp_path / "base", template, values)
    if differs is None:
        assert_same_bits(load(), values)
        return
    leaf, then, now = differs
    what = f"the parameters of {tmp_path / 'base'} were learned with {leaf} {then}, and this run has {now}"
    with refused(CheckpointError, what, f"give --{leaf.replace('_', '-')} {then}"):
        load()


def test_a_policy_that_speaks_no_tokens_is_no_reference(tmp_path):
    path = written_run(tmp_path / "ppo", make_saved("ppo", DENSE), 3)
    config = sl.agent_config(**DECODER, kl_coef=0.1, load_path=str(path))
    with refused(CheckpointError, f"the parameters of {path} cannot be used: only one of the two is a language model"):
        ALGORITHMS["agent"].inputs(config)


def test_an_agent_is_told_if_its_base_cannot_write():
    """One line for each reason from which nothing would be learned; of a base that fits, none."""

    def notes(update=9, scores=(0.995,), task_id="FrozenLake-text-v0", own=MappingProxyType({}), **leaves):
        config = config_to_dict(sl.pretrain_config(**leaves))
        host = {"scores": list(scores), "updates": [update] * len(scores)}
        meta = CheckpointMeta("pretrain", task_id, update, config, host)
        return agents.base_notes(sl.agent_config(**own), meta)

    assert notes() == notes(mode="worldmodel", rendering="grid") == []  # all are learned by default
    agent = CheckpointMeta("agent", "FrozenLake-text-v0", 0, config_to_dict(sl.agent_config()), {})
    of_others = CheckpointMeta("others", "FrozenLake-text-v0", 9, {}, {})
    assert agents.base_notes(sl.agent_config(), agent) == agents.base_notes(sl.agent_config(), of_others) == []
    (note,) = agents.base_notes(sl.agent_config(), None)
    assert note.startswith("a fresh decoder never writes a valid answer: ")
    assert notes(update=0) == ["the base has done no update of its pretraining"]
    assert notes(scores=(1.0, 0.25)) == ["only 0.250 of the base's answers are well-formed; agents need 0.98"]
    assert notes(scores=(0.97999,)) == ["only 0.979 of the base's answers are well-formed; agents need 0.98"]
    assert notes(task_id="Sokoban-text-v0") == [
        "the base has learned to answer in Sokoban-text-v0, not in FrozenLake-text-v0"
    ]
    assert notes(mode="worldmodel", all_modes=False) == [
        "the base has learned to answer in mode worldmodel, not in base"
    ]
    assert notes(rendering="grid", all_renderings=False) == [
        "the base has learned to answer in rendering grid, not in both"
    ]
    assert notes(rendering="grid", second_rendering="both", all_renderings=False) == []
    assert notes(own={"rendering": "positions"}) == [
        "the base has learned to answer in rendering both, not in positions"
    ]
    assert notes(order="obs_answer_pred") == []  # answers of the mode base have no states
    assert notes(own={"mode": "worldmodel"}, order="obs_answer_pred") == [
        "the base has learned to answer in order obs_answer_pred, not in obs_pred_answer"
    ]
