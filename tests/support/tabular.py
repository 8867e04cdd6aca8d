"""Environments given by tables, searched through one compiled function, and their exact search targets in NumPy.

The oracle walks every sequence of actions in float64 and knows nothing of particles: the target of a root action is the
sum, over all sequences that begin with it, of their probability times exp(accumulated advantage / temperature).
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.ops import distributions
from stoix_like.search import smc
from stoix_like.search.model import Root, SearchConfig, SearchModel
from stoix_like.types import FIRST, LAST, MID, Observation, TimeStep

#: What leaving a terminal or an illegal action pays: enough to be seen whenever one of them counts.
GARBAGE_REWARD = 1e3
GARBAGE_VALUE = 1e6
#: The leaves of the configuration that are traced, so that one compilation serves all their values. The noise's are
#: only where there is any: compiling it takes as long as all the rest.
TRACED = ("gamma", "gae_lambda", "resampling_ess_threshold")
TRACED_NOISE = ("dirichlet_alpha", "dirichlet_fraction")


class Tree(NamedTuple):
    """A deterministic environment and its network. J is the number of joint actions, A ** F (A without factors)."""

    logits: Any  # [S, A] or [S, F, A]
    mask: Any  # the same shape, bool
    value: Any  # [S]
    next_state: Any  # [S, J]
    reward: Any  # [S, J]
    discount: Any  # [S, J]
    is_last: Any  # [S, J] bool


class TreeState(NamedTuple):
    state: Any  # [M] int32
    steps: Any  # [M] int8, a second leaf of another type


def make_tree(logits, mask, value, next_state, reward, discount=1.0, is_last=False):
    """The tree as NumPy arrays; numbers are broadcast to [S, J]."""
    next_state = np.asarray(next_state, int)

    def table(x, dtype):
        return np.broadcast_to(np.asarray(x, dtype), next_state.shape)

    logits = np.asarray(logits, float)
    mask = np.broadcast_to(np.asarray(mask, bool), logits.shape)
    value = np.asarray(value, float)
    return Tree(logits, mask, value, next_state, table(reward, float), table(discount, float), table(is_last, bool))


def appendix_tree():
    """Three states: the root's action leads to 1 or 2, and there it stays. Everything legal, nothing ends."""
    policy = [[0.5, 0.5], [0.95, 0.05], [0.05, 0.95]]
    reward = [[0.0, 0.3], [1.0, -1.0], [-1.0, 0.5]]
    return make_tree(np.log(policy), True, [0.6, 0.9, 0.4], [[1, 2], [1, 1], [2, 2]], reward)


def random_tree(seed, num_states=9, num_values=3):
    """States that only lead upwards, to the terminal in the end; some steps are truncated, some discounts fractional.

    Illegal actions pay 1,000 and stay. The terminal has no legal action, is worth 1e6, and whoever leaves it gets 1,000
    and a new life at the root: nothing of this may reach a target.
    """
    rng = np.random.default_rng(seed)
    shape = (num_states, num_values)
    terminal = num_states - 1
    next_state = np.stack([rng.integers(min(s + 1, terminal), num_states, num_values) for s in range(num_states)])
    mask = rng.random(shape) < 0.7
    mask[np.arange(num_states), rng.integers(0, num_values, num_states)] = True
    reward = np.where(mask, rng.normal(0.0, 0.6, shape), GARBAGE_REWARD)
    next_state = np.where(mask, next_state, np.arange(num_states)[:, None])
    discount = np.where(rng.random(shape) < 0.4, rng.uniform(0.4, 0.9, shape), 1.0)
    is_terminal = next_state == terminal
    is_truncated = ~is_terminal & mask & (rng.random(shape) < 0.2)
    discount = np.where(is_terminal, 0.0, np.where(is_truncated, 1.0, discount))
    is_last = is_terminal | is_truncated
    mask[terminal], next_state[terminal], reward[terminal] = False, 0, GARBAGE_REWARD
    discount[terminal], is_last[terminal] = 1.0, False
    value = rng.normal(0.0, 0.6, num_states)
    value[terminal] = GARBAGE_VALUE
    return make_tree(rng.normal(size=shape), mask, value, next_state, reward, discount, is_last)


def join(first, second):
    """One tree of both, the second's states after the first's; missing actions are illegal and pay garbage."""
    num_values = max(first.logits.shape[1], second.logits.shape[1])

    def both(a, b, fill):
        return np.concatenate([_widen(x, num_values, fill) for x in (a, b)])

    return Tree(
        logits=both(first.logits, second.logits, 0.0),
        mask=both(first.mask, second.mask, False),
        value=np.concatenate([first.value, second.value]),
        next_state=both(first.next_state, second.next_state + len(first.value), 0),
        reward=both(first.reward, second.reward, GARBAGE_REWARD),
        discount=both(first.discount, second.discount, 1.0),
        is_last=both(first.is_last, second.is_last, False),
    )


def _widen(table, width, fill):
    return np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=fill)


def make_model(tree):
    """The tree as the search sees it; `params` is the tree too."""

    def step(env_state, action):
        state, joint = env_state.state, joint_index(action, tree)
        after = tree.next_state[state, joint]
        step_type = jnp.where(tree.is_last[state, joint], LAST, MID).astype(jnp.int8)
        reward, discount = tree.reward[state, joint], tree.discount[state, joint]
        timestep = TimeStep(step_type, reward, discount, observe(tree, after), extras={})
        return TreeState(after, env_state.steps + jnp.int8(1)), timestep

    return SearchModel(step=step, logits=logits_of, value=value_of, deterministic=True)


def logits_of(tree, observation):
    return distributions.masked_logits(tree.logits[observation.agent_view["state"]], observation.action_mask)


def value_of(tree, observation):
    return tree.value[observation.agent_view["state"]]


def joint_index(action, tree):
    """Number of the joint action: the action itself without factors, else row-major over factors."""
    if tree.logits.ndim == 2:
        return action
    num_factors, num_values = tree.logits.shape[1:]
    return sum(action[..., f] * num_values ** (num_factors - 1 - f) for f in range(num_factors))


def observe(tree, state):
    return Observation({"state": state}, tree.mask[state])


def make_root(tree, roots):
    return Root(TreeState(roots, jnp.full(roots.shape, FIRST, jnp.int8)), observe(tree, roots))


def on_device(tree):
    types = Tree(jnp.float32, bool, jnp.float32, jnp.int32, jnp.float32, jnp.float32, bool)
    return jax.tree.map(jnp.asarray, tree, types)


@functools.cache
def compiled_search(config, temperature_function=None):
    """The search of a tree as one jitted function; `config` holds what is static, the floats are arguments."""

    @jax.jit
    def run(tree, roots, key, temperature, floats):
        temperature = temperature_function or temperature
        leaves = config._replace(**floats)
        return smc.search(make_model(tree), tree, key, make_root(tree, roots), temperature, leaves)

    return run


def split_config(**leaves):
    """(config without its floats, the floats): gamma is 1 unless given."""
    config = SearchConfig(**({"gamma": 1.0} | leaves))
    names = TRACED + (TRACED_NOISE if config.dirichlet_fraction > 0 else ())
    floats = {name: jnp.float32(getattr(config, name)) for name in names}
    return config._replace(**dict.fromkeys(names, 0.0)), floats


def search_tree(tree, roots, *, temperature=1.0, temperature_function=None, **leaves):
    """The output of a search from the states `roots` as NumPy arrays. Trees of one shape share the compilation."""
    config, floats = split_config(**leaves)
    run = compiled_search(config, temperature_function)
    arguments = (on_device(tree), jnp.asarray(roots, jnp.int32), jax.random.key(0))
    return jax.tree.map(np.asarray, run(*arguments, jnp.asarray(temperature, jnp.float32), floats))


def policy(tree):
    """Probabilities of the joint actions [S, J]; factors are independent. Of no use where nothing is legal."""
    logits = np.where(tree.mask, tree.logits, -1e30)
    probs = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs /= probs.sum(axis=-1, keepdims=True)
    if probs.ndim == 2:
        return probs
    return functools.reduce(lambda a, b: (a[:, :, None] * b[:, None, :]).reshape(len(a), -1), np.moveaxis(probs, 1, 0))


def paths(tree, state, depth, *, gamma=1.0, gae_lambda=1.0):
    """Every (first action, probability, accumulated advantage) of `depth` steps from a state, or fewer if it ends."""
    probs = policy(tree)

    def walk(state, steps_left, scale):
        if steps_left == 0:
            yield None, 1.0, 0.0
            return
        for action in np.flatnonzero(probs[state]):
            after, c = tree.next_state[state, action], tree.discount[state, action]
            bootstrap = gamma * c * tree.value[after] if c > 0 else 0.0
            advantage = scale * (tree.reward[state, action] + bootstrap - tree.value[state])
            rest = 0 if tree.is_last[state, action] else steps_left - 1
            for _, prob, later in walk(after, rest, scale * gamma * gae_lambda * c):
                yield action, probs[state, action] * prob, advantage + later

    return list(walk(state, depth, 1.0))


def exact_target(tree, state, depth, temperature, **options):
    """The search target over joint actions [J]."""
    target = np.zeros(tree.next_state.shape[1])
    for action, prob, advantage in paths(tree, state, depth, **options):
        target[action] += prob * np.exp(advantage / temperature)
    return target / target.sum()


def root_marginal(output, tree):
    """Root weights summed by joint action, [N, J]."""
    num_joint = tree.next_state.shape[1]
    joint = joint_index(output.root_actions, tree)
    rows = zip(joint, output.root_weights.astype(float), strict=True)
    return np.stack([np.bincount(actions, weights, num_joint) for actions, weights in rows])


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum()


def softmax(x):
    exp = np.exp(np.asarray(x, float) - np.max(x, axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)
