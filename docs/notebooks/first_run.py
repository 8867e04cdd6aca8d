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
# # A first run
#
# This page trains PPO on mazes from Python, looks at what was learned, and then does the same with the command
# line, whose runs can be read back. It takes for granted that you know what PPO is, and nothing of this project.
#
# Everything here is a pure function: environment, network, policy, update. So nothing has to be wrapped or registered
# to be compiled, and a training is a value that you can look at, copy and continue.

# %%
import contextlib
import os
import tempfile

import jax
import matplotlib.pyplot as plt
import numpy as np

import stoix_like as sl
from stoix_like.evaluation import statistics

FAST = os.environ.get("STOIX_LIKE_FAST") == "1"  # what the tests run: everything, with tiny budgets
NUM_PARTS = 2 if FAST else 12  # the training is scored after each
UPDATES_PER_PART = 1 if FAST else 5
NUM_EPISODES = 16 if FAST else 256
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## An environment
#
# `sl.make_env` makes any discrete task of [Jumanji](https://github.com/instadeepai/jumanji) by its name, here a maze of
# 7 by 7 cells, a new one in every episode. Reaching the target pays 1; after 49 steps the time is up. So the mean
# return is the share of mazes solved. `python scripts/envs.py` lists all tasks.

# %%
env = sl.make_env("Maze-v0", kwargs={"num_rows": 7, "num_cols": 7})

env_state, timestep = jax.jit(env.reset)(jax.random.key(0))
print("actions:", env.action_spec.num_values)
print("legal at first:", timestep.observation.action_mask)
print("seen:", ", ".join(timestep.observation.agent_view))

# %% [markdown]
# `reset` and `step` return a state and a `TimeStep`: reward, discount, observation and whether this was the last step.
# The mask says which actions are legal; the others have probability zero everywhere.
#
# ## A learner
#
# Every setting is a leaf of one configuration and has a default: [configuration.md](../configuration.md) lists them.
# `sl.make_network` takes the network that fits the observation, here one that looks along the corridors of
# a maze. A learner is `init`, `update` and a policy.

# %%
config = sl.ppo_config(
    task_id="Maze-v0",
    num_envs=16 if FAST else 64,
    rollout_length=16,
    num_updates=NUM_PARTS * UPDATES_PER_PART,
    num_minibatches=4 if FAST else 16,
    hidden_dim=8 if FAST else 32,
    actor_lr=1e-3,
)
learner = sl.ppo.make(env, sl.make_network(env, config), config)

state = jax.jit(learner.init)(jax.random.key(0))
print("state:", ", ".join(state._fields))
print("parameters:", sum(x.size for x in jax.tree.leaves(state.params)))

# %% [markdown]
# ## A training is a loop of updates
#
# One `update` plays 16 steps in each of 64 environments and learns from them. It takes a state and returns the next
# one, with metrics. Some of them are compiled as a whole by `jax.lax.scan`, and between such parts the policy is
# scored. `sl.evaluate` plays whole episodes on fresh mazes, here with the most probable actions, and returns one number
# for each.


# %%
@jax.jit
def scores(params):
    """The returns [NUM_EPISODES] of whole episodes, on the same mazes for all parameters."""
    key = jax.random.key(1)
    return sl.evaluate(env, learner.policy, params, key, num_episodes=NUM_EPISODES, deterministic=True).episode_return


@jax.jit
def train(state):
    """(the state UPDATES_PER_PART updates later, the metrics of each [UPDATES_PER_PART])."""
    return jax.lax.scan(lambda state, _: learner.update(state), state, length=UPDATES_PER_PART)


trained, returns, entropies = state, [scores(state.params)], []
for _ in range(NUM_PARTS):
    trained, metrics = train(trained)
    returns.append(scores(trained.params))
    entropies.append(metrics["trainer/entropy"])

print(f"mazes solved before training {returns[0].mean():.3f}, after {returns[-1].mean():.3f}")
print(f"entropy of the policy in the first update {entropies[0][0]:.3f}, in the last {entropies[-1][-1]:.3f} nats")
assert int(trained.step) == NUM_PARTS * UPDATES_PER_PART

# %% alt="The share of mazes solved over environment steps, with its 95 % interval over the mazes"
steps_per_update = config.environment.num_envs * config.training_core.rollout_length
steps = np.arange(NUM_PARTS + 1) * UPDATES_PER_PART * steps_per_update
curve = [statistics.mean_interval(values) for values in returns]

figure, axes = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
axes.fill_between(steps, [one.low for one in curve], [one.high for one in curve], alpha=0.2)
axes.plot(steps, [one.point for one in curve], marker="o", markersize=3)
_ = axes.set(xlabel="environment steps", ylabel="share of mazes solved", ylim=(0, 1.02))

# %% [markdown]
# The band is the interval over mazes. It says nothing of other trainings: [another seed learns another
# curve](../tutorials/many_seeds.md).
#
# ## An episode
#
# To play is to call the policy and `step` in turns. A policy takes batches, so a single game is a batch of one.


# %%
@jax.jit
def play(params, env_state, timestep):
    """What follows the most probable action."""
    batch = jax.tree.map(lambda x: x[None], (env_state, timestep.observation))
    return env.step(env_state, learner.policy(params, *batch, jax.random.key(0), True)[0])


env_state, timestep = jax.jit(env.reset)(jax.random.key(2))
views = [timestep.observation.agent_view]
while not timestep.last():
    env_state, timestep = play(trained.params, env_state, timestep)
    views.append(timestep.observation.agent_view)
print(f"{len(views) - 1} steps, return {float(timestep.reward):.0f}")

# %% alt="Five moments of one episode: the walls of the maze, the way walked so far, and the target"
moments = np.linspace(0, len(views) - 1, 5).astype(int)
way = np.array([view["agent_position"] for view in views])  # [steps + 1, (row, column)]
target = views[0]["target_position"]
figure, panels = plt.subplots(1, 5, figsize=(7.5, 1.8), layout="constrained")
for axes, moment in zip(panels, moments, strict=True):
    axes.imshow(views[0]["walls"], cmap="Greys", vmin=0, vmax=1.4)
    axes.plot(way[: moment + 1, 1], way[: moment + 1, 0], color="C0", marker="o", markevery=[-1])
    axes.plot(target.col, target.row, color="C1", marker="*", markersize=12)
    axes.set(xticks=[], yticks=[], title=f"step {moment}")

# %% [markdown]
# ## The same from the command line
#
# A script does the same loop and takes care of the rest: checkpoints, evaluations, metrics, Ctrl-C. Every leaf of the
# configuration is a flag, and `ppo/maze` is a file with those that differ from the defaults.
#
# ```bash
# python scripts/train_ppo.py --config ppo/maze --kwargs '{num_rows: 7, num_cols: 7}' --run-name first
# ```
#
# The next cell calls the function behind that script, with fewer updates and a narrower network, in a folder that is
# removed at the end. What it prints is what you would see on a pipe; on a terminal the progress is a live view.

# %%
flags = ["--config", "ppo/maze", "--kwargs", "{num_rows: 7, num_cols: 7}", "--run-name", "first"]
flags += ["--num-updates", "2" if FAST else "60", "--hidden-dim", "8" if FAST else "32"]
flags += ["--eval-interval", "20", "--log-interval", "20"]
flags += ["--num-envs", "8", "--num-eval-envs", "8", "--num-eval-episodes", "8"] if FAST else []

stack = contextlib.ExitStack()
folder = stack.enter_context(tempfile.TemporaryDirectory())
stack.enter_context(contextlib.chdir(folder))
code = sl.run_command(["train-ppo", *flags])

# %% [markdown]
# A run is a folder. `sl.load_run` reads it back: its configuration, its environment and learner built from that, and
# the parameters that scored best. `saved.state` is the whole last state; `update` goes on from it.

# %%
saved = sl.load_run("runs/first")
print(f"{saved.config.environment.task_id}, best parameters of update {saved.meta.update}")
results = sl.evaluate(saved.env, saved.learner.policy, saved.params, jax.random.key(1), num_episodes=NUM_EPISODES)
print(f"mazes solved: {results.episode_return.mean():.3f}")
print("updates in the last state:", int(saved.state.step))
stack.close()

# %% [markdown]
# A little less than when they were chosen: these are other mazes, and the best of several scores flatters.
#
# From here: `python scripts/plot.py runs/first` draws the curve, `animate.py` an episode, `evaluate.py` scores on
# frozen levels; [onboarding](../onboarding.md) goes through them. Next here:
#
# - [PPO against SPO](../tutorials/ppo_against_spo.md): what a search adds, and what it costs
# - [An environment of your own](../tutorials/own_environment.md)
# - [Many seeds on one device](../tutorials/many_seeds.md)
