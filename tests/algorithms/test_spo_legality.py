"""No action that is proposed, stored, played or taken inside a search is illegal where it is taken.

The environment is wrapped so that an illegal step pays NaN, which reaches everything that it could have counted in.
Small levels of BinPack stand for the registered ones, whose searches take 100,000 steps in `make test-full`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import assert_legal
from support.marks import full
from support.walks import SIZES, guarded, indifferent_network, walk

import stoix_like as sl
from stoix_like.algorithms import searching, spo
from stoix_like.algorithms.rollout import collect
from stoix_like.config.sections.runs import spo_config
from stoix_like.envs.auto_reset import auto_reset_for
from stoix_like.search import particles
from stoix_like.search.model import Root

NUM_ENVS, LENGTH = 32, 10
REPLAY = {"replay_buffer_size": NUM_ENVS * LENGTH, "sample_sequence_length": 8, "batch_size": 8}
NOISE = {"root_exploration_dirichlet_fraction": 0.25, "root_exploration_dirichlet_alpha": 0.03}
SEARCH = {"num_particles": 16, "search_depth": 4, "resampling_period": 2, "init_temperature": 0.01} | NOISE
SEARCH |= {"num_envs": NUM_ENVS, "rollout_length": LENGTH} | REPLAY
#: The rest of the tests compiles without optimising; the steps of the registered task take eight times as long then.
OPTIMISED = {"xla_backend_optimization_level": 1}
SMALL = {"max_num_items": 8, "max_num_ems": 12, "obs_num_ems": 12}


class Size(NamedTuple):
    kwargs: dict
    num_rollouts: int  # of a learner; an evaluation, whose searches step more often, plays half as many
    least_steps: int  # that searches take
    options: dict  # of the compiler


SMALL_LEVELS = Size(SMALL, 2, 20_000, {})
REGISTERED = Size({}, 6, 100_000, OPTIMISED)


def make_rollout(env, config):
    """(init, state -> (state, transitions)) of a learner that plays and never learns."""
    network, num_envs, length = indifferent_network(), config.environment.num_envs, config.training_core.rollout_length
    settings, auto_reset = spo.settings_of(env, config), auto_reset_for(env, num_envs, length)
    model = searching.search_model(env, network)

    def rollout(state):
        playing, transitions, _ = spo.collect(auto_reset, model, settings, env.action_spec.num_values, state)
        return state._replace(rollout=playing, step=state.step + 1), transitions

    return spo.make(env, network, config).init, rollout


def is_finite(transitions):
    """Whether every number is finite that an illegal step would have made NaN, at any depth of any search."""
    targets, diagnostics = transitions.record
    numbers = (transitions.reward, targets.root_weights, targets.advantages, diagnostics.effective_sample_size)
    return all(np.isfinite(x).all() for x in numbers)


@functools.cache
def fresh_boxes(is_registered):
    """(size, BinPack, a learner's state before it plays, from which all the searches below may begin)."""
    size = REGISTERED if is_registered else SMALL_LEVELS
    env = guarded(sl.make_env("BinPack-v2", kwargs=size.kwargs))
    init, _ = make_rollout(env, spo_config(**SEARCH))
    return size, env, jax.jit(init)(jax.random.key(0))


@pytest.mark.parametrize(
    ("root", "is_registered"), [("gumbel_topk", False), full("iid", True), full("gumbel_topk", True)]
)
def test_no_action_of_training_is_illegal(root, is_registered):
    size, env, state = fresh_boxes(is_registered)
    _, rollout = make_rollout(env, spo_config(**SEARCH | {"root": root}))
    play = jax.jit(rollout).lower(state).compile(compiler_options=size.options)
    model_steps = num_ended = 0
    for _ in range(size.num_rollouts):
        state, rows = play(state)
        assert is_finite(rows)
        targets, diagnostics = rows.record
        for stored in (targets.root_actions, targets.initial_root_actions):
            assert stored.dtype == (jnp.uint16 if is_registered else jnp.uint8)  # of 800 or 96 actions
            assert_legal(stored, rows.observation.action_mask)
        assert_legal(rows.action, rows.observation.action_mask)
        model_steps += int(diagnostics.model_steps.sum())
        num_ended += int(rows.is_last.sum())
    assert model_steps >= size.least_steps
    assert num_ended >= 2 * NUM_ENVS  # full boxes, where little is legal, among them


@pytest.mark.full  # plans of searches are played with the same guard in tests/algorithms/test_searching.py
@pytest.mark.parametrize("is_registered", [False, True])
def test_no_action_of_evaluation_is_illegal(is_registered):
    """To the end, greedily: as `evaluate.py` plays, and sampled. Both search everywhere, and play half of the boxes."""
    size, env, state = fresh_boxes(is_registered)
    whole = {"search_depth": "full", "root": "gumbel_topk", "continuation": "greedy", "resampling": "none"}
    settings = spo.settings_of(env, spo_config(**SEARCH | whole))
    auto_reset, model = auto_reset_for(env, NUM_ENVS, LENGTH), searching.search_model(env, indifferent_network())

    def decide(env_state, observation, key, is_deterministic):
        asked = model, settings.search, state.params.online, 0.001, key, Root(env_state, observation), is_deterministic
        action, output = searching.decide(*asked)
        return action, output._replace(diagnostics=output.diagnostics.model_steps)

    def act(env_state, observation, key):
        keys = jax.random.split(key)
        found = decide(env_state, observation, keys[0], True), decide(env_state, observation, keys[1], False)
        return jnp.where(jnp.arange(NUM_ENVS) % 2 == 0, found[0][0], found[1][0]), found

    def rollout(playing, key):
        return collect(auto_reset, act, playing, *jax.random.split(key), LENGTH)[:2]

    playing = state.rollout
    play = jax.jit(rollout).lower(playing, jax.random.key(1)).compile(compiler_options=size.options)
    model_steps = np.zeros(2, int)
    for number in range(size.num_rollouts // 2):
        playing, rows = play(playing, jax.random.key(number))
        assert np.isfinite(rows.reward).all()
        for mode, (action, found) in enumerate(rows.record):
            assert np.isfinite(found.root_weights).all()
            assert np.isfinite(found.sampled_advantages).all()
            assert_legal(found.root_actions, rows.observation.action_mask)
            assert_legal(action, rows.observation.action_mask)
            model_steps[mode] += int(found.diagnostics.sum())
    assert (model_steps >= size.least_steps).all()


def test_the_guard_sees_particles_that_act_for_another_state(monkeypatch):
    """A resampling that leaves the next action's logits behind, as in Stoix (docs/spo-training-loop.md)."""
    right = particles.gather_particles
    monkeypatch.setattr(
        particles, "gather_particles", lambda p, ancestors: right(p, ancestors)._replace(logits=p.logits)
    )
    init, rollout = make_rollout(walk(), spo_config(**SIZES | {"resampling_period": 1, "init_temperature": 0.1}))
    _, rows = jax.jit(lambda key: rollout(init(key)))(jax.random.key(0))
    assert not is_finite(rows)
