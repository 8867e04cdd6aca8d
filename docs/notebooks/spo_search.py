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
# # SPO: a search as a pure function
#
# SPO (Macfarlane et al. 2024, arXiv 2402.07963) searches before every action and lets the network learn what the search
# found. The search is sequential Monte Carlo: particles walk through a model of the world, are weighed by their
# advantages, and the heavy ones are copied. This notebook runs it on a world of three states, where every path can be
# counted, compares the two ways of drawing first actions, and then trains a network with it in one `lax.scan`.
#
# It is a Python file in jupytext's percent format. Run it as a script (`python docs/notebooks/spo_search.py`), open it
# in an editor that knows the format, or make a notebook of it with `jupytext --to ipynb docs/notebooks/spo_search.py`.
# With `STOIX_LIKE_FAST=1` the budgets shrink to what the tests run.

# %%
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import stoix_like as sl

FAST = os.environ.get("STOIX_LIKE_FAST") == "1"
NUM_REPEATS = 64 if FAST else 1024
NUM_UPDATES = 2 if FAST else 400
NUM_EPISODES = 32 if FAST else 256

# %% [markdown]
# ## A world of three states
#
# From `FORK` one goes left to the `MINE` or right to the `PATH`. On the path every step pays a little, for ever. In the
# mine, left digs on and pays nothing; right leaves with what was found, pays 1 and ends the episode. The tables are the
# whole world. Beside them stand the opinions of a network that does not know it: it prefers to go right at the fork,
# and values all states alike.

# %%
FORK, MINE, PATH = range(3)
LEFT, RIGHT = range(2)


class World(NamedTuple):
    """What happens, by state and action [S, A]."""

    next_state: jax.Array
    reward: jax.Array
    ends: jax.Array  # bool: a termination


class Opinions(NamedTuple):
    """What a network would say; the search gets them as `params`."""

    logits: jax.Array  # [S, A]
    value: jax.Array  # [S]


world = World(
    next_state=jnp.array([[MINE, PATH], [MINE, MINE], [PATH, PATH]]),
    reward=jnp.array([[0.0, 0.0], [0.0, 1.0], [0.2, 0.1]]),
    ends=jnp.array([[False, False], [False, True], [False, False]]),
)
opinions = Opinions(
    logits=jnp.log(jnp.array([[0.25, 0.75], [0.6, 0.4], [0.5, 0.5]])),
    value=jnp.array([0.4, 0.4, 0.4]),
)

# %% [markdown]
# The search knows neither environments nor networks. It is given functions over rows of states: `step`, which never
# resets, and `logits` and `value` of an observation. A state may be any pytree; here it is one number.


# %%
def observe(states, num_actions):
    return sl.Observation(states, jnp.ones((*states.shape, num_actions), bool))


def model_of(world):
    """The world and the opinions about it, as a `SearchModel` over states [M]."""
    num_actions = world.reward.shape[1]

    def step(states, actions):
        ends = world.ends[states, actions]
        after = world.next_state[states, actions]
        step_type, discount = jnp.where(ends, 2, 1).astype(jnp.int8), jnp.where(ends, 0.0, 1.0)
        timestep = sl.TimeStep(step_type, world.reward[states, actions], discount, observe(after, num_actions), {})
        return after, timestep

    def logits(params, observation):
        return params.logits[observation.agent_view]

    def value(params, observation):
        return params.value[observation.agent_view]

    return sl.SearchModel(step, logits, value, deterministic=True)


def search(world, opinions, seed, *, num_searches=1, **leaves):
    """Searches from state 0, compiled; `leaves` are those of `SearchConfig`."""
    config = sl.SearchConfig(gamma=1.0, record_paths=True, **leaves)
    states = jnp.zeros((num_searches,), jnp.int32)
    root = sl.Root(states, observe(states, world.reward.shape[1]))
    run = jax.jit(lambda key: sl.smc.search(model_of(world), opinions, key, root, TEMPERATURE, config))
    return run(jax.random.key(seed))


TEMPERATURE = 0.25  # reward units: how much of an advantage is worth a factor of e

# %% [markdown]
# ## Particles
#
# Twelve particles, two steps, nothing resampled. Each draws its actions from the network's own policy. What it collects
# is its advantage, `r + V(s') - V(s)` summed over its steps, and it weighs `exp(advantage / temperature)`. A
# termination ends the sum without `V(s')`.


# %%
def print_particles(output):
    """One line per particle of the first search."""
    for index in range(output.root_weights.shape[1]):
        steps = int(output.paths.num_steps[0, index])
        path = "".join("LR"[a] for a in output.paths.actions[0, index, :steps])
        end = "end" if output.paths.is_finished[0, index] else ""
        reward, weight = output.paths.rewards[0, index].sum(), output.root_weights[0, index]
        print(f"particle {index:2}   {path:<4}{end:<5} reward {reward:5.2f}   weight {weight:.3f}")


before = search(world, opinions, 3, num_particles=12, search_depth=2)
print_particles(before)
print("effective particles after each depth:", np.round(before.diagnostics.effective_sample_size[:, 0], 1))
print("action drawn by weight:", "LR"[int(before.action[0])])
assert np.isclose(before.root_weights.sum(), 1.0)

# %% [markdown]
# The same key with one step more, and a resampling after the second. The first two steps are the ones above. Then
# ancestors are drawn by weight, everything of a particle is copied from its ancestor, and the weights begin anew: those
# below are of the third step alone, so that what the first two were worth is now in the number of copies. What ended
# keeps its place and its weight. The target of the search is the weights summed by first action.
#
# Three arrays are not copied: `initial_root_actions`, `sampled_advantages` and `log_prior_ratio` are those of the
# particles as they were drawn. The temperature is learned from them, and a survivor is no sample of the policy.

# %%
after = search(world, opinions, 3, num_particles=12, search_depth=3, resampling_period=2)
print_particles(after)
print("first actions as drawn:   ", "".join("LR"[a] for a in after.initial_root_actions[0]))
print("first actions at the end: ", "".join("LR"[a] for a in after.root_actions[0]))
ancestors = {tuple(path) for path in np.asarray(before.paths.actions[0])}
assert {tuple(path[:2]) for path in np.asarray(after.paths.actions[0])} <= ancestors
assert (after.initial_root_actions == before.root_actions).all()
assert jnp.allclose(after.sampled_advantages, before.sampled_advantages)

# %% [markdown]
# ## The exact answer
#
# With two actions and three steps there are at most eight paths. The target of the search for a first action is the sum
# over the paths that begin with it, of their probability times `exp(advantage / temperature)`, normalised.


# %%
def exact_target(world, opinions, depth):
    """The share of each first action [A], by counting every path."""
    policy = np.asarray(jax.nn.softmax(opinions.logits))
    tables = jax.tree.map(np.asarray, world)
    value = np.asarray(opinions.value)

    def mass(state, steps_left):
        """Of all that may follow in a state: probability times exp(advantage / temperature)."""
        return 1.0 if steps_left == 0 else sum(masses(state, steps_left))

    def masses(state, steps_left):
        return [of_action(state, action, steps_left) for action in range(policy.shape[1])]

    def of_action(state, action, steps_left):
        after, ends = tables.next_state[state, action], tables.ends[state, action]
        advantage = tables.reward[state, action] + (0.0 if ends else value[after]) - value[state]
        later = 1.0 if ends else mass(after, steps_left - 1)
        return policy[state, action] * np.exp(advantage / TEMPERATURE) * later

    target = np.array(masses(FORK, depth))
    return target / target.sum()


def estimates(output, num_actions):
    """The target of each search [N, A]: root weights summed by action."""
    return (output.root_weights[..., None] * jax.nn.one_hot(output.root_actions, num_actions)).sum(axis=1)


exact = exact_target(world, opinions, 3)
print(f"the network goes left with probability {jax.nn.softmax(opinions.logits)[FORK, LEFT]:.2f}")
print(f"three steps ahead it should go left with {exact[LEFT]:.4f}")

# %% [markdown]
# A search of few particles is a noisy estimate. Its error falls with the root of their number, whether something is
# resampled on the way or not.

# %% alt="The error of a search falls with the root of the number of particles, resampled or not"
SIZES = [2**n for n in range(4, 11 if FAST else 13, 2)]
RESAMPLING = {"none": {"resampling": "none"}, "every step": {"resampling_period": 1}}


def errors(num_particles, leaves):
    """How far from exact the share of `LEFT` is, in 64 searches [64]."""
    output = search(world, opinions, 0, num_searches=64, num_particles=num_particles, search_depth=3, **leaves)
    return np.asarray(estimates(output, 2)[:, LEFT] - exact[LEFT])


figure, axes = plt.subplots(figsize=(5.0, 3.2), layout="constrained")
for name, leaves in RESAMPLING.items():
    found = [errors(size, leaves) for size in SIZES]
    axes.loglog(SIZES, [np.sqrt(np.mean(error**2)) for error in found], marker="o", label=f"resampled: {name}")
    print(f"resampled: {name:<11} mean error of {SIZES[-1]} particles {found[-1].mean():+.4f}")
    assert abs(found[-1].mean()) < 0.02
axes.loglog(SIZES, 0.5 / np.sqrt(SIZES), color="grey", linestyle="--", label="1 / (2 √P)")
axes.set(xlabel="particles P", ylabel="error of a search (RMS)")
_ = axes.legend()

# %% [markdown]
# ## Distinct first actions
#
# A sharp policy gives nearly all particles the same first action, and there is nothing left to compare. Here are ten
# actions that end the episode at once; the policy is sure of action 0, and action 7 pays more.

# %%
probabilities = jnp.array([0.91] + [0.01] * 9)
bandit = World(
    next_state=jnp.zeros((1, 10), jnp.int32),
    reward=jnp.zeros((1, 10)).at[0, 7].set(1.2),
    ends=jnp.ones((1, 10), bool),
)
sure = Opinions(logits=jnp.log(probabilities)[None], value=jnp.zeros(1))
weights = np.asarray(probabilities * jnp.exp(bandit.reward[0] / TEMPERATURE))
best_share = weights[7] / weights.sum()

# %% [markdown]
# `root="gumbel_topk"` draws without replacement: the particles with the largest sums of log-probability and Gumbel
# noise. To stay an estimate over all actions, each is divided by the probability of being among those drawn (Kool et
# al. 2019, arXiv 1903.06059); `log_prior_ratio` holds the logarithm. `root="topk"` takes the most probable ones, which
# is what a deterministic evaluation does, and no target to learn from.
#
# With four particles of ten actions, action 7 is seen more often. With ten, nothing is left to chance.

# %%
print(f"exact share of action 7: {best_share:.3f}")
for root, num_particles in [("iid", 4), ("gumbel_topk", 4), ("iid", 10), ("gumbel_topk", 10)]:
    output = search(bandit, sure, 0, num_searches=NUM_REPEATS, num_particles=num_particles, search_depth=1, root=root)
    share = np.asarray(estimates(output, 10)[:, 7])
    distinct = output.diagnostics.distinct_root_actions.mean()
    print(
        f"{root:<12} {num_particles:2} particles: {distinct:4.1f} distinct, action 7 seen in"
        f" {(share > 0).mean():4.0%} of searches, its share {share.mean():.3f} ± {share.std():.3f}"
    )
assert np.allclose(share, best_share, atol=1e-4)  # ten distinct of ten: exact, whatever the key

# %% [markdown]
# ## Training
#
# SPO is a learner like PPO, so a whole run is a `scan` of `update`. Mazes of 5 by 5, a dense network, eight particles
# of four steps. `temperature_mode="solve"` finds, for every batch, the temperature at which the weights are `epsilon`
# nats from where they began.

# %%
env = sl.make_env("Maze-v0", kwargs={"num_rows": 5, "num_cols": 5})
config = sl.spo_config(
    task_id="Maze-v0",
    num_envs=8 if FAST else 32,
    rollout_length=20,
    num_updates=NUM_UPDATES,
    epochs=2 if FAST else 8,  # gradient steps are epochs * num_minibatches
    num_minibatches=1,
    actor_lr=1e-3,
    ent_coef=0.0,
    gamma=0.95,
    hidden_dim=8 if FAST else 64,
    observation_adapter="dense",
    num_particles=8,
    search_depth=4,
    root="gumbel_topk",
    resampling="none",
    temperature_mode="solve",
    epsilon_policy=0.01,
    replay_buffer_size=2048,
    sample_sequence_length=16,
    batch_size=32,
)
learner = sl.spo.make(env, sl.make_network(env, config), config)


@jax.jit
def train(key):
    """(first state, state after all updates, metrics [NUM_UPDATES]) from a key."""
    state = learner.init(key)
    trained, metrics = jax.lax.scan(lambda state, _: learner.update(state), state, length=NUM_UPDATES)
    return state, trained, metrics


state, trained, metrics = train(jax.random.key(0))
print("state:", ", ".join(state._fields))
print("bytes in the replay:", f"{sum(x.nbytes for x in jax.tree.leaves(state.replay)):,}")
for name in ("temperature", "search_root_kl", "distinct_root_actions", "entropy", "explained_variance"):
    values = metrics[f"trainer/{name}"]
    print(f"trainer/{name:<24} first {values[0]:8.4f}   last {values[-1]:8.4f}")
assert int(trained.step) == NUM_UPDATES

# %% [markdown]
# The temperature falls with the advantages: the better the critic foresees the return, the smaller the differences that
# are left. That is why it is learned or solved for, and not decayed by a schedule.
#
# A learner of SPO has two policies: `policy` searches, `network_policy` does not. The search helps even a network that
# knows nothing, as rewards within its reach are seen; and what the network learned makes the search better.


# %%
@jax.jit
def solved(params):
    """The share of mazes solved without and with a search, on the same fresh levels."""
    key = jax.random.key(1)
    return [
        sl.evaluate(env, policy, params, key, num_episodes=NUM_EPISODES, deterministic=True).episode_return.mean()
        for policy in (learner.network_policy, learner.policy)
    ]


for name, params in (("untrained", state.params), ("trained", trained.params)):
    alone, searching = solved(params)
    print(f"{name:<10} network alone {alone:.3f}   with its search {searching:.3f}")
assert FAST or alone > 0.8

# %% [markdown]
# ## Another search for the same network
#
# `sl.searching` joins an environment and a network to a model, and a model to a policy. Any network can be searched,
# one that PPO has trained too: here four distinct first actions, each followed greedily to the end of the episode. Such
# a search trusts the network that goes on: of an untrained one it makes less than the four sampled steps above.

# %%
network = sl.make_network(env, config)
model = sl.searching.search_model(env, network)
to_the_end = sl.SearchConfig(
    num_particles=4,
    search_depth="full",
    max_depth=env.time_limit,
    gamma=0.95,
    root="topk",
    continuation="greedy",
    resampling="none",
)
policy = sl.searching.search_policy(model, to_the_end, lambda params: params.online, lambda _: 0.001)


@jax.jit
def solved_by(params):
    """The share of mazes solved by that search."""
    key = jax.random.key(1)
    results = sl.evaluate(env, policy, params, key, num_episodes=NUM_EPISODES, deterministic=True)
    return results.episode_return.mean()


print(f"untrained {solved_by(state.params):.3f}   trained {solved_by(trained.params):.3f}")

# %% [markdown]
# Next: [SPO's training loop](../spo-training-loop.md) says what happens inside `update`, what the search promises and
# where each detail comes from. On the command line the same is `python scripts/train_spo.py`, and
# `scripts/evaluate.py RUN --search` searches for any saved run.
