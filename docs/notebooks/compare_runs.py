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
# # Comparing algorithms by few seeds
#
# Two training runs with different seeds can differ more than two algorithms do. This notebook trains three settings of
# PPO with several seeds each and asks which is better, after Agarwal et al. 2021, "Deep Reinforcement Learning at the
# Edge of the Statistical Precipice" (arXiv 2108.13264): interquartile means with bootstrap intervals, the probability
# of improvement, performance profiles, and curves at equal budgets. `python scripts/compare.py RUN...` does the same
# with run folders; [a page](../how-to/compare-runs.md) says how to read it.
#
# It is a Python file in jupytext's percent format. Run it as a script (`python docs/notebooks/compare_runs.py`), open
# it in an editor that knows the format, or make a notebook of it with
# `jupytext --to ipynb docs/notebooks/compare_runs.py`. With `STOIX_LIKE_FAST=1` the budgets shrink to what the tests
# run.

# %%
import itertools
import os
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import stoix_like as sl
from stoix_like.evaluation import comparison, statistics

FAST = os.environ.get("STOIX_LIKE_FAST") == "1"
NUM_SEEDS = 3 if FAST else 6
NUM_EVALUATIONS = 3 if FAST else 8
UPDATES_BETWEEN = 1 if FAST else 5
NUM_EPISODES = 16 if FAST else 128
plt.rcParams["figure.dpi"] = 80
plt.switch_backend(plt.get_backend())  # loads it, so that a figure that ends a cell is shown

# %% [markdown]
# ## Training
#
# Snake on a board of 6 by 6 cells, and three learning rates. The rate is data and not part of the program, so all
# settings and all seeds share one compiled `train`, which plays some updates of all seeds side by side. The clock
# starts after compiling: what is compared below is the time that training and scoring took.

# %%
env = sl.make_env("Snake-v1", kwargs={"num_rows": 6, "num_cols": 6})
config = sl.ppo_config(
    task_id="Snake-v1",
    num_envs=16 if FAST else 32,
    rollout_length=8 if FAST else 32,
    num_updates=NUM_EVALUATIONS * UPDATES_BETWEEN,
    epochs=1 if FAST else 4,
    num_minibatches=2 if FAST else 8,
    hidden_dim=8 if FAST else 32,
)
learner = sl.ppo.make(env, sl.make_network(env, config), config)


def train_some(state):
    """The state UPDATES_BETWEEN updates later."""
    return jax.lax.scan(lambda state, _: learner.update(state), state, length=UPDATES_BETWEEN)[0]


def score(params):
    """The mean return over fresh episodes, the same ones for all parameters."""
    key = jax.random.key(1)
    results = sl.evaluate(env, learner.policy, params, key, num_episodes=NUM_EPISODES, deterministic=False)
    return results.episode_return.mean()


keys = jax.vmap(jax.random.key)(jnp.arange(NUM_SEEDS))
states = jax.jit(jax.vmap(learner.init))(keys)
train = jax.jit(jax.vmap(train_some)).lower(states).compile()
score_all = jax.jit(jax.vmap(score)).lower(states.params).compile()


def learn(rate):
    """One series per seed: environment steps, scores, and seconds on the clock."""
    rates = jnp.full(NUM_SEEDS, rate, jnp.float32)
    state = states._replace(hyper=states.hyper._replace(actor_lr=rates))
    began, scores, seconds = time.monotonic(), [], []
    for _ in range(NUM_EVALUATIONS):
        state = train(state)
        scores.append(np.asarray(score_all(state.params)))  # [R]
        seconds.append(time.monotonic() - began)
    steps_between = config.environment.num_envs * config.training_core.rollout_length * UPDATES_BETWEEN
    steps = steps_between * np.arange(1.0, NUM_EVALUATIONS + 1)
    return [sl.Series(steps, values, np.array(seconds)) for values in np.stack(scores, axis=1)]


runs = {f"PPO · actor_lr {rate:g}": learn(rate) for rate in (1e-4, 1e-3, 1e-2)}
final = {name: np.array([one.values[-1] for one in series]) for name, series in runs.items()}  # [R] each
for name, values in final.items():
    print(f"{name:<20}", " ".join(f"{value:5.2f}" for value in values))

# %% [markdown]
# ## Interquartile means
#
# The mean of the middle half of the runs: one lucky or broken seed moves it less than the mean, and it uses more of the
# runs than the median. With fewer than four runs nothing is cut, and it is the mean. The interval is a bootstrap over
# seeds: what other seeds might have given. Of two or three runs it is far too narrow.

# %%
for name, values in final.items():
    point, low, high = statistics.bootstrap_interval(values)
    print(f"{name:<20} IQM {point:5.2f} [{low:.2f}, {high:.2f}]   mean {values.mean():5.2f}   n = {values.size}")

# %% [markdown]
# ## Probability of improvement
#
# Of all pairs of a run X and a run Y, how often is X above? A tie counts one half. Here by counting, and by the
# function that also draws an interval. It says how often, not by how much.

# %%
low_rate, high_rate = list(final)[:2]
pairs = list(itertools.product(final[high_rate], final[low_rate]))
by_counting = sum((x > y) + 0.5 * (x == y) for x, y in pairs) / len(pairs)
point, low, high = comparison.improvement_interval([final[high_rate]], [final[low_rate]])
print(f"P({high_rate} > {low_rate}) = {point:.3f} [{low:.3f}, {high:.3f}], by counting {by_counting:.3f}")
assert np.isclose(point, by_counting)

# %% [markdown]
# ## Performance profiles
#
# The share of runs above every score. Where one profile lies above another everywhere, its runs are better; where two
# cross, one algorithm has the better bad runs and the other the better good ones.

# %%
thresholds = np.linspace(0.0, max(values.max() for values in final.values()), 6)
print(f"{'share of runs above':<20}", " ".join(f"{threshold:5.2f}" for threshold in thresholds))
for name, values in final.items():
    share = comparison.performance_profile([values], thresholds).point
    print(f"{name:<20}", " ".join(f"{value:5.2f}" for value in share))
    assert np.allclose(share, [(values > threshold).mean() for threshold in thresholds])

# %% [markdown]
# ## All of it, at equal budgets
#
# `compare` takes scores where all seeds have some: at the largest number of environment steps that all reached, and at
# the largest wall-clock time. Nothing is extrapolated. It is what `scripts/compare.py` prints.

# %%
sources = [f"seed {seed}" for seed in range(NUM_SEEDS)]
experiments = [sl.Experiment(name, series, sources) for name, series in runs.items()]
result = sl.compare("mean_return", [sl.ComparisonGroup("Snake-v1", "mean_return", experiments)])
print(sl.comparison_text(result))
aggregate = result.results[0].aggregates["steps"]
assert [row.num_runs for row in aggregate.rows] == [(NUM_SEEDS,)] * 3

# %% alt="The share of runs above every score, for three learning rates at equal steps"
sl.comparison_figures.profiles_figure(result, "steps")

# %% alt="The probability of improvement of every pair of learning rates, with its interval"
sl.comparison_figures.improvement_figure(result, "steps")

# %% alt="Interquartile mean of the return over environment steps, for three learning rates"
sl.comparison_figures.efficiency_figure(result, "steps")

# %% alt="Interquartile mean of the return over seconds on the clock, for three learning rates"
sl.comparison_figures.efficiency_figure(result, "seconds")

# %% [markdown]
# Next: [Compare runs](../how-to/compare-runs.md), for run folders, several tasks and what not to conclude.
