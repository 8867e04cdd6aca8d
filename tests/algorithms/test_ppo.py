"""PPO: probe environments reach their analytic values, and what may not matter does not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import assert_legal
from support.configs import SMALL_PPO
from support.marks import full
from support.probes import BEST, HARDEST, KNOWN, observations, one_of_the_probes
from support.walks import look_at, table_network, walk

import stoix_like as sl
from stoix_like.algorithms import ppo
from stoix_like.envs.auto_reset import auto_reset_for
from stoix_like.ops import distributions
from stoix_like.types import NetworkParams

SMALL = SMALL_PPO | {"num_updates": 50}
PROBE = {"num_envs": 32, "rollout_length": 16, "num_minibatches": 4, "epochs": 4, "num_updates": 150}
PROBE = SMALL_PPO | PROBE | {"actor_lr": 3e-3, "critic_lr": 3e-3, "gamma": 0.9}


def make(env, **leaves):
    env, config = sl.make_env(env) if isinstance(env, str) else env, sl.ppo_config(**leaves)
    network = sl.make_network(env, config)
    return network, config, ppo.make(env, network, config)


def trained(learner, num_updates, seed=0):
    run = jax.jit(lambda key: jax.lax.scan(lambda s, _: learner.update(s), learner.init(key), None, num_updates))
    return run(jax.random.key(seed))


@functools.cache
def probes_learned(names):
    """(network, parameters [K + 1, ...], metrics [K + 1, 150]) of these probes side by side, and of the first one with
    rewards of 3."""
    network, config, _ = make(one_of_the_probes(0, names), **PROBE)

    def train(which, scale):
        learner = ppo.make(one_of_the_probes(which, names), network, config)
        state = learner.init(jax.random.key(0))
        state = state._replace(hyper=state.hyper._replace(reward_scale=scale))
        return jax.lax.scan(lambda s, _: learner.update(s), state, None, PROBE["num_updates"])

    lanes = jnp.array([*range(len(names)), 0]), jnp.array([1.0] * len(names) + [3.0])
    state, metrics = jax.jit(jax.vmap(train))(*lanes)
    return network, state.params, {name: np.asarray(value) for name, value in metrics.items()}


SOME = ("constant_reward", HARDEST)
EACH = [*((name, SOME) for name in SOME), *(full(name, tuple(KNOWN)) for name in KNOWN if name not in SOME)]


def values_in(lane, probe, names):
    network, params, _ = probes_learned(names)
    return network.critic(jax.tree.map(lambda x: x[lane], params), observations(probe))


@pytest.mark.parametrize(("probe", "names"), EACH)
def test_probes_reach_their_analytic_values(probe, names):
    lane, metrics = names.index(probe), probes_learned(names)[2]
    np.testing.assert_allclose(values_in(lane, probe, names), list(KNOWN[probe].values()), atol=0.05)
    if probe in BEST:
        mean_return = metrics["actor/episode_return_sum"][lane, -1] / metrics["actor/episodes_count"][lane, -1]
        assert mean_return > 0.97  # the best policy's return is 1, a random one's 0 at most


def test_reward_scale_scales_values_but_not_reported_returns():
    np.testing.assert_allclose(values_in(len(SOME), "constant_reward", SOME), 3.0, atol=0.15)
    assert probes_learned(SOME)[2]["actor/episode_return_max"][len(SOME), -1] == 1.0


def test_a_truncation_is_bootstrapped_and_running_returns_are_carried_across_updates():
    """Reward 1 for ever, in episodes of 5 steps and rollouts of 4: 1 / (1 - 0.9) = 10, 4.1 if taken for an end."""
    leaves = PROBE | {"rollout_length": 4, "gae_lambda": 1.0, "critic_lr": 1e-2, "num_updates": 300}
    network, _, learner = make("probe/truncated_constant", **leaves)
    state, metrics = trained(learner, 300)
    np.testing.assert_allclose(network.critic(state.params, state.rollout.observation), 10.0, atol=0.7)
    # Cut at the border, no episode would ever be 5 steps long.
    metrics = {name: value[:5] for name, value in metrics.items()}
    finished = metrics["actor/episodes_count"] > 0
    assert finished.sum() == 4  # episodes end at steps 5, 10, 15 and 20 of 20
    np.testing.assert_array_equal(metrics["actor/episode_length_max"][finished], 5.0)
    np.testing.assert_array_equal(metrics["actor/episode_return_min"][finished], 5.0)
    assert bool(jnp.isneginf(metrics["actor/episode_length_max"][~finished]).all())


def test_loss_by_hand():
    """Two rows, each with a policy of (3/4, 1/4): action 0 was as likely when it was taken, action 1 half as likely.

    The ratios are 1 and 2, of which the clip leaves 1.2; advantages 2 and 1. Values 1, targets 3 and 0; the value of
    the second row moved by 1 and is held within 0.5 of 0, which is the smaller error.
    """
    params = NetworkParams(None, jnp.log(jnp.array([[3.0, 1.0]])), jnp.array([1.0]))
    numbers = {"clip_eps": 0.2, "value_clip_eps": 0.5, "vf_coef": 0.5, "ent_coef": 0.1}
    config = sl.ppo_config(**numbers, standardize_advantages="none")
    settings = ppo.settings_of(sl.make_env("probe/action_reward"), config)
    log_prob = jnp.log(jnp.array([0.75, 0.125]))
    batch = ppo.PPOBatch(
        look_at([0, 0], 2),
        jnp.array([0, 1]),
        log_prob,
        jnp.array([1.0, 0.0]),
        jnp.array([2.0, 1.0]),
        jnp.array([3.0, 0.0]),
    )
    loss, metrics = ppo.loss(params, table_network(), settings, ppo.make_hyper(config), batch)
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert metrics["trainer/policy_loss"] == pytest.approx(-(2.0 + 1.2) / 2, rel=1e-5)
    assert metrics["trainer/value_loss"] == pytest.approx((2.0 + 0.5) / 2, rel=1e-5)
    assert metrics["trainer/entropy"] == pytest.approx(entropy, rel=1e-5)
    assert metrics["trainer/clip_fraction"] == 0.5
    assert loss == pytest.approx(-1.6 + 0.5 * 1.25 - 0.1 * entropy, rel=1e-5)


@functools.cache
def walked():
    """(network, settings, state, rollout of 4 steps by 8 walkers that began at different steps of their episodes)."""
    network, config, learner = make(walk(), **SMALL)
    settings = ppo.settings_of(walk(), config)
    auto_reset = auto_reset_for(walk(), 8, 4)
    collect = jax.jit(lambda state: ppo.collect(auto_reset, network, settings, state))
    state = jax.jit(learner.init)(jax.random.key(0))
    return network, settings, state, *collect(state)[:2]


def test_stored_actions_are_legal_and_the_next_episode_changes_no_target_before_it():
    network, settings, state, after, rows = walked()
    assert_legal(rows.action, rows.observation.action_mask)
    assert bool(jnp.isfinite(rows.reward).all())  # an illegal step pays NaN
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
    logits = network.actor(state.params, flat.observation)
    np.testing.assert_allclose(distributions.log_prob(logits, flat.action), flat.record, atol=1e-5)
    compute_batch = jax.jit(functools.partial(ppo.compute_batch, network, settings._replace(standardization="none")))
    rows = rows._replace(is_last=rows.is_last.at[1].set(True), discount=rows.discount.at[1].set(0.0))
    other = jax.tree.map(lambda x: x.at[2:].set(jnp.roll(x[2:], 1, axis=1)), rows.observation)
    changed = rows._replace(observation=other, reward=rows.reward.at[2:].add(7.0))
    before, later = (compute_batch(state, r, after.observation) for r in (rows, changed))
    np.testing.assert_array_equal(before.target[:2], later.target[:2])
    assert float(jnp.abs(before.target[2:] - later.target[2:]).min()) > 1.0


def test_options_stay_finite_and_rates_fall_linearly_by_update():
    leaves = {"standardize_advantages": "none", "value_clip_eps": 0.2, "shared_torso": True}
    leaves |= {"num_updates": 5, "num_minibatches": 4, "actor_lr": 1.0}
    state, metrics = trained(make("probe/action_observation_reward", **SMALL | leaves)[2], 6)
    np.testing.assert_allclose(metrics["trainer/learning_rate"], [1.0, 0.8, 0.6, 0.4, 0.2, 0.0], atol=1e-6)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(state.params))
    assert bool(jnp.isfinite(metrics["trainer/value_loss"]).all())
