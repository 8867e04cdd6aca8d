"""Policies that search: where from, what is deterministic of them, and plans that keep what they promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from support.asserts import assert_same_bits, key_data
from support.walks import guarded, indifferent_network

import stoix_like as sl
from stoix_like.algorithms import searching
from stoix_like.envs.probes import make_action_reward
from stoix_like.errors import ConfigError
from stoix_like.ops import distributions
from stoix_like.search import smc
from stoix_like.search.model import Root, SearchConfig
from stoix_like.types import Network

NUM_LEVELS, MOST_ITEMS = 48, 6
KNAPSACK = {"num_items": MOST_ITEMS, "total_budget": 1.5}
SEARCH = SearchConfig(num_particles=4, search_depth="full", max_depth=MOST_ITEMS, gamma=1.0, resampling="none")


def linear_network(num_actions):
    """Logits and a value that depend on every number that is seen."""

    def both(params, observation):
        seen = [x.reshape(len(x), -1).astype(jnp.float32) for x in jax.tree.leaves(observation)]
        seen = jnp.concatenate(seen, axis=1)
        out = seen @ jax.random.normal(jax.random.key(0), (seen.shape[1], num_actions + 1))
        return distributions.masked_logits(out[:, 1:], observation.action_mask), out[:, 0]

    return Network(lambda *_: None, lambda *x: both(*x)[0], lambda *x: both(*x)[1], both)


def calls_python(function, *arguments):
    """Whether the program does: all but a pure callback are effects."""
    program = jax.make_jaxpr(function)(*arguments)
    return bool(program.effects) or "callback" in str(program)


def test_a_search_of_a_real_environment_leaves_its_root_alone_and_never_calls_python():
    env = sl.make_env("Maze-v0", kwargs={"num_rows": 5, "num_cols": 5, "time_limit": 6})
    config = SEARCH._replace(resampling="period", resampling_period=2, record_paths=True, dirichlet_fraction=0.25)
    model = searching.search_model(env, linear_network(env.action_spec.num_values))

    def search(root):
        return smc.search(model, None, jax.random.key(1), root, 0.1, config)

    state, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(2), 4))
    root = Root(state, timestep.observation)
    before = key_data(jax.tree.map(jnp.copy, root))
    assert not calls_python(search, root)
    assert np.ptp(jax.jit(search)(root).sampled_advantages) > 0.0
    assert_same_bits(root, before)


CALLS = {
    "print": lambda x: jax.debug.print("{}", x),
    "debug": lambda x: jax.debug.callback(print, x),
    "io": lambda x: io_callback(np.sin, x, x),
    "pure": lambda x: jax.pure_callback(np.sin, x, x),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_way_to_call_python_is_seen(call):
    def loop(x):
        return jax.lax.fori_loop(0, 2, lambda _, x: jax.lax.cond(x > 0, lambda x: (call(x), x)[1], jnp.sin, x), x)

    assert calls_python(loop, 1.0)
    assert not calls_python(jnp.sin, 1.0)


def planned():
    """Episodes of small knapsacks with an incumbent plan, and a search too hot to follow what it finds.

    Returns [N], and per step and level [T, N] the best return that a path of that step's search promised and whether
    the plan overruled the search. An illegal step would make a NaN.
    """
    env = guarded(sl.make_env("Knapsack-v1", kwargs=KNAPSACK))
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


#: (what is said, whether steps are deterministic, whether particles get new keys).
REKEYS = [("auto", True, False), ("auto", False, True), (True, True, True), (False, False, False)]


def test_plans_noise_and_new_keys_are_where_steps_are_deterministic_random_or_said_so():
    env = make_action_reward()._replace(deterministic=False, task_id="dice")
    with pytest.raises(ConfigError) as caught:
        searching.planning_policy(env, None, SEARCH, lambda p: p, lambda _p: 1.0)
    assert (
        caught.value.what == "search: dice is stochastic, and a plan can only be followed where steps are deterministic"
    )
    for rekey, is_deterministic, rekeys in REKEYS:
        model = searching.search_model(env._replace(deterministic=is_deterministic), indifferent_network(), rekey=rekey)
        assert (model.rekey is not None) == rekeys, (rekey, is_deterministic)
    noisy = SEARCH._replace(root="gumbel_topk", dirichlet_fraction=0.25)
    assert searching.deterministic(noisy) == noisy._replace(root="topk", dirichlet_fraction=0.0)
    independent = noisy._replace(root="iid")
    assert searching.deterministic(independent) == independent._replace(dirichlet_fraction=0.0)


@pytest.mark.parametrize(("root", "is_deterministic"), [("iid", True), ("gumbel_topk", False)])
def test_decisions_are_those_of_the_search_without_noise(root, is_deterministic):
    env = make_action_reward()
    model = searching.search_model(env, indifferent_network())
    state, timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 64))
    without = SearchConfig(num_particles=3, search_depth=1, root=root)
    noisy = without._replace(dirichlet_fraction=0.9, dirichlet_alpha=0.1)
    decide = jax.jit(searching.decide, static_argnums=(0, 1, 6))
    asked = None, 1.0, jax.random.key(1), Root(state, timestep.observation), is_deterministic
    found, expected = (decide(model, config, *asked) for config in (noisy, without))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


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
