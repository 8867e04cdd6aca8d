"""What every Learner promises, whatever it learns: one battery over all of them. A new learner is one more entry."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import offline, rows
from support.agents import TINY
from support.asserts import assert_legal, assert_same_bits, key_data
from support.configs import DISTINCT, SMALL_ALPHAZERO, SMALL_PPO, SMALL_SPO, SMALL_TASKS, SOLVED
from support.marks import quick

import stoix_like as sl
from stoix_like.config.layers import resolve
from stoix_like.errors import ConfigError
from stoix_like.ops import trees
from stoix_like.runtime.runs.build import ALGORITHMS
from stoix_like.runtime.training import chunk as loop

RESAMPLED = SOLVED | {"resampling": "period", "resampling_period": 2}


class Entry(NamedTuple):
    """One learner on one task, and what is particular to it."""

    algorithm: str
    task: str
    leaves: dict[str, Any]
    draws_when_deterministic: bool = False  # the particles of a search may go on at random


PPO_ALONE = {"group_size", "num_minibatches"}
LONG_GAMES = {"hidden_dim": 4, "rollout_length": 40, "replay_buffer_size": 2048}  # three updates end some
DENSE = {"observation_adapter": "dense"}
PRETRAIN_STEPS = {n: x for n, x in TINY.items() if n not in PPO_ALONE} | {"gradient_steps": 3, "all_renderings": False}
ENTRIES = {
    "ppo": Entry("ppo", "Maze-v0", SMALL_PPO),
    "ppo_truncating": Entry("ppo", "probe/truncated_constant", SMALL_PPO),
    "ppo_factored": Entry("ppo", "JobShop-v0", SMALL_PPO | DENSE),
    "ppo_pairs": Entry("ppo", "BinPack-v2", SMALL_PPO | {"hidden_dim": 8, "num_heads": 2}),
    "spo": Entry("spo", "Maze-v0", SMALL_SPO | DENSE, True),
    "spo_truncating": Entry("spo", "probe/truncated_constant", SMALL_SPO),
    "spo_factored_resampled": Entry("spo", "JobShop-v0", SMALL_SPO | DENSE | {"resampling": "ess"}, True),
    "spo_distinct": Entry("spo", "Knapsack-v1", SMALL_SPO | DISTINCT),
    "spo_resampled": Entry("spo", "Maze-v0", SMALL_SPO | RESAMPLED | DENSE, True),
    "ppo_bfloat16": Entry("ppo", "probe/action_observation_reward", SMALL_PPO | {"compute_dtype": "bfloat16"}),
    "spo_bfloat16": Entry(
        "spo", "probe/action_observation_reward", SMALL_SPO | DISTINCT | {"compute_dtype": "bfloat16"}
    ),
    "alphazero": Entry("alphazero", "tic_tac_toe", SMALL_ALPHAZERO),
    "alphazero_quick": Entry("alphazero", "tic_tac_toe", SMALL_ALPHAZERO | {"quick_simulations": 2}),
    "alphazero_board": Entry("alphazero", "othello", SMALL_ALPHAZERO | LONG_GAMES),
    "ppo_board_game": Entry("ppo", "connect_four", SMALL_PPO),
    "offline": Entry("offline", "probe/constant_reward", {}),
    "agent": Entry("agent", "FrozenLake-text-v0", TINY | {"value_clip_eps": 0.5, "num_microbatches": 3}),
    "agent_conversation": Entry("agent", "FrozenLake-text-v0", TINY | {"context": "full", "critic": "separate"}),
    "agent_bfloat16": Entry("agent", "FrozenLake-text-v0", TINY | {"compute_dtype": "bfloat16", "critic": "shared"}),
    "sft": Entry("sft", "FrozenLake-text-v0", rows.LEAVES | {"max_length": 100}),
    "pretrain": Entry("pretrain", "FrozenLake-text-v0", {n: x for n, x in TINY.items() if n not in PPO_ALONE}),
    "pretrain_steps": Entry("pretrain", "FrozenLake-text-v0", PRETRAIN_STEPS),
}
ROWS = ALGORITHMS | {"offline": offline.ROW}
#: One entry for each algorithm. That bfloat16 is used and close: tests/networks/test_network_build.py.
QUICK = {"ppo_truncating", "spo_factored_resampled", "alphazero", "offline", "agent"}


class Compiled(NamedTuple):
    """One learner and its programs, compiled once for the whole battery."""

    name: str
    network: sl.Network | None
    learner: sl.Learner
    init: Callable[[Any], Any]
    donating: loop.ChunkFunction  # takes the state away, and takes no other types than those it was compiled for
    copy: Callable[[Any], Any]

    def chunk(self, state, length):
        """The same of a copy, so that the state can be used again."""
        return self.donating(self.copy(state), jnp.int32(length))


@functools.cache
def compiled(name):
    entry = ENTRIES[name]
    algorithm = ROWS[entry.algorithm]
    config = resolve(algorithm.config_type(), entry.leaves)
    if algorithm.build is not None:
        with tempfile.TemporaryDirectory() as folder:
            if entry.algorithm == "offline":
                config = resolve(config, {"data_file": str(offline.write_pairs(Path(folder) / "pairs.npz"))})
            if entry.algorithm == "sft":
                config = resolve(config, {"data_path": str(rows.write_folder(Path(folder)))})
            (_, network, learner), given = algorithm.build(config), algorithm.inputs(config)
    else:
        env, given = sl.make_env(entry.task, kwargs=SMALL_TASKS.get(entry.task, {})), {}
        network = sl.make_network(env, config)
        learner = algorithm.make(env, network, config)
    copy, make_state = jax.jit(lambda state: jax.tree.map(jnp.copy, state)), jax.jit(learner.init)
    init = lambda key: trees.with_paths(make_state(key), jax.tree.map(jnp.asarray, given))
    return Compiled(name, network, learner, init, loop.compile_chunk(learner, 1, init(jax.random.key(0))), copy)


@pytest.fixture(params=quick(ENTRIES, QUICK))
def jitted(request):
    return compiled(request.param)


def test_update_keeps_structure_and_strong_types_and_the_critic_learns(jitted):
    state = jitted.init(jax.random.key(0))
    after, metrics = jax.eval_shape(jitted.learner.update, state)
    chex.assert_trees_all_equal_shapes_and_dtypes(jax.eval_shape(lambda s: s, state), after)
    assert jax.tree.structure(state) == jax.tree.structure(after)
    assert not any(x.weak_type for x in jax.tree.leaves(state) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key))
    assert all(name.split("/")[0] in ("trainer", "actor") for name in metrics)
    assert all(value.shape == () and value.dtype == jnp.float32 for value in metrics.values())
    state = jitted.init(jax.random.key(3))
    after, _ = jitted.chunk(state, 3)
    assert all(x.shape == () and x.dtype == jnp.float32 for x in jax.tree.leaves(state.hyper))
    assert_same_bits(state.key, jax.random.key(3))
    assert_same_bits(after.key, state.key)
    assert (int(state.step), int(after.step)) == (0, 3)
    if (critics := [critic_of(jitted.name, s.params) for s in (state, after)])[0] is not None:
        moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), *critics)
        assert max(jax.tree.leaves(moved)) > 1e-4


def critic_of(name, params):
    """None of a learner without one."""
    algorithm = ENTRIES[name].algorithm
    return (params if algorithm == "agent" else ROWS[algorithm].network_params(params)).critic


def test_everything_learned_and_told_is_finite_and_no_nan_comes_out_of_twenty_updates(jitted):
    state, metrics = jitted.chunk(jitted.init(jax.random.key(1)), 6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(key_data((state.params, state.hyper))))
    told = {name: float(value) for name, value in metrics.items() if name.startswith("trainer/")}
    assert {name: value for name, value in told.items() if not np.isfinite(value)} == {}
    # Neither as a parameter, moment, dual, stored step, environment or metric; inside the program nothing is seen.
    state = jitted.init(jax.random.key(2))
    if "num_updates" in state.hyper._fields:  # else no rate falls to 0 over the updates
        state = state._replace(hyper=state.hyper._replace(num_updates=jnp.float32(20.0)))
    with jax.debug_nans(True):
        jax.block_until_ready(jitted.chunk(state, 20))


@pytest.mark.parametrize("name", quick(["spo_factored_resampled", "spo_resampled"], QUICK))
def test_what_is_named_so_resamples(name):
    jitted = compiled(name)
    _, metrics = jitted.chunk(jitted.init(jax.random.key(0)), 6)
    assert metrics["trainer/surviving_root_actions"] < metrics["trainer/distinct_root_actions"] - 0.1


@pytest.mark.parametrize("name", quick(["ppo_bfloat16", "spo_bfloat16"], QUICK))
def test_bfloat16_stays_in_the_torsos(name):
    """What is learned, stored or decided by is float32, and has digits that only float32 has."""
    jitted = compiled(name)
    state, _ = jitted.chunk(jitted.init(jax.random.key(0)), 4)
    algorithm = ENTRIES[name].algorithm
    asked = ALGORITHMS[algorithm].network_params(state.params), state.rollout.observation
    assert "bf16" in str(jax.make_jaxpr(jitted.network.actor_critic)(*asked))
    numbers = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.inexact)]
    assert {x.dtype for x in numbers} == {jnp.dtype("float32")}
    exact = [*jax.jit(jitted.network.actor_critic)(*asked), *jax.tree.leaves(state.params)]
    if algorithm == "spo":
        targets = state.replay.experience.targets
        exact += [targets.root_weights, targets.advantages, targets.log_prior_ratio]
    for x in exact:
        assert x.dtype == jnp.float32
        assert bool((x.astype(jnp.bfloat16) != x).any())


def test_chunks_of_any_length_give_the_same_bits_and_the_sum_of_their_metrics(jitted):
    one, total = jitted.chunk(jitted.init(jax.random.key(0)), 6)
    parts, expected = jitted.init(jax.random.key(0)), None
    for length in (1, 3, 2):
        parts, metrics = jitted.chunk(parts, length)
        expected = trees.accumulate_metrics(expected or trees.empty_metrics(metrics), metrics)
    assert_same_bits(one, parts)
    for name, value in expected.items():
        np.testing.assert_allclose(total[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_one_compilation_no_transfer_inside_and_donation(jitted):
    first = jitted.init(jax.random.key(0))
    lengths, state = [jnp.int32(n) for n in (1, 2, 1)], first
    with jax.transfer_guard("disallow"):
        for length in lengths:
            state, metrics = jitted.donating(state, length)
    jax.block_until_ready(metrics)
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(jax.tree.leaves(first.params)[0])


@pytest.mark.full
def test_seeds_side_by_side_equal_separate_runs():
    """SPO's are lanes of tests/algorithms/test_spo.py; those of a chunk stand in tests/runtime/training."""
    single = compiled("ppo_truncating")
    together = jax.jit(jax.vmap(single.learner.init))(jax.vmap(jax.random.key)(jnp.arange(3)))
    together, metrics = jax.jit(loop.chunk_function(single.learner, 3))(together, 2)
    for seed in range(3):
        alone, own = single.chunk(single.init(jax.random.key(seed)), 2)
        # Batched matrix products round differently, so the last bits differ; one other action would differ far more.
        close = lambda a, b, seed=seed: np.testing.assert_allclose(a[seed], b, rtol=1e-3, atol=1e-4)
        jax.tree.map(close, key_data(together.params), key_data(alone.params))
        np.testing.assert_allclose(metrics["actor/episodes_count"][seed], own["actor/episodes_count"])


def acting_in(name, state):
    """(states, observations) to act in: those of the rollout, or of AlphaZero's evaluations."""
    if ENTRIES[name].algorithm != "alphazero":
        return state.rollout.env_state, state.rollout.observation
    env = sl.make_env(ENTRIES[name].task)
    env_state, timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 8))
    return env_state, timestep.observation


def test_policies_act_legally_in_batches_and_follow_their_flag(jitted):
    """Deterministic means that no noise is wanted: the same key gives the same actions, and where nothing is drawn any
    key does. The network alone draws nothing unless asked, and then it draws."""
    if jitted.learner.policy is None:
        with pytest.raises(ConfigError, match="no policy"):
            _ = jitted.learner.policies
        return
    state, entry, learner = jitted.init(jax.random.key(0)), ENTRIES[jitted.name], jitted.learner
    env_state, observation = acting_in(jitted.name, state)
    mask = observation.action_mask
    assert (learner.network_policy is learner.policy) == (entry.algorithm == "ppo")
    both = learner.policy, learner.network_policy
    policy, alone = (jax.jit(functools.partial(p, state.params), static_argnums=3) for p in both)

    def act_with(policy, is_deterministic, seed):
        actions = policy(env_state, observation, jax.random.key(seed), is_deterministic)
        assert actions.shape == mask.shape[:-1]
        assert_legal(actions, mask)
        return np.asarray(actions)

    seeds = (0, 0) if entry.draws_when_deterministic else (0, 1)
    np.testing.assert_array_equal(*(act_with(policy, True, seed) for seed in seeds))
    np.testing.assert_array_equal(*(act_with(alone, True, seed) for seed in range(2)))
    sampled = {act_with(alone, False, seed).tobytes() for seed in range(8)}
    assert len(sampled) > 1 or not bool((mask.sum(-1) > 1).any())
