"""No action that is proposed, stored, played or taken inside a search is illegal where it is taken: 100,000 steps.

The environment is wrapped so that an illegal step pays NaN, which reaches everything that it could have counted in.
"""

import jax
import jax.numpy as jnp
import numpy as np
from walks import SIZES, guarded, indifferent_network, walk

import stoix_like as sl
from stoix_like.algorithms import searching, spo
from stoix_like.algorithms.rollout import collect
from stoix_like.config import spo_config
from stoix_like.envs.auto_reset import auto_reset_for
from stoix_like.search import particles
from stoix_like.search.model import Root

NUM_ENVS, LENGTH, ROUNDS = 32, 10, 6
SEARCH = {
    "num_particles": 16,
    "search_depth": 4,
    "resampling_period": 2,
    "root_exploration_dirichlet_fraction": 0.25,
    "root_exploration_dirichlet_alpha": 0.03,
    "init_temperature": 0.01,
    "sample_sequence_length": 8,
    "batch_size": 8,
}
#: The rest of the tests compiles without optimising; these steps take eight times as long then.
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


def test_no_illegal_action_in_100_000_steps_of_binpack():
    env = guarded(sl.make_env("BinPack-v2"))
    sizes = {"num_envs": NUM_ENVS, "rollout_length": LENGTH, "replay_buffer_size": NUM_ENVS * LENGTH}
    init, rollout = make_rollout(env, spo_config(**SEARCH | sizes))
    state = jax.jit(init)(jax.random.key(0))
    play = jax.jit(rollout).lower(state).compile(compiler_options=OPTIMISED)
    model_steps = num_ended = 0
    for _ in range(ROUNDS):
        state, rows = play(state)
        assert is_finite(rows)
        targets, diagnostics = rows.record
        mask = np.asarray(rows.observation.action_mask)
        for stored in (targets.root_actions, targets.initial_root_actions):
            assert stored.dtype == jnp.uint16  # 800 actions
            assert np.take_along_axis(mask, np.asarray(stored, int), axis=-1).all()
        assert np.take_along_axis(mask, np.asarray(rows.action)[..., None], axis=-1).all()
        model_steps += int(diagnostics.model_steps.sum())
        num_ended += int(rows.is_last.sum())
    assert model_steps >= 100_000
    assert num_ended >= 2 * NUM_ENVS  # full boxes, where little is legal, among them


def test_no_illegal_action_in_100_000_steps_of_evaluation():
    """Deterministic, with the most probable first actions followed greedily to the end: what `evaluate.py` plays."""
    env = guarded(sl.make_env("BinPack-v2"))
    sizes = {"num_envs": NUM_ENVS, "rollout_length": LENGTH, "replay_buffer_size": NUM_ENVS * LENGTH}
    whole = {"search_depth": "full", "root": "gumbel_topk", "continuation": "greedy", "resampling": "none"}
    config = spo_config(**SEARCH | sizes | whole)
    network, auto_reset = indifferent_network(), auto_reset_for(env, NUM_ENVS, LENGTH)
    settings, model = spo.settings_of(env, config), searching.search_model(env, network)

    def rollout(state, key):
        def act(env_state, observation, key):
            asked = model, settings.search, state.params.online, 0.001, key, Root(env_state, observation), True
            action, output = searching.decide(*asked)
            return action, output._replace(diagnostics=output.diagnostics.model_steps)

        playing, rows, _ = collect(auto_reset, act, state.rollout, *jax.random.split(key), LENGTH)
        return state._replace(rollout=playing), rows

    state = jax.jit(spo.make(env, network, config).init)(jax.random.key(0))
    play = jax.jit(rollout).lower(state, jax.random.key(1)).compile(compiler_options=OPTIMISED)
    model_steps = 0
    for number in range(ROUNDS):
        state, rows = play(state, jax.random.key(number))
        assert all(
            np.isfinite(x).all() for x in (rows.reward, rows.record.root_weights, rows.record.sampled_advantages)
        )
        mask = np.asarray(rows.observation.action_mask)
        for actions in (rows.record.root_actions, rows.action[..., None]):
            assert np.take_along_axis(mask, np.asarray(actions, int), axis=-1).all()
        model_steps += int(rows.record.diagnostics.sum())
    assert model_steps >= 100_000


def test_the_guard_sees_particles_that_act_for_another_state(monkeypatch):
    """A resampling that leaves the next action's logits behind, as in Stoix (docs/spo-training-loop.md)."""
    right = particles.gather_particles
    monkeypatch.setattr(
        particles, "gather_particles", lambda p, ancestors: right(p, ancestors)._replace(logits=p.logits)
    )
    init, rollout = make_rollout(walk(), spo_config(**SIZES | {"resampling_period": 1, "init_temperature": 0.1}))
    _, rows = jax.jit(lambda key: rollout(init(key)))(jax.random.key(0))
    assert not is_finite(rows)
