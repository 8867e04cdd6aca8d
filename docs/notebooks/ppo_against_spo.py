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
# # PPO against SPO
#
# SPO searches before every action and lets its network learn what the search found; PPO plays and learns from what came
# of it. A search makes better use of each environment step, and takes time. This page trains both on one task with
# several seeds each, and compares them twice: after equal numbers of environment steps, and after equal time on the
# clock. It scores SPO with its search and without, and gives PPO's network the same search at the end.

# %%
import os
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import stoix_like as sl
from stoix_like.evaluation import statistics

FAST = os.environ.get("STOIX_LIKE_FAST") == "1"  # what the tests run: everything, with tiny budgets
NUM_SEEDS = 2 if FAST else 8
UPDATES_PER_PART = 1 if FAST else 16  # a training is scored after each part
NUM_EPISODES = 16 if FAST else 256
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## The task, and two learners
#
# Mazes of 5 by 5 cells, a new one in each episode, and 1 for reaching the target within 25 steps. Both learners have
# the same network, the same discount and the same learning rate, and play 32 environments for 20 steps per update. PPO
# then makes 16 gradient steps. SPO makes 8, with replayed sequences of the last updates, and its search walks 4
# particles 4 steps ahead: 16 model steps for every step in the world.
#
# Neither was tuned for this page. PPO is given four times as many updates, so that it has more steps to use where it
# needs less time.

# %%
env = sl.make_env("Maze-v0", kwargs={"num_rows": 5, "num_cols": 5})
shared = {
    "task_id": "Maze-v0",
    "num_envs": 8 if FAST else 32,
    "rollout_length": 20,
    "gamma": 0.95,
    "hidden_dim": 8 if FAST else 64,
    "observation_adapter": "dense",
    "actor_lr": 1e-3,
    "critic_lr": 1e-3,
    "decay_learning_rates": False,  # so that a curve of few updates is the beginning of one of many
}
ppo_config = sl.ppo_config(**shared, epochs=4, num_minibatches=4)
spo_config = sl.spo_config(
    **shared,
    epochs=8,  # gradient steps are epochs * num_minibatches
    num_minibatches=1,
    ent_coef=0.0,
    num_particles=4,
    search_depth=4,
    root="gumbel_topk",  # four distinct first actions
    resampling="none",
    temperature_mode="solve",
    epsilon_policy=0.01,
    replay_buffer_size=2048,
    sample_sequence_length=16,
    batch_size=32,
)
network = sl.make_network(env, ppo_config)
learners = {"PPO": sl.ppo.make(env, network, ppo_config), "SPO": sl.spo.make(env, network, spo_config)}
STEPS_PER_UPDATE = shared["num_envs"] * shared["rollout_length"]

# %% [markdown]
# ## Training
#
# All seeds of a learner train side by side in one program. The clock counts the processor time of the updates alone,
# not compiling and not scoring, so that other programs on the machine do not count; on one idle core it is what a clock
# on the wall shows. Every score is the share of the same fresh mazes that the most probable actions solve.


# %%
def solved(policy, params):
    key = jax.random.key(1)
    return sl.evaluate(env, policy, params, key, num_episodes=NUM_EPISODES, deterministic=True).episode_return.mean()


def learn(learner, policies, num_parts):
    """({name: one Series per seed} of the shares solved by each policy, the last states)."""
    states = jax.jit(jax.vmap(learner.init))(jax.vmap(jax.random.key)(jnp.arange(NUM_SEEDS)))

    def part(state):
        return jax.lax.scan(lambda state, _: learner.update(state), state, length=UPDATES_PER_PART)[0]

    train = jax.jit(jax.vmap(part)).lower(states).compile()
    score = jax.jit(jax.vmap(lambda params: [solved(policy, params) for policy in policies.values()]))
    scores, seconds = [np.asarray(score(states.params))], [0.0]
    for _ in range(num_parts):
        began = time.process_time()
        states = jax.block_until_ready(train(states))
        seconds.append(seconds[-1] + time.process_time() - began)
        scores.append(np.asarray(score(states.params)))  # [policies, seeds]
    steps = np.arange(num_parts + 1.0) * UPDATES_PER_PART * STEPS_PER_UPDATE
    table = np.stack(scores, axis=-1)  # [policies, seeds, num_parts + 1]
    series = [[sl.Series(steps, values, np.array(seconds)) for values in of_policy] for of_policy in table]
    return dict(zip(policies, series, strict=True)), states


ppo_series, ppo_states = learn(learners["PPO"], {"PPO": learners["PPO"].policy}, 2 if FAST else 40)
policies = {"SPO with its search": learners["SPO"].policy, "SPO, network alone": learners["SPO"].network_policy}
spo_series, spo_states = learn(learners["SPO"], policies, 1 if FAST else 10)
for name, of_seeds in (ppo_series | spo_series).items():
    last = of_seeds[0]
    found = " ".join(f"{one.values[-1]:.2f}" for one in of_seeds)
    print(f"{name:<20} {last.timesteps[-1]:8,.0f} steps in {last.seconds[-1]:4.0f} s; solved, by seed: {found}")

# %% [markdown]
# ## At equal environment steps, at equal time
#
# `compare` is what `scripts/compare.py` uses for run folders. It takes every seed's score at the largest number of
# steps that all have reached, and at the largest time: interquartile means (IQM) with bootstrap intervals over seeds,
# and how often a seed of the first is above a seed of the other.

# %%
sources = [f"seed {seed}" for seed in range(NUM_SEEDS)]
experiments = [sl.Experiment(name, series, sources) for name, series in (ppo_series | spo_series).items()]
result = sl.compare("solve_rate", [sl.ComparisonGroup("Maze-v0, 5 by 5", "evaluator/solve_rate", experiments)])
for axis, aggregate in result.results[0].aggregates.items():
    print(f"at {aggregate.budgets[0]:,.0f} {axis}:")
    for row in aggregate.rows:
        print(f"  {row.name:<20} IQM {row.iqm.point:.3f} [{row.iqm.low:.3f}, {row.iqm.high:.3f}]")
    for pair in aggregate.pairs:
        chance, low, high = pair.probability
        print(f"  P({pair.first} > {pair.second}) = {chance:.2f} [{low:.2f}, {high:.2f}]")

# %% alt="Share of mazes solved over steps and over seconds, for PPO and for SPO with and without its search"
figure, panels = plt.subplots(1, 2, figsize=(7.5, 3.2), sharey=True, layout="constrained")
for axes, (axis, efficiency) in zip(panels, result.results[0].efficiency.items(), strict=True):
    for name, curve in efficiency.curves.items():
        axes.fill_between(efficiency.moments, curve.low, curve.high, alpha=0.2)
        axes.plot(efficiency.moments, curve.point, label=name)
    axes.set(xlabel={"steps": "environment steps of a seed", "seconds": "seconds, all seeds together"}[axis])
panels[0].set(ylabel="share of mazes solved, IQM", ylim=(0, 1.02))
_ = panels[1].legend(loc="lower right", fontsize=8)

# %% [markdown]
# After equal steps SPO is ahead of PPO, and so is its network alone, which learned from searches. After equal time it
# is the other way round for the networks: PPO has played more than three times as much by then, and its network
# solves more mazes than SPO's. SPO with its search stays ahead of both, and needs the search, and its time, whenever
# it plays.
#
# ## What a search adds to either network
#
# A search needs no training of its own: it can be given to PPO's network as well. Here all networks of the last states
# get SPO's search, at one temperature.

# %%
model = sl.searching.search_model(env, network)
how = sl.SearchConfig(num_particles=4, search_depth=4, gamma=0.95, root="topk", resampling="none")
networks = {"PPO": ppo_states.params, "SPO": spo_states.params.online}
searching = sl.searching.search_policy(model, how, lambda params: params, lambda _: 0.1)
score_search = jax.jit(jax.vmap(lambda params: solved(searching, params)))
alone = {"PPO": ppo_series["PPO"], "SPO": spo_series["SPO, network alone"]}
for name, params in networks.items():
    before = np.array([one.values[-1] for one in alone[name]])
    gain = statistics.paired_difference_interval(np.asarray(score_search(params)), before)
    print(f"{name}: alone {before.mean():.3f}, a search adds {gain.point:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")

# %% [markdown]
# The search helps both, and PPO's network with it comes near to what SPO's does. So, on this task: where steps in the
# world are dear, SPO learns more from each; where they are as cheap as here and the policy must act alone, PPO learns
# faster; and where there is time to search when playing, either network gains by it.
#
# What this does not say: one small task, one network, one setting of each, none of them tuned, and eight seeds. Mazes
# end in few steps and punish no risk. [The benchmarks](../benchmarks.md) compare both on larger tasks, and
# [SPO's training loop](../spo-training-loop.md) says what its search guarantees.
