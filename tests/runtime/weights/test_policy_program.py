"""An exported policy acts as the network policy does, and lists what of an observation does not fit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import assert_same_bits
from support.exports import KEY, PAGE, ROOT, blocks, make_saved
from support.marks import full

import stoix_like as sl
from stoix_like.errors import ConfigError
from stoix_like.runtime.export import policy as export_run
from stoix_like.runtime.weights import policy_folder, policy_program


@pytest.mark.parametrize("rows", [full(1), 7])
def test_actions_are_those_of_the_network_and_sampled_ones_of_the_policy_from_the_same_key(case, rows):
    expected = case.answers(rows).most_probable
    output = case.policy(case.rows(rows))
    np.testing.assert_array_equal(output.action, expected)
    assert output.action.dtype == expected.dtype == jnp.int32
    assert output.action.shape == (rows, *case.saved.env.action_spec.shape)
    if rows > 1:
        assert len({tuple(np.ravel(action)) for action in expected}) > 1
    drawn = []
    for seed in range(4):
        key = jax.random.fold_in(jax.random.key(seed), 2**31 + seed)
        drawn.append(np.asarray(case.answers(rows, key).sampled))
        np.testing.assert_array_equal(case.policy(case.rows(rows), key, False).action, drawn[-1])
        words = np.asarray(jax.random.key_data(key))  # the same by its words
        np.testing.assert_array_equal(case.policy(case.rows(rows), words, False).action, drawn[-1])
    if rows > 1:
        assert len({actions.tobytes() for actions in drawn}) > 1
        legal = np.take_along_axis(np.asarray(case.observation.action_mask)[None], np.stack(drawn)[..., None], axis=-1)
        assert legal.all()


def test_logits_and_values_are_those_of_the_network(case):
    """To rounding: the parameters are constants there, which are folded, and fusions differ."""
    expected, output = case.answers(7), case.policy(case.observation)
    assert output.logits.shape == (7, *case.saved.env.action_spec.mask_shape)
    assert output.value.shape == (7,)
    np.testing.assert_allclose(output.logits, expected.logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(output.value, expected.value, rtol=1e-5, atol=1e-5)
    legal = np.asarray(case.observation.action_mask)
    assert (np.asarray(output.logits)[~legal] == jnp.finfo(jnp.float32).min).all()


@pytest.mark.full
def test_it_plays_as_the_run_does(maze):
    """In `evaluate`, which is jit, a scan and a loop. (In jumanji's own environments: the test of the page.)"""
    saved, levels = maze.saved, jax.random.split(jax.random.key(3), 64)
    ours, expected = (
        jax.jit(functools.partial(sl.evaluate_levels, saved.env, policy, params, num_envs=64))(levels, KEY)
        for policy, params in ((maze.policy.policy, None), (saved.learner.network_policy, saved.params))
    )
    assert_same_bits(ours, expected)
    assert set(ours.episode_return.tolist()) == {0.0, 1.0}


def test_plain_arrays_of_other_widths_are_taken(maze):
    plain = {name: np.asarray(leaf) for name, leaf in policy_program.observation_leaves(maze.observation).items()}
    assert set(plain) == {
        *("agent_position/row", "agent_position/col", "target_position/row", "target_position/col"),
        *("walls", "step_count", "action_mask"),
    }
    wide = {name: leaf.astype(np.int64) if leaf.dtype == np.int32 else leaf.tolist() for name, leaf in plain.items()}
    np.testing.assert_array_equal(maze.policy(wide).action, maze.policy(maze.observation).action)


def test_the_program_is_lowered_for_three_platforms_and_does_not_say_where_it_was_made(case):
    exported = jax.export.deserialize(bytearray((case.folder / "policy.stablehlo").read_bytes()))
    assert exported.platforms == ("cpu", "cuda", "tpu") == tuple(case.policy.description["platforms"])
    # Neither folders nor files. (Beside its operations a program may hold where each is from.)
    jax.config.update("jax_traceback_in_locations_limit", 10)  # JAX's own value; tests run with 0
    program = (case.folder / "policy.stablehlo").read_bytes()
    assert b".py" not in program
    assert str(ROOT.parent).encode() not in program
    try:
        assert export_run.export_policy(case.saved).program == program  # called for from another line
        assert jax.config.jax_traceback_in_locations_limit == 10
    finally:
        jax.config.update("jax_traceback_in_locations_limit", 0)


def _refused_observation(policy, **changes):
    rows = {"walls": (7, 5, 5), "action_mask": (7, 4)}
    leaves = {
        leaf["name"]: np.zeros(rows.get(leaf["name"], 7), leaf["dtype"]) for leaf in policy.description["observation"]
    }
    leaves = {name: leaf for name, leaf in (leaves | changes).items() if leaf is not None}
    with pytest.raises(ConfigError) as caught:
        policy(leaves)
    return caught.value


def test_observations_and_keys_that_do_not_fit(maze):
    refused = functools.partial(_refused_observation, maze.policy)
    error = refused(walls=None, step_count=None)
    assert error.problems == ["observation: 'step_count' is missing", "observation: 'walls' is missing"]
    assert "walls (batch, 5, 5) bool" in error.hint
    assert "step_count (batch,) int32" in error.hint
    error = refused(walls=np.zeros((5, 5), bool))
    assert error.problems == ["observation: 'walls' has shape (5, 5), not (batch, 5, 5)"]
    assert refused(step_count=np.int32(3)).problems == ["observation: 'step_count' has shape (), not (batch,)"]
    assert refused(walls=np.zeros((7, 5, 5))).problems == ["observation: 'walls' is float64, not bool"]
    assert "walls' has shape (0, 5, 5)" in refused(walls=np.zeros((0, 5, 5), bool)).problems[0]
    (problem,) = refused(walls=np.zeros((6, 5, 5), bool)).problems
    assert problem.startswith("observation: batches differ: ")
    assert "'walls': 6" in problem
    with pytest.raises(ConfigError, match="sampling actions needs a key"):
        maze.policy(maze.observation, deterministic=False)
    with pytest.raises(ConfigError, match=r"got uint32 of shape \(4,\)"):
        maze.policy(maze.observation, jax.random.key(0, impl="rbg"), False)
    with pytest.raises(ConfigError, match=r"got int64 of shape \(2,\)"):
        maze.policy(maze.observation, np.array([0, 1]), False)


@pytest.mark.full
def test_the_page_as_it_stands(tmp_path, monkeypatch, capsys):
    """Every block of the page in its order, on a task whose actions are a product, as jumanji registers it.

    The first two, on another task: test_policy_folder.py."""
    import jumanji

    saved = make_saved("ppo", {"task_id": "Minesweeper-v0"})
    policy_folder.write(tmp_path / "runs" / "latest" / "export", export_run.export_policy(saved))
    monkeypatch.chdir(tmp_path)
    names = {}
    assert len(blocks("python")) == 6
    with jax.numpy_rank_promotion("allow"):
        for block in blocks("python"):
            exec(compile(block, str(PAGE), "exec"), names)
        spec, act = names["spec"], names["act"]
        levels = jax.random.split(jax.random.key(7), 4)
        totals = [names["play"](jumanji.make("Minesweeper-v0"), spec, act, level) for level in levels]
    assert capsys.readouterr().out.count("\n") == 5
    assert spec["action"]["joint_shape"] == [10, 10]
    play = functools.partial(sl.evaluate_levels, saved.env, saved.learner.network_policy, num_envs=4)
    ours = jax.jit(play)(saved.params, levels, KEY)
    np.testing.assert_array_equal(ours.episode_return, totals)
    assert ours.episode_length.max() > 2

    leaves = policy_program.observation_leaves(names["timestep"].observation)
    expected = saved.learner.network_policy(saved.params, None, names["timestep"].observation, KEY, False)
    np.testing.assert_array_equal(act(leaves, jax.random.key_data(KEY), False)["action"], expected)
    assert spec == names["policy"].description
