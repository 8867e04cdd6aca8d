"""An exported policy acts as the network's policy does, and says what of an observation does not fit."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import CASES, PAGE, ROOT, blocks, exported, make_saved

import stoix_like as sl
from stoix_like.errors import ConfigError
from stoix_like.runtime import export_run, policy_files, policy_program


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(params=list(CASES))
def case(request, folder):
    return exported(request.param, folder)


@pytest.fixture
def maze(folder):
    return exported("ppo_maze", folder)


@pytest.mark.parametrize("rows", [1, 7])
def test_most_probable_actions_are_those_of_the_network(case, rows):
    expected = case.expected(rows, jax.random.key(0), True)
    output = case.said(rows, None, True)
    np.testing.assert_array_equal(output.action, expected)
    assert output.action.dtype == expected.dtype == jnp.int32
    assert output.action.shape == (rows, *case.saved.env.action_spec.shape)
    if rows > 1:
        assert len({tuple(np.ravel(action)) for action in expected}) > 1


@pytest.mark.parametrize("rows", [1, 7])
def test_sampled_actions_are_those_of_the_policy_from_the_same_key(case, rows):
    drawn = []
    for seed in range(4):
        key = jax.random.fold_in(jax.random.key(seed), 2**31 + seed)
        drawn.append(case.expected(rows, key, False))
        np.testing.assert_array_equal(case.said(rows, key, False).action, drawn[-1])
        words = np.asarray(jax.random.key_data(key))  # the same by its words
        np.testing.assert_array_equal(case.said(rows, words, False).action, drawn[-1])
    if rows > 1:
        assert len({np.asarray(actions).tobytes() for actions in drawn}) > 1


def test_logits_and_values_are_those_of_the_network(case):
    """To rounding: constants are folded at compilation, and fusions differ."""
    params = case.saved.network_params(case.saved.params)
    logits, value = jax.jit(case.saved.network.actor_critic)(params, case.observation)
    output = case.said(7, None, True)
    spec = case.saved.env.action_spec
    assert output.logits.shape == (7, *spec.mask_shape)
    assert output.value.shape == (7,)
    np.testing.assert_allclose(output.logits, logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(output.value, value, rtol=1e-5, atol=1e-5)
    legal = np.asarray(case.observation.action_mask)
    assert (np.asarray(output.logits)[~legal] == jnp.finfo(jnp.float32).min).all()


def test_no_illegal_action_is_said(case):
    mask = np.asarray(case.observation.action_mask)
    for seed in range(4):
        action = np.asarray(case.said(7, jax.random.key(seed), False).action)
        assert np.take_along_axis(mask, action[..., None], axis=-1).all()


def test_its_policy_plays_as_the_run_does(maze):
    """In `evaluate`: inside jit, a scan and a loop."""
    play = functools.partial(sl.evaluate, maze.saved.env, num_episodes=8, deterministic=True)
    ours = jax.jit(lambda key: play(maze.policy.policy, None, key))(jax.random.key(3))
    theirs = jax.jit(lambda key: play(maze.saved.learner.network_policy, maze.saved.params, key))(jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    assert len(set(ours.episode_length.tolist())) > 1


def test_plain_arrays_of_other_widths_are_taken(maze):
    plain = {name: np.asarray(leaf) for name, leaf in policy_program.observation_leaves(maze.observation).items()}
    assert set(plain) == {
        *("agent_position/row", "agent_position/col", "target_position/row", "target_position/col"),
        *("walls", "step_count", "action_mask"),
    }
    wide = {name: leaf.astype(np.int64) if leaf.dtype == np.int32 else leaf.tolist() for name, leaf in plain.items()}
    np.testing.assert_array_equal(maze.policy(wide).action, maze.said(7, None, True).action)


def test_the_program_does_not_say_where_it_was_made(case):
    """Paths of the machine are nobody's business. (The text of a program holds its source locations.)"""
    program = (case.folder / "policy.stablehlo").read_bytes()
    for path in (ROOT, Path(jax.__file__).parent, Path.home()):
        assert str(path).encode() not in program
    assert b"networks" not in program
    assert jax.config.jax_hlo_source_file_canonicalization_regex is None  # as it was


def test_it_is_lowered_for_three_platforms(case):
    exported = jax.export.deserialize(bytearray((case.folder / "policy.stablehlo").read_bytes()))
    assert exported.platforms == ("cpu", "cuda", "tpu") == tuple(case.policy.description["platforms"])


# --- what it cannot be asked


def _refused_observation(policy, **changes):
    rows = {"walls": (7, 5, 5), "action_mask": (7, 4)}
    leaves = {
        leaf["name"]: np.zeros(rows.get(leaf["name"], 7), leaf["dtype"]) for leaf in policy.description["observation"]
    }
    leaves = {name: leaf for name, leaf in (leaves | changes).items() if leaf is not None}
    with pytest.raises(ConfigError) as caught:
        policy(leaves)
    return caught.value


def test_observations_that_do_not_fit(maze):
    refused = functools.partial(_refused_observation, maze.policy)
    error = refused(walls=None, step_count=None)
    assert error.problems == ["observation: 'walls' is missing", "observation: 'step_count' is missing"]
    assert "walls (batch, 5, 5) bool" in error.hint
    assert "step_count (batch,) int32" in error.hint
    error = refused(walls=np.zeros((5, 5), bool))
    assert error.problems == ["observation: 'walls' has shape (5, 5), not (batch, 5, 5)"]
    assert refused(step_count=np.int32(3)).problems == ["observation: 'step_count' has shape (), not (batch,)"]
    assert refused(walls=np.zeros((7, 5, 5))).problems == ["observation: 'walls' is float64, not bool"]
    (problem,) = refused(walls=np.zeros((6, 5, 5), bool)).problems
    assert problem.startswith("observation: batches differ: ")
    assert "'walls': 6" in problem


def test_keys_that_do_not_fit(maze):
    with pytest.raises(ConfigError, match="sampling actions needs a key"):
        maze.policy(maze.observation, deterministic=False)
    with pytest.raises(ConfigError, match=r"got uint32 of shape \(4,\)"):
        maze.policy(maze.observation, jax.random.key(0, impl="rbg"), False)
    with pytest.raises(ConfigError, match=r"got int64 of shape \(2,\)"):
        maze.policy(maze.observation, np.array([0, 1]), False)


# --- the page


def test_the_page_as_it_stands(tmp_path, monkeypatch, capsys):
    """Every block of the page in its order, on a maze as jumanji registers it."""
    saved = make_saved("ppo", {"task_id": "Maze-v0", "num_layers": 12})
    policy_files.write(tmp_path / "runs" / "NAME" / "export", export_run.exported(saved, "latest"))
    monkeypatch.chdir(tmp_path)
    names = {}
    assert len(blocks("python")) == 5
    with jax.numpy_rank_promotion("allow"):  # jumanji's own code is called without our door
        for block in blocks("python"):
            exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out.count("\n") == 4
    spec, act, sampled = names["spec"], names["act"], jax.random.key(3)
    leaves = policy_program.observation_leaves(names["timestep"].observation)
    expected = saved.learner.network_policy(saved.params, None, names["timestep"].observation, sampled, False)
    np.testing.assert_array_equal(act(leaves, jax.random.key_data(sampled), False)["action"], expected)
    assert spec == names["policy"].description


def test_the_page_plays_a_joint_action(tmp_path):
    """The same return as in our environment on the same level, each action taken apart by the page's code."""
    import jumanji

    saved = make_saved("ppo", {"task_id": "BinPack-v2"})
    policy_files.write(tmp_path, export_run.exported(saved, "latest"))
    names = {}
    for block in blocks("python")[:2]:
        exec(compile(block, str(PAGE), "exec"), names)
    spec, act = names["load_policy"](tmp_path)
    key = jax.random.key(7)
    with jax.numpy_rank_promotion("allow"):
        total = names["play"](jumanji.make("BinPack-v2"), spec, act, key)
    level = key[None]
    ours = jax.jit(
        lambda: sl.evaluate_levels(saved.env, saved.learner.network_policy, saved.params, level, key, num_envs=1)
    )()
    assert total == pytest.approx(float(ours.episode_return[0]), abs=1e-6)
    assert ours.episode_length[0] > 3
