"""Policies that search: what is deterministic of them, and plans that keep what they promise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from walks import guarded, indifferent_network

import stoix_like as sl
from stoix_like.algorithms import searching
from stoix_like.envs.probes import make_action_reward
from stoix_like.errors import ConfigError
from stoix_like.search import smc
from stoix_like.search.model import SearchConfig

NUM_LEVELS, MOST_ITEMS = 48, 6
SIZES = {"max_num_items": MOST_ITEMS, "max_num_ems": 12, "obs_num_ems": 12}
SEARCH = SearchConfig(num_particles=4, search_depth="full", max_depth=MOST_ITEMS, gamma=1.0, resampling="none")


@functools.cache
def planned():
    """Episodes of small BinPack levels with an incumbent plan, and a search too hot to follow what it finds.

    Returns [N], and per step and level [T, N] the best return that a path of that step's search promised and whether
    the plan overruled the search. An illegal step would make a NaN.
    """
    env = guarded(sl.make_env("BinPack-v2", kwargs=SIZES))
    model = searching.search_model(env, indifferent_network())
    policy = searching.planning_policy(env, model, SEARCH, lambda p: p, lambda _p: 10.0)
    outputs, right = [], smc.search

    def search(*arguments):
        outputs.append(right(*arguments))
        return outputs[-1]

    def step(carry, key):
        state, timestep, done, plan, earned = carry
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(smc, "search", search)
            action, plan = policy.act(None, plan, state, timestep.observation, key, False)
        output = outputs.pop()
        found = jnp.where(output.paths.is_finished, output.paths.rewards.sum(-1), -jnp.inf).max(-1)
        new_state, new_timestep = jax.vmap(env.step)(state, action)
        reward = jnp.where(done, 0.0, new_timestep.reward)
        told = (jnp.where(done, -jnp.inf, earned + found), ~done & (action != output.action))
        return (new_state, new_timestep, done | new_timestep.last(), plan, earned + reward), told

    def play(key):
        level_key, play_key = jax.random.split(key)
        state, timestep = jax.vmap(env.reset)(jax.random.split(level_key, NUM_LEVELS))
        nothing = jnp.zeros(NUM_LEVELS)
        start = (state, timestep, nothing.astype(bool), policy.init(NUM_LEVELS), nothing)
        return jax.lax.scan(step, start, jax.random.split(play_key, MOST_ITEMS))

    (_, _, done, _, earned), told = jax.jit(play)(jax.random.key(0))
    assert bool(done.all())
    return np.asarray(earned), *map(np.asarray, told)


def test_an_episode_returns_at_least_what_its_best_path_promised():
    earned, promised, overruled = planned()
    assert np.isfinite(earned).all()
    assert (earned >= promised.max(axis=0) - 1e-5).all()
    assert (earned > promised[0] + 1e-3).any()  # a later search may find a better path
    assert overruled.sum() > NUM_LEVELS  # and without the plan other actions had been taken
    np.testing.assert_allclose(earned, promised.max(axis=0), atol=1e-5)  # nothing is won but what was promised


def test_a_plan_is_refused_where_steps_are_random():
    env = make_action_reward()._replace(deterministic=False, task_id="dice")
    with pytest.raises(ConfigError) as caught:
        searching.planning_policy(env, None, SEARCH, lambda p: p, lambda _p: 1.0)
    assert (
        caught.value.what == "search: dice is stochastic, and a plan can only be followed where steps are deterministic"
    )


def test_deterministic_searches_take_no_noise_and_the_most_probable_roots():
    noisy = SEARCH._replace(root="gumbel_topk", dirichlet_fraction=0.25)
    assert searching.deterministic(noisy) == noisy._replace(root="topk", dirichlet_fraction=0.0)
    independent = noisy._replace(root="iid")
    assert searching.deterministic(independent) == independent._replace(dirichlet_fraction=0.0)


@pytest.mark.parametrize(
    ("rekey", "is_deterministic", "rekeys"),
    [("auto", True, False), ("auto", False, True), (True, True, True), (False, False, False)],
)
def test_particles_get_new_keys_where_steps_are_random_or_where_it_is_said(rekey, is_deterministic, rekeys):
    env = make_action_reward()._replace(deterministic=is_deterministic)
    model = searching.search_model(env, indifferent_network(), rekey=rekey)
    assert (model.rekey is not None) == rekeys


def test_a_sampled_policy_draws_by_the_weights_and_a_deterministic_one_takes_the_most():
    """One step, two actions worth -1 and 1, every search with both: the weights are known."""
    env = make_action_reward()
    config = SearchConfig(num_particles=2, search_depth=1, root="gumbel_topk", gamma=1.0)
    model = searching.search_model(env, indifferent_network())
    policy = searching.search_policy(model, config, lambda p: p, lambda temperature: temperature)
    state, timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4000))
    act = jax.jit(policy, static_argnums=4)
    temperature = jnp.float32(4.0)  # probabilities 1 / (1 + e^-0.5) = 0.6225
    sampled = act(temperature, state, timestep.observation, jax.random.key(1), False)
    assert float(sampled.mean()) == pytest.approx(0.6225, abs=0.03)  # four standard errors
    greedy = act(temperature, state, timestep.observation, jax.random.key(1), True)
    assert bool((greedy == 1).all())
