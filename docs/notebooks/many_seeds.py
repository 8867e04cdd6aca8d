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
# # Many seeds on one device
#
# A training is a function from a key to scores, so `jax.vmap` makes of it a function from many keys to many scores: one
# program that trains many seeds side by side. Rates and coefficients are data in the state, so the same program trains
# other settings, too. This page trains 32 seeds, asks what three of them would have shown, compares four settings with
# eight seeds each, and measures what the seeds cost.

# %%
import os
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import stoix_like as sl
from stoix_like.evaluation import comparison, statistics

FAST = os.environ.get("STOIX_LIKE_FAST") == "1"  # what the tests run: everything, with tiny budgets
NUM_SEEDS = 4 if FAST else 32
NUM_UPDATES = 2 if FAST else 100
NUM_EPISODES = 16 if FAST else 256
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## One program for all seeds
#
# The task is a maze of 5 by 5 cells with a new maze in each episode: 1 for reaching the target before the time is up.
# `train` plays all updates and scores the result; the returned number is the share of fresh mazes that the most
# probable actions solve.

# %%
env = sl.make_env("Maze-v0", kwargs={"num_rows": 5, "num_cols": 5})
config = sl.ppo_config(
    num_envs=8 if FAST else 32,
    rollout_length=16,
    num_updates=NUM_UPDATES,
    num_minibatches=4,
    gamma=0.95,
    hidden_dim=8 if FAST else 64,
    observation_adapter="dense",
    actor_lr=3e-3,
)
learner = sl.ppo.make(env, sl.make_network(env, config), config)
num_traces = 0


def train(state):
    """The share of mazes solved after all updates, from a first state."""
    global num_traces  # noqa: PLW0603 - the body runs only while JAX traces it, so this counts compilations
    num_traces += 1
    state, _ = jax.lax.scan(lambda state, _: learner.update(state), state, length=NUM_UPDATES)
    key = jax.random.key(1)
    results = sl.evaluate(env, learner.policy, state.params, key, num_episodes=NUM_EPISODES, deterministic=True)
    return results.episode_return.mean()


# %% [markdown]
# `vmap` over `init` gives states with a leading axis of seeds, and `vmap` over `train` runs them. Lane 3 is what a
# single run with `jax.random.key(3)` gives, up to the order in which a batched matrix product adds.

# %%
keys = jax.vmap(jax.random.key)(jnp.arange(NUM_SEEDS))
states = jax.jit(jax.vmap(learner.init))(keys)
train_all = jax.jit(jax.vmap(train))

scores = np.asarray(train_all(states))  # [NUM_SEEDS]
print("solved, by seed:", " ".join(f"{score:.2f}" for score in sorted(scores)))

# %% [markdown]
# ## What few seeds show
#
# The interquartile mean (IQM) is the mean of the middle half of the runs: one broken or lucky seed moves it less than
# the mean. Its interval is a bootstrap over seeds: what other seeds might have given.
# `stoix_like.evaluation.statistics` has both, and `scripts/compare.py` uses them.

# %%
truth = statistics.bootstrap_interval(scores)
print(f"IQM of all {NUM_SEEDS} seeds: {truth.point:.3f} [{truth.low:.3f}, {truth.high:.3f}]")

# %% [markdown]
# What would fewer seeds have shown? The same 32 scores answer it: draw three of them many times, and see where the
# IQMs fall and how often their intervals contain the IQM of all.

# %% alt="Interquartile means of groups of 3, 5, 10 and 20 seeds: the groups of three scatter most"
SIZES = [2, 3] if FAST else [3, 5, 10, 20]
random = np.random.default_rng(0)
figure, axes = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
for place, size in enumerate(SIZES):
    groups = [random.choice(scores, size, replace=False) for _ in range(20 if FAST else 300)]
    found = [statistics.bootstrap_interval(group, repetitions=500) for group in groups]
    points = np.array([one.point for one in found])
    held = np.mean([one.low <= truth.point <= one.high for one in found])
    width = np.mean([one.high - one.low for one in found])
    print(f"{size:2} seeds: {points.min():.3f} to {points.max():.3f}, {width:.3f} wide, right {held:.0%}")
    axes.scatter(place + random.uniform(-0.15, 0.15, points.size), points, s=6, alpha=0.4)
axes.axhline(truth.point, color="0.4", linestyle="--", label=f"all {NUM_SEEDS} seeds")
axes.set_xticks(range(len(SIZES)), SIZES)
axes.set(xlabel="seeds in a group", ylabel="IQM of the share solved")
_ = axes.legend()

# %% [markdown]
# An interval that calls itself one of 95 % should be right in 95 % of the cases. With three seeds it is not: a
# bootstrap of three numbers knows ten different groups. (With twenty it looks better than it is, as the groups share
# most of their seeds with the whole.)
#
# ## Settings are data
#
# Learning rates, clips and coefficients are arrays in `state.hyper`, not constants of the program. Four settings with
# eight seeds each are 32 lanes again, so the program above takes them as they are and nothing is compiled.

# %%
print("hyper:", ", ".join(states.hyper._fields))
RATES = (1e-4, 1e-3, 3e-3, 1e-2)
EACH = NUM_SEEDS // len(RATES)
rates = jnp.repeat(jnp.array(RATES, jnp.float32), EACH)  # [NUM_SEEDS]: setting by setting
num_traces_before = num_traces
swept = states._replace(hyper=states.hyper._replace(actor_lr=rates))
by_rate = dict(zip(RATES, np.asarray(train_all(swept)).reshape(len(RATES), EACH), strict=True))
assert num_traces == num_traces_before

for rate, values in by_rate.items():
    iqm, low, high = statistics.bootstrap_interval(values) if EACH > 1 else (values[0], values[0], values[0])
    print(f"actor_lr {rate:g}: IQM {iqm:.3f} [{low:.3f}, {high:.3f}], seeds {values.min():.2f} to {values.max():.2f}")

# %% alt="The share of mazes solved by each seed, for four learning rates, with the interquartile mean of each"
figure, axes = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
for place, values in enumerate(by_rate.values()):
    axes.scatter(np.full(EACH, place), values, s=18, alpha=0.6, color="C0")
    axes.plot(
        [place - 0.25, place + 0.25], [statistics.iqm(values)] * 2, color="C1", label="IQM" if place == 0 else None
    )
axes.set_xticks(range(len(RATES)), [f"{rate:g}" for rate in RATES])
axes.set(xlabel="actor_lr", ylabel="share of mazes solved")
_ = axes.legend()

# %% [markdown]
# Is the best of them better than the next, or had it luck? The probability of improvement counts, over all pairs of a
# run of each, how often the first is above. An interval that holds 0.5 decides nothing.

# %%
ranked = sorted(RATES, key=lambda rate: statistics.iqm(by_rate[rate]), reverse=True)
for other in ranked[1:]:
    chance, low, high = comparison.improvement_interval([by_rate[ranked[0]]], [by_rate[other]])
    print(f"P(actor_lr {ranked[0]:g} > {other:g}) = {chance:.2f} [{low:.2f}, {high:.2f}]")

# %% [markdown]
# Three other things to know. Of settings that were chosen by these scores, the score of the best flatters it: train it
# again with fresh seeds before quoting it. What shapes the program is not in `hyper`: numbers of environments, of
# updates and of units need a program each. And a sweep over many settings, with pruning, is
# [a command](../how-to/sweep.md).
#
# ## What a seed costs
#
# Environment steps per second of all seeds together, when 1, 2, 4 … of them train side by side. The first call of each
# program compiles it and is not counted; each number is the best of four calls. The clock counts the processor time of
# this program on all cores, so that other programs on the machine do not count; on a GPU take `time.perf_counter()`.

# %%
LANES = [1] if FAST else [1, 2, 4, 8, 16, 32]
STEPS = config.environment.num_envs * config.training_core.rollout_length
UPDATES = 1 if FAST else 20


@jax.jit
def update_all(states):
    """The states UPDATES updates later."""
    return jax.vmap(lambda state: jax.lax.scan(lambda s, _: learner.update(s), state, length=UPDATES)[0])(states)


rates_of = {}
for num_seeds in LANES:
    some = jax.tree.map(lambda x, n=num_seeds: x[:n], states)
    seconds = []
    for _ in range(5):
        began = time.process_time()
        jax.block_until_ready(update_all(some).step)
        seconds.append(time.process_time() - began)
    rates_of[num_seeds] = num_seeds * UPDATES * STEPS / min(seconds[1:])
    print(f"{num_seeds:2} seeds: {rates_of[num_seeds]:9,.0f} steps/s, {rates_of[num_seeds] / num_seeds:9,.0f} each")

# %% alt="Environment steps per second of all seeds together against the number of seeds"
figure, axes = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
axes.plot(LANES, list(rates_of.values()), marker="o", label="all seeds together")
axes.plot(LANES, [n * rates_of[1] for n in LANES], color="0.6", linestyle="--", label="if seeds were free")
axes.set_xscale("log", base=2)
axes.set_xticks(LANES, LANES)
axes.set(xlabel="seeds side by side", ylabel="environment steps per second", ylim=(0, 1.6 * max(rates_of.values())))
_ = axes.legend()

# %% [markdown]
# On these cores the first few seeds side by side are partly free: operations on small arrays cost almost as much as on
# larger ones. Then the cores are busy, and twice the seeds take twice the time. They are still one program that
# compiles once. How far the first part goes depends on the device and on the size of the network; a GPU has room for
# more.
#
# On the command line `--num-seeds 8` trains eight seeds in this way, in one run folder: `scripts/plot.py` draws their
# curve with an interval, and [`scripts/compare.py`](../how-to/compare-runs.md) compares runs.
