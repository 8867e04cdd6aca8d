"""What SPO's tests play and learn on: environments that pay NaN for every illegal step, and the simplest networks."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import stoix_like as sl
from stoix_like.algorithms import searching, spo
from stoix_like.config.sections.runs import spo_config
from stoix_like.envs.auto_reset import auto_reset_for
from stoix_like.ops import distributions
from stoix_like.types import FIRST, LAST, MID, ActionSpec, Environment, Network, NetworkParams, Observation, TimeStep

#: Legal steps (back 1, on 1, on 2) by position: no two positions allow the same, and position 4 leaves no choice.
LEGAL = jnp.array(
    [[False, True, True], [True, True, False], [True, False, True], [True, True, True], [False, True, False]]
)
STRIDES = jnp.array([-1, 1, 2])
GOAL = 5
LONGEST = 10  # steps
SIZES = {"num_envs": 8, "rollout_length": 4, "epochs": 2, "num_minibatches": 2, "hidden_dim": 16, "num_layers": 1}
SIZES |= {"num_particles": 6, "search_depth": 3, "num_updates": 50, "gamma": 0.9, "decay_learning_rates": False}
SIZES |= {"replay_buffer_size": 8 * 10, "sample_sequence_length": 6, "batch_size": 8}


class WalkState(NamedTuple):
    position: Any
    level: Any  # in [0, 1): what the goal is worth
    steps: Any
    over: Any
    key: Any


def walk():
    """From position 1 to the goal. A reward tells level and action; illegal steps, and steps after the end, pay NaN."""

    def observe(state):
        features = jnp.stack([state.position.astype(jnp.float32), state.level, state.steps.astype(jnp.float32)])
        return Observation({"features": features}, LEGAL[jnp.minimum(state.position, GOAL - 1)])

    def timestep(state, reward):
        step_type = jnp.where(state.over, jnp.int8(LAST), jnp.where(state.steps == 0, jnp.int8(FIRST), jnp.int8(MID)))
        return TimeStep(step_type, reward, 1.0 - state.over.astype(jnp.float32), observe(state), {})

    def reset(key):
        level_key, state_key = jax.random.split(key)
        level = jax.random.uniform(level_key)
        state = WalkState(jnp.int32(1), level, jnp.int32(0), jnp.bool_(False), state_key)
        return state, timestep(state, jnp.float32(0.0))

    def step(state, action):
        is_legal = LEGAL[jnp.minimum(state.position, GOAL - 1), action] & ~state.over
        position = jnp.clip(state.position + STRIDES[action], 0, GOAL)
        steps = state.steps + 1
        over = (position == GOAL) | (steps >= LONGEST)
        reward = jnp.where(position == GOAL, 1.0 + state.level, 0.1 * state.level * action - 0.02)
        state = state._replace(position=position, steps=steps, over=over)
        return state, timestep(state, jnp.where(is_legal, reward, jnp.nan))

    return Environment(
        reset,
        step,
        ActionSpec(3),
        task_id="walk",
        deterministic=True,
        rekey=lambda state, key: state._replace(key=key),
        time_limit=LONGEST,
    )


class Played(NamedTuple):
    """A learner of the walk with its parts, and its programs, each compiled when first called."""

    env: Environment
    config: Any
    network: Network
    learner: Any
    settings: Any
    buffer: Any
    init: Any
    update: Any
    collect: Any  # state -> (playing, transitions, metrics)


@functools.cache
def played(limit=None, **leaves):
    """The walk, truncated after `limit` steps if given."""
    env = walk() if limit is None else sl.with_time_limit(walk(), limit)
    config = spo_config(**SIZES | leaves)
    network = sl.make_network(env, config)
    learner = spo.make(env, network, config)
    settings = spo.settings_of(env, config)
    auto_reset = auto_reset_for(env, config.environment.num_envs, config.training_core.rollout_length)

    def collect(state):
        model = searching.search_model(env, network, reward_scale=state.hyper.reward_scale)
        return spo.collect(auto_reset, model, settings, env.action_spec.num_values, state)

    buffer = spo.make_buffer(env, config)
    programs = jax.jit(learner.init), jax.jit(learner.update), jax.jit(collect)
    return Played(env, config, network, learner, settings, buffer, *programs)


#: Noise, a prior ratio, resampling by sample size, rates that fall: every number of the state is read.
EVERYTHING = {"resampling": "ess", "resampling_ess_threshold": 0.6, "search_gamma": 0.95, "search_gae_lambda": 0.9}
EVERYTHING |= {"root_exploration_dirichlet_fraction": 0.25, "root_noise_correction": True}
EVERYTHING |= {"decay_learning_rates": True, "ent_coef": 0.01, "epsilon": 0.3, "init_temperature": 0.3}


@functools.cache
def walked():
    """A walk of three steps at most, which ends or is truncated, and a search with everything: (parts, first state)."""
    walk = played(limit=3, **EVERYTHING)
    return walk, walk.init(jax.random.key(0))


def with_numbers(state, **numbers):
    return state._replace(hyper=state.hyper._replace(**{n: jnp.float32(v) for n, v in numbers.items()}))


def network_of(first, actor, critic):
    """The network of two functions that begins with those parameters."""
    return Network(lambda _key, _observation: first, actor, critic, lambda p, o: (actor(p, o), critic(p, o)))


def table_network():
    """A network that looks up `agent_view["place"]` in its parameters: every logit and value is one of them."""

    def actor(params, observation):
        return distributions.masked_logits(params.actor[observation.agent_view["place"]], observation.action_mask)

    def critic(params, observation):
        return params.critic[observation.agent_view["place"]]

    return network_of(NetworkParams(None, 0.0, 0.0), actor, critic)


def look_at(places, num_actions=3):
    """Observations of these places, everything legal."""
    places = jnp.asarray(places, jnp.int32)
    return Observation({"place": places}, jnp.ones((*places.shape, num_actions), bool))


class Guarded(NamedTuple):
    inner: Any
    mask: Any


def guarded(env):
    """The environment with a reward of NaN for every illegal action."""

    def reset(key):
        inner, timestep = env.reset(key)
        return Guarded(inner, timestep.observation.action_mask), timestep

    def step(state, action):
        inner, timestep = env.step(state.inner, action)
        reward = jnp.where(state.mask[action], timestep.reward, jnp.nan)
        return Guarded(inner, timestep.observation.action_mask), timestep._replace(reward=reward)

    return env._replace(
        reset=reset,
        step=step,
        episode_metrics=lambda state, timestep: env.episode_metrics(state.inner, timestep),
        rekey=lambda state, key: state._replace(inner=env.rekey(state.inner, key)),
    )


def indifferent_network():
    """Every legal action is as good as any other: the widest choice a mask leaves."""

    def actor(params, observation):
        return distributions.masked_logits(jnp.zeros(observation.action_mask.shape), observation.action_mask)

    def critic(params, observation):
        return jnp.zeros(observation.action_mask.shape[0])

    return network_of(NetworkParams(None, jnp.zeros(1), jnp.zeros(1)), actor, critic)
