"""A stochastic environment that writes down every step, and a NumPy replay of a search from what was written.

Every state carries a number of its own, drawn anew in each step, so that a resampling can be read off the states: the
ancestor of a particle is whoever reached that number. Two legal actions tell each state from every other, so an action
drawn for another state is always illegal.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from support import tabular
from support.tabular import softmax

from stoix_like.search import smc
from stoix_like.search.model import Root, SearchConfig, SearchModel
from stoix_like.types import LAST, MID, TimeStep

NUM_STATES = 6  # the last one is terminal
NUM_VALUES = 3 * (NUM_STATES - 1)


class NoisyState(NamedTuple):
    """Leaves of several types and ranks, all telling the same number."""

    state: Any  # [M] int32
    ident: Any  # [M] uint32
    mirror: Any  # [M, 4] uint8, the bytes of `ident`
    is_odd: Any  # [M] bool, its last bit
    key: Any  # [M] typed keys
    fault: Any  # [M] int32, for a planted gather to know which fault is asked for; 0 in a sound search


class Step(NamedTuple):
    """One depth of a search as the model saw it, leaves [N, P, ...]; `after` is before finished particles stay."""

    before: NoisyState
    action: Any
    after: NoisyState
    reward: Any
    discount: Any
    is_last: Any


def make_tables(seed=0, end_probability=0.2):
    """What happens depends on the state, the action and one random bit: tables [S, A, 2], but for the network's.
    A share of the steps ends: half of them in the terminal, half by truncation."""
    rng = np.random.default_rng(seed)
    shape = (NUM_STATES, NUM_VALUES, 2)
    terminal = NUM_STATES - 1
    mask = np.arange(NUM_VALUES)[None] // 3 == np.arange(NUM_STATES)[:, None]
    next_state = rng.integers(0, terminal, shape)
    draw = rng.random(shape)
    is_terminal = draw < end_probability / 2
    is_last = draw < end_probability
    next_state = np.where(is_terminal, terminal, next_state)
    discount = np.where(rng.random(shape) < 0.5, rng.uniform(0.3, 0.9, shape), 1.0)
    discount = np.where(is_terminal, 0.0, np.where(is_last, 1.0, discount))
    reward = np.where(mask[..., None], rng.normal(0.0, 0.5, shape), tabular.GARBAGE_REWARD)
    value = rng.normal(0.0, 0.5, NUM_STATES)
    value[terminal] = tabular.GARBAGE_VALUE
    is_last[terminal], discount[terminal] = False, 1.0  # whoever leaves the terminal lives again, and it must not count
    return tabular.Tree(rng.normal(size=shape[:2]), mask, value, next_state, reward, discount, is_last)


def with_ident(state, ident, key, fault):
    mirror = jax.lax.bitcast_convert_type(ident, jnp.uint8)
    return NoisyState(state, ident, mirror, ident % 2 == 1, key, fault)


def make_model(tables, write, rekeyed):
    def step_one(env_state, action):
        bits = jax.random.bits(env_state.key, (2,), jnp.uint32)
        where = (env_state.state, action, bits[1] % 2)
        next_key = jax.random.fold_in(env_state.key, 1)
        after = with_ident(tables.next_state[where], bits[0], next_key, env_state.fault)
        step_type = jnp.where(tables.is_last[where], LAST, MID).astype(jnp.int8)
        observation = tabular.observe(tables, after.state)
        return after, TimeStep(step_type, tables.reward[where], tables.discount[where], observation, extras={})

    def step(env_state, action):
        after, timestep = jax.vmap(step_one)(env_state, action)
        seen = Step(env_state, action, after, timestep.reward, timestep.discount, timestep.last())
        without_keys = seen._replace(before=env_state._replace(key=0), after=after._replace(key=0))
        jax.debug.callback(write, without_keys, ordered=True)
        return after, timestep

    rekey = lambda env_state, keys: env_state._replace(key=keys)
    return SearchModel(
        step, tabular.logits_of, tabular.value_of, rekey=rekey if rekeyed else None, deterministic=not rekeyed
    )


_written = []


@functools.cache
def _compiled(config, rekeyed):
    @jax.jit
    def run(tables, roots, key, temperature, floats, fault):
        idents = jnp.arange(roots.shape[0], dtype=jnp.uint32)
        keys = jax.vmap(jax.random.key)(idents)
        root = Root(with_ident(roots, idents, keys, jnp.full_like(roots, fault)), tabular.observe(tables, roots))
        model = make_model(tables, _written.append, rekeyed)
        return smc.search(model, tables, key, root, temperature, config._replace(**floats))

    return run


def search_recorded(tables, roots, *, temperature=1.0, rekeyed=True, fault=0, **leaves):
    """(output, list of `Step`) of a search from the states `roots`, all NumPy."""
    config, floats = tabular.split_config(**leaves)
    _written.clear()
    arguments = (tabular.on_device(tables), jnp.asarray(roots, jnp.int32), jax.random.key(0))
    output = _compiled(config, rekeyed)(*arguments, jnp.asarray(temperature, jnp.float32), floats, jnp.int32(fault))
    jax.block_until_ready(output)
    jax.effects_barrier()
    shape = (len(roots), config.num_particles)
    steps = [jax.tree.map(lambda x: np.asarray(x).reshape(*shape, *x.shape[1:]), _unkeyed(step)) for step in _written]
    return jax.tree.map(np.asarray, output), steps


def _unkeyed(step):
    return step._replace(before=step.before._replace(key=None), after=step.after._replace(key=None))


class Replayed(NamedTuple):
    """What the replay counted, for a test to see that it tested something."""

    num_resampled: int  # environments, summed over depths
    num_not_resampled: int  # the same, at depths after the first
    num_finished: int  # particles
    num_alive_steps: int
    num_illegal: int  # among them


class Cloud(NamedTuple):
    """The particles in NumPy, leaves [N, P, ...]."""

    at: NoisyState
    root_action: Any
    score: Any
    log_prior: Any
    scale: Any
    alive: Any
    num_steps: Any
    trail: Any  # [N, P, H, 2], actions and rewards of unfinished particles


def replay(output, steps, tables, *, temperature, **leaves):
    """Follows every particle and asserts that the output is what it must be; `temperature` is [N].
    Only `initial_root_actions` and `log_prior_ratio` are believed, which the tests of the root proposals check."""
    config = SearchConfig(**leaves)
    horizon = config.max_depth if config.search_depth == "full" else config.search_depth
    actions = output.initial_root_actions
    zeros = np.zeros(actions.shape)
    prior = output.log_prior_ratio.astype(float)
    trail = np.zeros((*actions.shape, horizon, 2))
    cloud = Cloud(steps[0].before, actions, zeros, prior, zeros + 1, zeros == 0, zeros, trail)
    advantage, resampled = zeros, np.zeros(len(actions), bool)
    model_steps, sizes = np.zeros(len(actions), int), np.zeros((horizon, len(actions)))
    counts = dict.fromkeys(Replayed._fields, 0)
    np.testing.assert_array_equal(steps[0].action, actions)
    for depth, step in enumerate(steps):
        if depth > 0:
            due = _due(config, depth, _evidence(cloud, temperature)) & cloud.alive.any(axis=1)
            cloud = _resample(cloud, step.before, due, config, temperature)
            resampled = resampled | due
            counts["num_resampled"] += due.sum()
            counts["num_not_resampled"] += (~due).sum()
        jax.tree.map(np.testing.assert_array_equal, step.before, cloud.at)
        _assert_greedy(cloud, step, tables, config, depth)
        counts["num_illegal"] += (cloud.alive & ~tables.mask[cloud.at.state, step.action]).sum()
        moved = cloud.alive.sum(axis=1)
        model_steps += moved
        gain = _gain(cloud, step, tables, config)
        advantage = advantage + np.where(resampled[:, None], 0.0, gain)
        cloud = _advance(cloud, step, gain, config, depth)
        sizes[depth] = np.where(moved > 0, 1 / np.square(_evidence(cloud, temperature)).sum(axis=1), 0.0)
    assert len(steps) == horizon or (config.search_depth == "full" and not cloud.alive.any())
    _assert_output(output, cloud, advantage, temperature)
    _assert_diagnostics(output, cloud, temperature, sizes, model_steps)
    return Replayed(**counts | {"num_finished": (~cloud.alive).sum(), "num_alive_steps": model_steps.sum()})


def _weights(cloud, temperature):
    return softmax(cloud.log_prior + cloud.score / temperature[:, None])


def _evidence(cloud, temperature):
    return softmax(cloud.score / temperature[:, None])


def _resample(cloud, found, due, config, temperature):
    """The particles as copies of the ancestors that are read off the states in which they are found."""
    reached = cloud.at.ident
    ancestors = _ancestors(reached, found.ident, due)
    if config.resampler == "systematic":
        _assert_systematic(reached, found.ident, _evidence(cloud, temperature), due)
    rows = np.arange(len(due))[:, None]
    cloud = jax.tree.map(lambda x: x[rows, ancestors], cloud)
    return cloud._replace(score=np.where(due[:, None], 0.0, cloud.score))


def _gain(cloud, step, tables, config):
    """scale * (r + gamma * c * V(s') - V(s)) of unfinished particles; a terminal is worth nothing."""
    value = np.where(np.arange(NUM_STATES) == NUM_STATES - 1, 0.0, tables.value)
    bootstrap = config.gamma * step.discount * value[step.after.state]
    return np.where(cloud.alive, cloud.scale * (step.reward + bootstrap - value[cloud.at.state]), 0.0)


def _advance(cloud, step, gain, config, depth):
    trail = cloud.trail.copy()
    trail[:, :, depth] = np.where(cloud.alive[..., None], np.stack([step.action, step.reward], axis=-1), 0.0)
    return cloud._replace(
        at=_where(cloud.alive, step.after, cloud.at),
        score=cloud.score + gain,
        scale=cloud.scale * np.where(cloud.alive, config.gamma * config.gae_lambda * step.discount, 1.0),
        alive=cloud.alive & ~step.is_last,
        num_steps=cloud.num_steps + cloud.alive,
        trail=trail,
    )


def _assert_greedy(cloud, step, tables, config, depth):
    if config.continuation == "greedy" and depth > 0:
        best = np.where(tables.mask, tables.logits, -np.inf).argmax(axis=1)
        np.testing.assert_array_equal(step.action[cloud.alive], best[cloud.at.state][cloud.alive])


#: float32 sums of up to 8 terms of size 1, over a temperature of down to 0.2.
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def _assert_output(output, cloud, advantage, temperature):
    np.testing.assert_array_equal(output.root_actions, cloud.root_action)
    np.testing.assert_allclose(output.root_weights, _weights(cloud, temperature), **CLOSE)
    np.testing.assert_allclose(output.sampled_advantages, advantage, **CLOSE)
    assert all((row == action).any() for row, action in zip(cloud.root_action, output.action, strict=True))
    if output.paths is not None:
        np.testing.assert_array_equal(output.paths.actions, cloud.trail[..., 0])
        np.testing.assert_allclose(output.paths.rewards, cloud.trail[..., 1], rtol=1e-6)
        np.testing.assert_array_equal(output.paths.num_steps, cloud.num_steps)
        np.testing.assert_array_equal(output.paths.is_finished, ~cloud.alive)


def _assert_diagnostics(output, cloud, temperature, sizes, model_steps):
    found, weights, base = output.diagnostics, _weights(cloud, temperature), softmax(cloud.log_prior)
    np.testing.assert_allclose(found.effective_sample_size, sizes, rtol=1e-3)
    np.testing.assert_array_equal(found.model_steps, model_steps)
    np.testing.assert_array_equal(found.distinct_root_actions, _num_distinct(output.initial_root_actions))
    np.testing.assert_array_equal(found.surviving_root_actions, _num_distinct(cloud.root_action))
    np.testing.assert_allclose(found.trajectory_kl, _kl(weights, base), rtol=1e-3, atol=1e-5)
    first = softmax(output.log_prior_ratio)
    marginals = _marginal(cloud.root_action, weights), _marginal(output.initial_root_actions, first)
    np.testing.assert_allclose(found.root_kl, _kl(*marginals), rtol=1e-3, atol=1e-5)


def _due(config, depth, weights):
    """[N] bool: whether the particles of an environment, if any can move, are resampled before this depth."""
    if config.resampling == "period":
        return np.full(len(weights), depth % config.resampling_period == 0)
    if config.resampling == "none":
        return np.zeros(len(weights), bool)
    return 1 / np.square(weights).sum(axis=1) < config.resampling_ess_threshold * config.num_particles


def _ancestors(reached, found, due):
    """Who reached the number that a particle is found with, [N, P]; any of the copies of one finished particle."""
    ancestors = np.tile(np.arange(reached.shape[1]), (len(reached), 1))
    for n in np.flatnonzero(due):
        owner = {ident: particle for particle, ident in enumerate(reached[n])}
        assert set(found[n]) <= set(owner), "a state of another environment, or of none"
        ancestors[n] = [owner[ident] for ident in found[n]]
    return ancestors


def _assert_systematic(reached, found, weights, due):
    """Every state is found floor(P w) or ceil(P w) times; copies of a finished one, which share a number, together."""
    for n in np.flatnonzero(due):
        idents, group = np.unique(reached[n], return_inverse=True)
        expected = weights[n] * reached.shape[1]
        least, most = (np.bincount(group, x) for x in (np.floor(expected - 1e-3), np.ceil(expected + 1e-3)))
        times = np.bincount(np.searchsorted(idents, found[n]), minlength=len(idents))
        assert (least <= times).all()
        assert (times <= most).all()


def _where(condition, on_true, on_false):
    def choose(a, b):
        return np.where(condition.reshape(condition.shape + (1,) * (a.ndim - 2)), a, b)

    return jax.tree.map(choose, on_true, on_false)


def _num_distinct(actions):
    return [len(np.unique(row)) for row in actions]


def _marginal(actions, weights):
    return np.stack([np.bincount(a, w, NUM_VALUES) for a, w in zip(actions, weights, strict=True)])


def _kl(p, q):
    safe = np.where(p > 0, p, 1.0)
    return (p * np.log(safe / np.where(p > 0, q, 1.0))).sum(axis=1)
