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
# # An environment of your own
#
# An environment is two pure functions, `reset(key)` and `step(state, action)`, and an `ActionSpec`. There is no class
# to inherit from and nothing to register. What trains and what searches take the functions as they are: `jit`, `vmap`
# and `scan` go through them.
#
# The puzzle of this page is *Lights Out*: nine lamps in a square, some of them lit. Pressing a lamp switches it and its
# neighbours above, below, left and right. All must go out. The least number of presses is known for every board, so the
# page can say how far from perfect a policy is.

# %%
import itertools
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import stoix_like as sl

FAST = os.environ.get("STOIX_LIKE_FAST") == "1"  # what the tests run: everything, with tiny budgets
NUM_UPDATES = 4 if FAST else 400
NUM_PARTS = 2 if FAST else 20  # of the training, each scored
NUM_EPISODES = 64 if FAST else 1024
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## Twenty lines
#
# The state is a `NamedTuple` of arrays. An observation has two parts: what the agent sees, a dictionary of arrays, and
# a mask of the actions that are legal. To press the same lamp twice in a row undoes the press, so the mask forbids it.
#
# A `TimeStep` says what happened. `step_type` is 0 for the first, 2 for the last and 1 for all others. `discount` says
# what an end means: 0 where nothing follows, as here when all lamps are out.

# %%
row, column = np.divmod(np.arange(9), 3)
SWITCHES = (abs(row[:, None] - row) + abs(column[:, None] - column) <= 1).astype(int)  # [9, 9]: what a press switches


class Lamps(NamedTuple):
    lit: jax.Array  # [9] int32, 1 where lit
    last: jax.Array  # [] int32, the lamp pressed last; -1 at the start


def show(state, step_type, reward, discount):
    mask = jnp.arange(9) != state.last
    observation = sl.Observation({"lit": state.lit.astype(jnp.float32)}, mask)
    return sl.TimeStep(jnp.int8(step_type), jnp.float32(reward), jnp.float32(discount), observation, extras={})


def reset(key):
    presses = jax.random.bernoulli(key, shape=(9,)).at[0].set(True)  # one at least, so something is lit
    state = Lamps(presses.astype(jnp.int32) @ SWITCHES % 2, jnp.int32(-1))
    return state, show(state, step_type=0, reward=0.0, discount=1.0)


def step(state, action):
    state = Lamps(state.lit ^ jnp.asarray(SWITCHES)[action], action.astype(jnp.int32))
    solved = ~state.lit.any()
    return state, show(state, jnp.where(solved, 2, 1), jnp.where(solved, 0.9, -0.1), jnp.where(solved, 0.0, 1.0))


# %% [markdown]
# That is all. A policy that knows nothing could go on for ever, so `sl.with_time_limit` ends episodes after 20 steps.
# It does so by a truncation: the discount stays 1, and the value of what would have followed is counted in.
# `deterministic=True` says that `step` draws nothing, so a search need not give its particles randomness of their own.

# %%
puzzle = sl.Environment(reset, step, sl.ActionSpec(9), task_id="lights-out", deterministic=True)
env = sl.with_time_limit(puzzle, 20)

# %% alt="Four boards of three by three lamps: all out, then after pressing the middle, a corner and an edge"
state = Lamps(jnp.zeros(9, jnp.int32), jnp.int32(-1))
boards, titles = [state.lit], ["all out"]
for lamp in (4, 0, 5):
    state, _ = step(state, jnp.int32(lamp))
    boards.append(state.lit)
    titles.append(f"then {lamp} pressed")

figure, panels = plt.subplots(1, 4, figsize=(6.4, 2.0), layout="constrained")
for axes, lit, title in zip(panels, boards, titles, strict=True):
    axes.imshow(np.reshape(lit, (3, 3)), cmap="cividis", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[], title=title)

# %% [markdown]
# ## What is best
#
# Every press costs 0.1 and the last one also pays 1. The order of presses does not matter and pressing a lamp twice
# does nothing, so a solution is a set of lamps. There are 512 sets, and they lead to 512 different boards: each board
# has exactly one solution, and its size is the least number of presses.

# %%
SETS = np.array(list(itertools.product([0, 1], repeat=9)))  # [512, 9]
BOARDS = SETS @ SWITCHES % 2
assert len(np.unique(BOARDS, axis=0)) == 512
least = np.zeros(512, int)
least[BOARDS @ 2 ** np.arange(9)] = SETS.sum(axis=1)

level_keys = jax.random.split(jax.random.key(1), NUM_EPISODES)
first_boards = np.asarray(jax.vmap(reset)(level_keys)[0].lit)
best_returns = 1.0 - 0.1 * least[first_boards @ 2 ** np.arange(9)]
print(f"{NUM_EPISODES} puzzles: best mean return {best_returns.mean():.3f}")

# %% [markdown]
# ## PPO learns it
#
# From here on it is an environment like any other. An observation that no special network fits gets a multilayer
# perceptron. The training is one `scan` of `update`, and the parameters on the way are kept, to be scored.

# %%
config = sl.ppo_config(
    num_envs=16 if FAST else 64,
    rollout_length=16,
    num_updates=NUM_UPDATES,
    epochs=2 if FAST else 4,
    num_minibatches=4,
    hidden_dim=16 if FAST else 64,
    actor_lr=1e-3,
)
network = sl.make_network(env, config)
learner = sl.ppo.make(env, network, config)


@jax.jit
def train(key):
    """Parameters on the way, leaves [NUM_PARTS + 1, ...]: the first ones, then those after each part."""

    def part(state, _):
        later, _ = jax.lax.scan(lambda s, _: learner.update(s), state, length=NUM_UPDATES // NUM_PARTS)
        return later, state.params

    state, params = jax.lax.scan(part, learner.init(key), length=NUM_PARTS)
    return jax.tree.map(lambda before, last: jnp.concatenate([before, last[None]]), params, state.params)


def returns(policy, params):
    """Returns [NUM_EPISODES] of most probable actions on the puzzles above."""
    results = sl.evaluate_levels(env, policy, params, level_keys, jax.random.key(2), num_envs=NUM_EPISODES)
    return results.episode_return


params = train(jax.random.key(0))
returns_of_all = jax.jit(jax.vmap(lambda one: returns(learner.policy, one)))
learned = np.asarray(returns_of_all(params))  # [NUM_PARTS + 1, NUM_EPISODES]
print(f"untrained {learned[0].mean():6.3f}   trained {learned[-1].mean():6.3f}   best {best_returns.mean():6.3f}")
is_best = np.isclose(learned[-1], best_returns)
print(f"solved {(learned[-1] > -1.5).mean():.1%}, with the least presses {is_best.mean():.1%}")
assert np.all(learned <= best_returns + 1e-5)

# %% alt="Mean return over environment steps, rising towards the best possible one"
steps = np.arange(NUM_PARTS + 1) * (NUM_UPDATES // NUM_PARTS) * config.environment.num_envs * 16
figure, axes = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
axes.plot(steps, learned.mean(axis=1), marker="o", markersize=3, label="PPO, most probable actions")
axes.axhline(best_returns.mean(), color="0.4", linestyle="--", label="best possible")
axes.set(xlabel="environment steps", ylabel="mean return")
_ = axes.legend()

# %% [markdown]
# Every puzzle is solved in the end, and about half of them with no press too many.
#
# ## A search plans in it
#
# SPO's search needs a model of the world, and pure functions are one: any state can be stepped again, in copies,
# without disturbing the game. `sl.searching.search_model` joins environment and network to a model. From the board at
# hand, particles go different first ways and on to the end of the episode, guided by the network's policy. They are
# weighed by what they earned, and the first press of the heaviest is made. `sl.searching.planning_policy` also follows
# the best finished path that any search of the episode has found, which is right where steps are deterministic.
#
# Nothing is trained here: the networks of three moments of the training above play with searches of several sizes.

# %%
model = sl.searching.search_model(env, network)
STAGES = {"untrained": 0, "after a quarter": NUM_PARTS // 4, "trained": NUM_PARTS}
PARTICLES = [2] if FAST else [2, 8, 32]
moments = np.array(list(STAGES.values()))
networks = jax.tree.map(lambda x: x[moments], params)  # [3, ...]


def planned(num_particles):
    """Mean returns [3] of the three networks with a search."""
    how = sl.SearchConfig(
        num_particles=num_particles,
        search_depth="full",
        max_depth=env.time_limit,
        gamma=0.99,
        root="gumbel_topk",  # first presses without replacement: as many different ones as can be
        resampling="none",
    )
    policy = sl.searching.planning_policy(env, model, how, lambda params: params, lambda _: 0.1)
    return jax.jit(jax.vmap(lambda one: returns(policy, one).mean()))(networks)


table = np.stack([learned[moments].mean(axis=1), *map(planned, PARTICLES)])  # [searches, 3]
print("particles  " + "  ".join(STAGES))
for num_particles, row in zip([0, *PARTICLES], table, strict=True):
    print(f"{num_particles:9}  " + "  ".join(f"{mean:{len(name)}.3f}" for name, mean in zip(STAGES, row, strict=True)))
assert np.all(table <= best_returns.mean() + 1e-5)

# %% alt="Mean return against the number of particles for three networks; all rise towards the best possible return"
figure, axes = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
for name, means in zip(STAGES, table.T, strict=True):
    axes.plot(range(len(table)), means, marker="o", label=name)
axes.axhline(best_returns.mean(), color="0.4", linestyle="--", label="best possible")
axes.set_xticks(range(len(table)), ["network alone", *map(str, PARTICLES)])
axes.set(xlabel="particles of the search", ylabel="mean return")
_ = axes.legend()

# %% [markdown]
# A search makes a player even of a network that knows nothing, and a trained one nearly perfect: it sees the
# shorter way. The better the network, the smaller the search that is enough. That is what SPO trains on:
# `sl.spo.make(env, network, sl.spo_config(...))` takes this environment as it is, and
# [PPO against SPO](../tutorials/ppo_against_spo.md) shows what comes of it elsewhere.
#
# To use an environment from the command line, add its name to `stoix_like/envs/registry.py`;
# [the architecture](../architecture.md#adding) lists what else it can provide, such as a GIF of an episode.
