"""No action that is proposed, stored, played or taken inside a search is illegal where it is taken.

The environment is wrapped so that an illegal step pays NaN, which reaches everything that it could have counted in. In
the fast tests small walks stand for BinPack (test_spo.py), whose searches take 100,000 steps in `make test-full`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import assert_legal
from support.walks import SIZES, guarded, indifferent_network, walk

import stoix_like as sl
from stoix_like.algorithms import searching, spo
from stoix_like.config.sections.runs import spo_config
from stoix_like.envs.auto_reset import auto_reset_for
from stoix_like.search import particles

NUM_ENVS, LENGTH = 32, 10
REPLAY = {"replay_buffer_size": NUM_ENVS * LENGTH, "sample_sequence_length": 8, "batch_size": 8}
NOISE = {"root_exploration_dirichlet_fraction": 0.25, "root_exploration_dirichlet_alpha": 0.03}
SEARCH = {"num_particles": 16, "search_depth": 4, "resampling_period": 2, "init_temperature": 0.01} | NOISE
SEARCH |= {"num_envs": NUM_ENVS, "rollout_length": LENGTH} | REPLAY
#: The rest of the tests compiles without optimising; the steps of the registered task take eight times as long then.
OPTIMISED = {"xla_backend_optimization_level": 1}


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


@pytest.mark.full
@pytest.mark.parametrize("root", ["iid", "gumbel_topk"])
def test_no_action_of_training_is_illegal(root):
    env = guarded(sl.make_env("BinPack-v2"))
    init, rollout = make_rollout(env, spo_config(**SEARCH | {"root": root}))
    state = jax.jit(init)(jax.random.key(0))
    play = jax.jit(rollout).lower(state).compile(compiler_options=OPTIMISED)
    model_steps = num_ended = 0
    for _ in range(6):
        state, rows = play(state)
        assert is_finite(rows)
        targets, diagnostics = rows.record
        for stored in (targets.root_actions, targets.initial_root_actions):
            assert stored.dtype == jnp.uint16  # of 800 actions
            assert_legal(stored, rows.observation.action_mask)
        assert_legal(rows.action, rows.observation.action_mask)
        model_steps += int(diagnostics.model_steps.sum())
        num_ended += int(rows.is_last.sum())
    assert model_steps >= 100_000
    assert num_ended >= 2 * NUM_ENVS  # full boxes, where little is legal, among them


@pytest.mark.full
def test_the_guard_sees_particles_that_act_for_another_state(monkeypatch):
    """A resampling that leaves the next action's logits behind, as in Stoix (docs/spo-training-loop.md)."""
    right = particles.gather_particles
    monkeypatch.setattr(
        particles, "gather_particles", lambda p, ancestors: right(p, ancestors)._replace(logits=p.logits)
    )
    init, rollout = make_rollout(walk(), spo_config(**SIZES | {"resampling_period": 1, "init_temperature": 0.1}))
    _, rows = jax.jit(lambda key: rollout(init(key)))(jax.random.key(0))
    assert not is_finite(rows)
