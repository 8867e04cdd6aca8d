"""Randomness within an episode: a search gets dice of its own, or is refused. Without them it would know each throw."""

import functools
import itertools
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.walks import SIZES, indifferent_network

import stoix_like as sl
from stoix_like.algorithms import searching
from stoix_like.config.sections.runs import ppo_config, spo_config
from stoix_like.errors import ConfigError
from stoix_like.runtime.evaluators import policies
from stoix_like.search.model import Root, SearchConfig, SearchModel
from stoix_like.types import FIRST, LAST, MID

GUESSES = 8
SEARCH = SearchConfig(num_particles=8, search_depth=2, gamma=1.0, resampling="none")


class Coin(NamedTuple):
    key: Any
    steps: Any


def coin(**facts):
    """Eight guesses at a fair coin, 1 for each that is right. Two functions and a spec, unless `facts` say more."""

    def timestep(state, step_type, reward):
        view = {"steps": state.steps.astype(jnp.float32)[None]}
        discount = jnp.where(step_type == LAST, 0.0, 1.0)
        return sl.TimeStep(step_type, reward, discount, sl.Observation(view, jnp.ones(2, bool)), {})

    def reset(key):
        state = Coin(key, jnp.int32(0))
        return state, timestep(state, jnp.int8(FIRST), jnp.float32(0.0))

    def step(state, action):
        key, coin_key = jax.random.split(state.key)
        state = Coin(key, state.steps + 1)
        is_right = action == jax.random.bernoulli(coin_key).astype(jnp.int32)
        step_type = jnp.where(state.steps >= GUESSES, jnp.int8(LAST), jnp.int8(MID))
        return state, timestep(state, step_type, is_right.astype(jnp.float32))

    return sl.Environment(reset, step, sl.ActionSpec(2), task_id="coin", **facts)


def new_key(state, key):
    return state._replace(key=key)


def share_of_right_guesses(model):
    policy = searching.search_policy(model, SEARCH, lambda p: p, lambda _p: 0.1)
    play = functools.partial(sl.evaluate, coin(), policy, num_episodes=64, deterministic=True)
    return float(jax.jit(play)(None, jax.random.key(0)).episode_return.mean()) / GUESSES


def test_a_search_with_dice_of_its_own_guesses_no_better_than_chance():
    """512 fair guesses: their share has a deviation of 0.022, and five are allowed. With the dice that will be thrown
    the same search is nearly always right."""
    env = coin(rekey=new_key)
    assert share_of_right_guesses(searching.search_model(env, indifferent_network())) == pytest.approx(0.5, abs=0.11)
    foreseeing = searching.search_model(env, indifferent_network(), rekey=False)
    assert share_of_right_guesses(foreseeing) > 0.8


def test_dice_that_cannot_be_replaced_are_not_searched_unless_a_model_says_it_is_deterministic():
    for env, rekey in itertools.product((coin(), sl.with_time_limit(coin(), 3)), ("auto", True, False)):
        with pytest.raises(ConfigError, match="coin has no rekey and is not declared deterministic") as caught:
            searching.search_model(env, indifferent_network(), rekey=rekey)
        assert "rekey=lambda state, key: ..." in caught.value.hint
    config = spo_config(**SIZES)
    with pytest.raises(ConfigError, match="coin has no rekey"):
        sl.spo.make(coin(), sl.make_network(coin(), config), config)
    with pytest.raises(ConfigError, match="coin is stochastic"):
        searching.planning_policy(coin(), None, SEARCH, lambda p: p, lambda _p: 0.1)
    meta = SimpleNamespace(algorithm="ppo")
    saved = SimpleNamespace(env=coin(), network=indifferent_network(), config=ppo_config(), meta=meta)
    with pytest.raises(ConfigError, match="coin has no rekey"):
        policies.search_model(saved)  # evaluate.py --search, compare_search.py
    env, network = coin(), indifferent_network()
    state, timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 2))
    root = Root(state, timestep.observation)
    model = SearchModel(jax.vmap(env.step), network.actor, network.critic)
    with pytest.raises(ConfigError, match="a SearchModel without rekey is searched with the randomness that will"):
        sl.smc.search(model, None, jax.random.key(1), root, 0.1, SEARCH)
    for said in (model._replace(deterministic=True), model._replace(rekey=jax.vmap(new_key))):
        search = lambda said=said: sl.smc.search(said, None, jax.random.key(1), root, 0.1, SEARCH)
        assert jax.eval_shape(search).action.shape == (2,)


def test_two_functions_are_enough_for_ppo_and_what_a_search_sees_beyond_is_said():
    env = coin()
    config = sl.ppo_config(num_envs=8, rollout_length=16, num_minibatches=2, hidden_dim=8, num_updates=4)
    learner = sl.ppo.make(env, sl.make_network(env, config), config)
    state, metrics = jax.jit(learner.update)(jax.jit(learner.init)(jax.random.key(0)))
    assert (float(metrics["actor/episodes_count"]), float(metrics["actor/levels_reused_sum"])) == (16.0, 0.0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    assert searching.hidden_note(coin()) is None
    note = searching.hidden_note(coin(hidden_state="how the coin will fall"))
    assert note.startswith("a search steps the state of coin, which holds how the coin will fall: its scores are not")
