"""What every Learner promises, whatever it learns: one battery over all of them. A new learner is one more entry."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stoix_like as sl
from stoix_like.config_checks import replace_leaves, resolve
from stoix_like.ops import trees
from stoix_like.runtime import loop
from stoix_like.runtime.build import ALGORITHMS

SMALL = {"num_envs": 8, "rollout_length": 4, "num_minibatches": 2, "epochs": 2, "hidden_dim": 16, "num_updates": 8}
SEARCH = SMALL | {
    "num_layers": 1,
    "num_particles": 4,
    "search_depth": 4,
    "replay_buffer_size": 8 * 12,
    "sample_sequence_length": 4,
    "batch_size": 8,
}
DISTINCT = {"root": "gumbel_topk", "search_depth": "full", "continuation": "greedy", "resampling": "none"}
KWARGS = {
    "Maze-v0": {"num_rows": 5, "num_cols": 5},
    "JobShop-v0": {"num_jobs": 3, "num_machines": 2, "max_num_ops": 2, "max_op_duration": 2},
    "BinPack-v2": {"max_num_items": 4, "max_num_ems": 8, "obs_num_ems": 8},
}


class Entry(NamedTuple):
    """One learner on one task, and what is particular to it."""

    algorithm: str
    task: str
    leaves: dict[str, Any]
    draws_when_deterministic: bool = False  # the particles of a search may go on at random


ENTRIES = {
    "ppo": Entry("ppo", "Maze-v0", SMALL | {"observation_adapter": "dense"}),
    "ppo_truncating": Entry("ppo", "probe/truncated_constant", SMALL),
    "ppo_factored": Entry("ppo", "JobShop-v0", SMALL | {"observation_adapter": "dense"}),
    "spo": Entry("spo", "Maze-v0", SEARCH | {"observation_adapter": "dense"}, True),
    "spo_truncating": Entry("spo", "probe/truncated_constant", SEARCH),
    "spo_factored_resampled": Entry(
        "spo", "JobShop-v0", SEARCH | {"observation_adapter": "dense", "resampling": "ess"}, True
    ),
    "spo_distinct": Entry(
        "spo", "BinPack-v2", SEARCH | DISTINCT | {"observation_adapter": "dense", "temperature_mode": "solve"}
    ),
}
LEARNERS = list(ENTRIES)


@functools.cache
def make_learner(name):
    entry = ENTRIES[name]
    env = sl.make_env(entry.task, kwargs=KWARGS.get(entry.task, {}))
    algorithm = ALGORITHMS[entry.algorithm]
    config = resolve(replace_leaves(algorithm.config_type(), entry.leaves))
    return algorithm.make(env, sl.make_network(env, config), config)


def words(tree):
    """The tree with typed keys as their words, so that it can be compared."""
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.tree.map(lambda x: np.asarray(jax.random.key_data(x) if is_key(x) else x), tree)


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, words(a), words(b))


class Compiled(NamedTuple):
    """One learner and its two programs, compiled once for the whole battery. Nothing is donated."""

    name: str
    learner: sl.Learner
    init: Callable[[Any], Any]
    chunk: Callable[[Any, Any], Any]


@functools.cache
def compiled(name):
    learner = make_learner(name)
    return Compiled(name, learner, jax.jit(learner.init), jax.jit(loop.chunk_function(learner, 1)))


@pytest.fixture(params=LEARNERS)
def jitted(request):
    return compiled(request.param)


def test_update_keeps_structure_shapes_and_strong_types(jitted):
    state = jitted.init(jax.random.key(0))
    after, _ = jax.eval_shape(jitted.learner.update, state)
    chex.assert_trees_all_equal_shapes_and_dtypes(jax.eval_shape(lambda s: s, state), after)
    assert jax.tree.structure(state) == jax.tree.structure(after)
    assert not any(x.weak_type for x in jax.tree.leaves(state) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def test_state_has_params_hyper_key_and_step(jitted):
    state = jitted.init(jax.random.key(3))
    after, _ = jitted.chunk(state, 1)
    assert all(x.shape == () and x.dtype == jnp.float32 for x in jax.tree.leaves(state.hyper))
    assert_equal(state.key, jax.random.key(3))
    assert_equal(after.key, state.key)
    assert (int(state.step), int(after.step)) == (0, 1)


def test_metrics_are_flat_scalars_with_a_prefix(jitted):
    _, metrics = jax.eval_shape(jitted.learner.update, jitted.init(jax.random.key(0)))
    assert all(name.split("/")[0] in ("trainer", "actor") for name in metrics)
    assert all(value.shape == () and value.dtype == jnp.float32 for value in metrics.values())


def test_the_critic_learns(jitted):
    state = jitted.init(jax.random.key(0))
    after, _ = jitted.chunk(state, 3)
    network_params = ALGORITHMS[ENTRIES[jitted.name].algorithm].network_params
    critics = (network_params(s.params).critic for s in (state, after))
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), *critics)
    assert max(jax.tree.leaves(moved)) > 1e-4


def test_everything_learned_and_told_of_learning_is_finite(jitted):
    state, metrics = jitted.chunk(jitted.init(jax.random.key(1)), 6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(words((state.params, state.hyper))))
    told = {name: float(value) for name, value in metrics.items() if name.startswith("trainer/")}
    assert {name: value for name, value in told.items() if not np.isfinite(value)} == {}


def test_chunks_of_any_length_give_the_same_bits_and_the_sum_of_their_metrics(jitted):
    one, total = jitted.chunk(jitted.init(jax.random.key(0)), 6)
    parts, expected = jitted.init(jax.random.key(0)), None
    for length in (1, 3, 2):
        parts, metrics = jitted.chunk(parts, length)
        expected = trees.accumulate_metrics(expected or trees.empty_metrics(metrics), metrics)
    assert_equal(one, parts)
    for name, value in expected.items():
        np.testing.assert_allclose(total[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["ppo", "ppo_truncating", "spo_truncating"])
def test_one_compilation_no_transfer_inside_and_donation(name):
    _, learner, init, _ = compiled(name)
    chunk_function, num_traces = loop.chunk_function(learner, 1), 0

    def counted(state, length):
        nonlocal num_traces
        num_traces += 1
        return chunk_function(state, length)

    chunk = jax.jit(counted, donate_argnums=0)
    first = init(jax.random.key(0))
    lengths = [jnp.int32(n) for n in (1, 2, 1)]
    state, _ = chunk(first, lengths[0])
    with jax.transfer_guard("disallow"):
        for length in lengths[1:]:
            state, metrics = chunk(state, length)
    jax.block_until_ready(metrics)
    assert num_traces == 1
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(jax.tree.leaves(first.params)[0])


@pytest.mark.parametrize("name", ["ppo", "ppo_truncating"])  # SPO's are lanes of tests/algorithms/test_spo.py
def test_seeds_side_by_side_equal_separate_runs(name):
    _, learner, init, chunk = compiled(name)
    together = jax.jit(jax.vmap(learner.init))(jax.vmap(jax.random.key)(jnp.arange(3)))
    together, metrics = jax.jit(loop.chunk_function(learner, 3))(together, 2)
    for seed in range(3):
        alone, own = chunk(init(jax.random.key(seed)), 2)
        # Batched matrix products round differently, so the last bits differ; one other action would differ far more.
        jax.tree.map(
            lambda a, b, seed=seed: np.testing.assert_allclose(a[seed], b, rtol=1e-3, atol=1e-4),
            words(together.params),
            words(alone.params),
        )
        np.testing.assert_allclose(metrics["actor/episodes_count"][seed], own["actor/episodes_count"])


def act_with(policy, state, is_deterministic, seed):
    return policy(
        state.params, state.rollout.env_state, state.rollout.observation, jax.random.key(seed), is_deterministic
    )


def assert_legal(action, mask):
    assert action.shape == mask.shape[:-1]
    assert bool(jnp.take_along_axis(mask, action[..., None], axis=-1).all())


def test_the_policy_acts_in_batches_and_follows_its_flag(jitted):
    """Deterministic means that no noise is wanted: the same key gives the same actions, and where nothing is drawn any
    key does. The actions are legal in either case."""
    state = jitted.init(jax.random.key(0))
    act = jax.jit(jitted.learner.policy, static_argnums=4)
    keys = (0, 0) if ENTRIES[jitted.name].draws_when_deterministic else (0, 1)
    greedy = [act_with(act, state, True, seed) for seed in keys]
    np.testing.assert_array_equal(*greedy)
    assert greedy[0].shape[0] == SMALL["num_envs"]
    assert_legal(greedy[0], state.rollout.observation.action_mask)


def test_the_network_alone_is_a_policy_that_draws_nothing_unless_asked(jitted):
    state, policy = jitted.init(jax.random.key(0)), jitted.learner.network_policy
    assert (policy is jitted.learner.policy) == (ENTRIES[jitted.name].algorithm == "ppo")
    act = jax.jit(policy, static_argnums=4)
    greedy = [act_with(act, state, True, seed) for seed in range(2)]
    np.testing.assert_array_equal(*greedy)
    assert_legal(greedy[0], state.rollout.observation.action_mask)
    sampled = [act_with(act, state, False, seed) for seed in range(8)]
    for action in sampled:
        assert_legal(action, state.rollout.observation.action_mask)
    has_choice = bool((state.rollout.observation.action_mask.sum(-1) > 1).any())
    assert len({action.tobytes() for action in map(np.asarray, sampled)}) > 1 or not has_choice
