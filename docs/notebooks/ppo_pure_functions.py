# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # PPO as pure functions
#
# A learner is three functions: `init(key) -> state`, `update(state) -> (state, metrics)` and a policy. Nothing is
# hidden in an object, so everything JAX does to functions can be done to training: `jit`, `scan`, `vmap`. This
# notebook trains, evaluates, trains eight seeds at once, sweeps a learning rate without compiling again, and trains on
# an environment of its own.
#
# It is a Python file in jupytext's percent format. Run it as a script (`python docs/notebooks/ppo_pure_functions.py`),
# open it in an editor that knows the format, or make a notebook of it with
# `jupytext --to ipynb docs/notebooks/ppo_pure_functions.py`. With `STOIX_LIKE_FAST=1` the budgets shrink to what the
# tests run.

# %%
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp

import stoix_like as sl

FAST = os.environ.get("STOIX_LIKE_FAST") == "1"
NUM_UPDATES = 2 if FAST else 60
NUM_EPISODES = 32 if FAST else 512

# %% [markdown]
# ## One run
#
# An environment, a configuration, a network, a learner. Leaves of the configuration are given by name; everything not
# named keeps the default of [the configuration](../configuration.md). The task is Jumanji's Snake on a board of 6 by 6
# cells: 1 for each fruit, and the episode ends when the snake bites itself, leaves the board or fills it.

# %%
env = sl.make_env("Snake-v1", kwargs={"num_rows": 6, "num_cols": 6})
config = sl.ppo_config(
    task_id="Snake-v1",
    num_envs=16 if FAST else 32,
    rollout_length=8 if FAST else 32,
    num_updates=NUM_UPDATES,
    epochs=1 if FAST else 4,
    num_minibatches=2 if FAST else 8,
    hidden_dim=8 if FAST else 32,
    actor_lr=1e-3,
)
network = sl.make_network(env, config)
learner = sl.ppo.make(env, network, config)

state = jax.jit(learner.init)(jax.random.key(0))
print("state:", ", ".join(state._fields))
print("parameters:", sum(x.size for x in jax.tree.leaves(state.params)))

# %% [markdown]
# `update` is a function from a state to a state, so a whole run is a `scan` of it: one program, no Python inside.
# `metrics` comes back as a dictionary of arrays, one number per update.
#
# The Python body of a jitted function runs only while JAX traces it, so a counter in it counts compilations. It is
# read at the end of the sweep.

# %%
num_traces = 0


def train(state):
    """(the state after all updates, metrics [NUM_UPDATES])."""
    global num_traces  # noqa: PLW0603 - it counts how often JAX traces this function
    num_traces += 1
    return jax.lax.scan(lambda state, _: learner.update(state), state, length=NUM_UPDATES)


trained, metrics = jax.jit(train)(state)
for name in ("trainer/entropy", "trainer/explained_variance", "trainer/approx_kl"):
    print(f"{name:<28} first {metrics[name][0]:8.4f}   last {metrics[name][-1]:8.4f}")
assert int(trained.step) == NUM_UPDATES
assert num_traces == 1

# %% [markdown]
# ## Evaluation
#
# `sl.evaluate` plays whole episodes on fresh levels of the raw environment and returns one number per episode. The
# untrained policy is the baseline: its logits are almost equal, so it plays close to random legal actions.


# %%
def score(params):
    """The mean return of the sampled policy over NUM_EPISODES fresh episodes, the same ones for all parameters."""
    key = jax.random.key(1)
    results = sl.evaluate(env, learner.policy, params, key, num_episodes=NUM_EPISODES, deterministic=False)
    return results.episode_return.mean()


print(f"untrained {jax.jit(score)(state.params):.2f}")
print(f"trained   {jax.jit(score)(trained.params):.2f}")

# %% [markdown]
# ## Eight seeds
#
# `vmap` over keys gives eight independent runs in one program: parameters, optimisers, environments and level pools
# each have a leading axis of eight. Lane 0 is the run above, up to rounding: batched matrix products may add in another
# order, and training amplifies the last bit.

# %%
train_all = jax.jit(jax.vmap(train))
score_all = jax.jit(jax.vmap(score))

keys = jax.vmap(jax.random.key)(jnp.arange(8))
states = jax.jit(jax.vmap(learner.init))(keys)
trained_seeds, _ = train_all(states)
scores = score_all(trained_seeds.params)
print("per seed:", " ".join(f"{score:.2f}" for score in scores))
print(f"mean {scores.mean():.2f}, standard error {scores.std(ddof=1) / 8**0.5:.2f}")
assert scores.shape == (8,)

# %% [markdown]
# ## A sweep without recompiling
#
# Learning rates, clips and coefficients are arrays in `state.hyper`, not constants of the program. To change them is to
# change data: here is the state of the one run eight times, each with a rate of its own. The program that trained
# eight seeds trains the eight rates, twice, and nothing is compiled.

# %%
num_traces_before = num_traces


@jax.jit
def with_rates(rates):
    """The state of the one run above, once per actor rate: leaves [len(rates), ...]."""
    return jax.vmap(lambda rate: state._replace(hyper=state.hyper._replace(actor_lr=rate)))(rates)


for rates in (jnp.geomspace(1e-5, 1e-3, 8), jnp.geomspace(1e-3, 1e-1, 8)):
    swept, _ = train_all(with_rates(rates))
    for rate, result in zip(rates, score_all(swept.params), strict=True):
        print(f"actor_lr {rate:.1e}   mean return {result:6.2f}")
print("programs compiled for sixteen rates:", num_traces - num_traces_before)
assert num_traces == num_traces_before

# %% [markdown]
# ## An environment of your own
#
# Two functions and an `ActionSpec`. Here: a corridor of ten cells with the agent and a lamp somewhere in it. Every step
# costs 0.1, reaching the lamp pays 1. Walking into the end of the corridor is illegal, and the mask says so. The best
# possible return is 1 - 0.1 * distance.
#
# `discount` is what decides how an episode ends: 0 at the lamp, where nothing follows.

# %%
LENGTH = 10


class Corridor(NamedTuple):
    agent: jax.Array  # [] int32, the cell
    lamp: jax.Array  # [] int32, the cell


def show(state, step_type, reward, discount):
    view = {"cells": jax.nn.one_hot(state.agent, LENGTH) - jax.nn.one_hot(state.lamp, LENGTH)}  # [LENGTH]
    mask = jnp.array([state.agent > 0, state.agent < LENGTH - 1])  # left, right
    numbers = (jnp.int8(step_type), jnp.float32(reward), jnp.float32(discount))
    return sl.TimeStep(*numbers, sl.Observation(view, mask), extras={})


def reset(key):
    agent, lamp = jax.random.choice(key, LENGTH, (2,), replace=False).astype(jnp.int32)
    state = Corridor(agent, lamp)
    return state, show(state, step_type=0, reward=0.0, discount=1.0)


def step(state, action):
    state = state._replace(agent=state.agent + 2 * action - 1)
    found = state.agent == state.lamp
    return state, show(state, jnp.where(found, 2, 1), jnp.where(found, 0.9, -0.1), jnp.where(found, 0.0, 1.0))


# %% [markdown]
# An untrained policy may walk about for long, so a time limit is wise. `sl.with_time_limit` adds one as a truncation:
# the value of what lies beyond is bootstrapped, and the corridor keeps its meaning.

# %%
corridor = sl.with_time_limit(sl.Environment(reset, step, sl.ActionSpec(2), task_id="corridor"), 50)
corridor_config = sl.ppo_config(
    num_envs=32,
    rollout_length=32,
    num_updates=15 if FAST else 40,
    num_minibatches=8,
    hidden_dim=32,
    actor_lr=3e-3,
    critic_lr=3e-3,
)
walker = sl.ppo.make(corridor, sl.make_network(corridor, corridor_config), corridor_config)


@jax.jit
def train_walker(key):
    """The state after all updates, from a key: `init` and the `scan` in one program."""
    num_updates = corridor_config.training_core.num_updates
    return jax.lax.scan(lambda s, _: walker.update(s), walker.init(key), length=num_updates)[0]


walked = train_walker(jax.random.key(0))
results = sl.evaluate(corridor, walker.policy, walked.params, jax.random.key(1), num_episodes=256, deterministic=True)
level_keys = jax.random.split(jax.random.split(jax.random.key(1))[0], 256)  # how `evaluate` makes its levels
levels, _ = jax.vmap(reset)(level_keys)
best = 1.0 - 0.1 * jnp.abs(levels.agent - levels.lamp)
print(f"mean return {results.episode_return.mean():.4f}, best possible {best.mean():.4f}")
assert results.episode_return.mean() > best.mean() - 0.01

# %% [markdown]
# Next: [PPO's training loop](../training-loop.md) says what happens inside `update` and where each detail comes from,
# [the architecture](../architecture.md) where new environments, networks and algorithms go.
