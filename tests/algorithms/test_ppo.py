"""PPO: probe environments reach their analytic values, and what may not matter does not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stoix_like as sl
from stoix_like.algorithms import ppo
from stoix_like.types import role_key

SMALL = {"num_envs": 8, "rollout_length": 4, "num_minibatches": 2, "epochs": 2, "hidden_dim": 16, "num_updates": 50}
PROBE = SMALL | {
    "num_envs": 32,
    "rollout_length": 16,
    "num_minibatches": 4,
    "epochs": 4,
    "actor_lr": 3e-3,
    "critic_lr": 3e-3,
    "gamma": 0.9,
    "num_updates": 150,
}


def make(task, **leaves):
    env = sl.make_env(task)
    config = sl.ppo_config(**leaves)
    return env, ppo.make(env, sl.make_network(env, config), config)


def trained(learner, num_updates, seed=0):
    run = jax.jit(lambda key: jax.lax.scan(lambda s, _: learner.update(s), learner.init(key), None, num_updates))
    return run(jax.random.key(seed))


def values(learner_env, state, config_leaves):
    """Values of the probe's observations after training, from one sampled batch: {observation value: V}."""
    env = learner_env
    config = sl.ppo_config(**config_leaves)
    network = sl.make_network(env, config)
    observation = state.rollout.observation
    shown = np.asarray(jax.tree.leaves(observation.agent_view)[0]).reshape(len(observation.action_mask), -1)[:, 0]
    value = np.asarray(network.critic(state.params, observation))
    return {float(x): float(value[shown == x].mean()) for x in np.unique(shown)}


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        ("constant_reward", {0.0: 1.0}),
        ("observation_reward", {-1.0: -1.0, 1.0: 1.0}),
        ("delayed_reward", {0.0: 0.9, 1.0: 1.0}),
        ("action_reward", {0.0: 1.0}),
        ("action_observation_reward", {-1.0: 1.0, 1.0: 1.0}),
    ],
)
def test_probes_reach_their_analytic_values(probe, expected):
    env, learner = make(f"probe/{probe}", **PROBE)
    state, metrics = trained(learner, PROBE["num_updates"])
    found = values(env, state, PROBE)
    for shown, value in found.items():
        assert value == pytest.approx(expected[shown], abs=0.05), (probe, found)
    if "action" in probe:
        mean_return = metrics["actor/episode_return_sum"][-1] / metrics["actor/episodes_count"][-1]
        assert mean_return > 0.97  # the best policy's return is 1, a random one's 0


def test_a_truncation_is_bootstrapped():
    # Reward 1 for ever, cut every 5 steps: 1 / (1 - 0.9) = 10 if bootstrapped, at most 4.1 if taken for an end.
    leaves = PROBE | {"gae_lambda": 1.0, "num_updates": 150, "critic_lr": 1e-2}
    env, learner = make("probe/truncated_constant", **leaves)
    state, _ = trained(learner, 150)
    assert next(iter(values(env, state, leaves).values())) == pytest.approx(10.0, abs=0.7)


@functools.cache
def maze():
    env = sl.make_env("Maze-v0", kwargs={"num_rows": 5, "num_cols": 5})
    config = sl.ppo_config(**SMALL, observation_adapter="dense")
    network = sl.make_network(env, config)
    return env, network, config, ppo.make(env, network, config)


def test_stored_actions_are_legal_and_log_probs_are_of_the_acting_policy():
    from stoix_like.envs.auto_reset import auto_reset_for
    from stoix_like.ops import distributions

    env, network, config, learner = maze()
    auto_reset = auto_reset_for(env, 8, 4)
    settings = ppo.settings_of(env, config)
    state = jax.jit(learner.init)(jax.random.key(0))
    _, rows, _ = jax.jit(lambda s: ppo.collect(auto_reset, network, settings, s))(state)
    mask = rows.observation.action_mask  # [T, N, A]
    assert bool(jnp.take_along_axis(mask, rows.action[..., None], axis=-1).all())
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
    logits = network.actor(state.params, flat.observation)
    np.testing.assert_allclose(distributions.log_prob(logits, flat.action), flat.record, atol=1e-5)


def test_rates_fall_linearly_by_update_whatever_the_minibatches():
    env = sl.make_env("probe/constant_reward")
    rates = {}
    for num_minibatches in (1, 4):
        config = sl.ppo_config(**(SMALL | {"num_updates": 5, "num_minibatches": num_minibatches, "actor_lr": 1.0}))
        learner = ppo.make(env, sl.make_network(env, config), config)
        _, metrics = trained(learner, 6)
        rates[num_minibatches] = np.asarray(metrics["trainer/learning_rate"])
    np.testing.assert_allclose(rates[1], [1.0, 0.8, 0.6, 0.4, 0.2, 0.0], atol=1e-6)
    np.testing.assert_array_equal(rates[1], rates[4])


def test_hyper_parameters_are_leaves_a_two_rate_vmap_equals_two_runs():
    _, _, _, learner = maze()
    rates = jnp.array([1e-4, 3e-3])

    def run(rate):
        state = learner.init(jax.random.key(0))
        state = state._replace(hyper=state.hyper._replace(actor_lr=rate, clip_eps=rate * 50))
        return jax.lax.scan(lambda s, _: learner.update(s), state, None, 2)[0].params

    together = jax.jit(jax.vmap(run))(rates)
    for index in range(2):
        alone = jax.jit(run)(rates[index])
        jax.tree.map(lambda a, b, i=index: np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-5), together, alone)
    spread = jax.tree.map(lambda a: float(jnp.abs(a[0] - a[1]).max()), together.actor)
    assert max(jax.tree.leaves(spread)) > 1e-3


def test_running_returns_are_carried_across_updates():
    # Episodes of 5 steps in rollouts of 4: cut at the border, no episode would ever be 5 steps long.
    _, learner = make("probe/truncated_constant", **SMALL)
    _, metrics = trained(learner, 5)
    finished = metrics["actor/episodes_count"] > 0
    assert finished.sum() == 4  # episodes end at steps 5, 10, 15 and 20 of 20
    np.testing.assert_array_equal(metrics["actor/episode_length_max"][finished], 5.0)
    np.testing.assert_array_equal(metrics["actor/episode_return_min"][finished], 5.0)
    assert bool(jnp.isneginf(metrics["actor/episode_length_max"][~finished]).all())


@pytest.mark.parametrize("standardize", ["minibatch", "none"])
@pytest.mark.parametrize("value_clip_eps", [None, 0.2])
def test_options_run_and_stay_finite(standardize, value_clip_eps):
    _, learner = make(
        "probe/action_observation_reward",
        **SMALL | {"standardize_advantages": standardize, "value_clip_eps": value_clip_eps, "shared_torso": True},
    )
    state, metrics = trained(learner, 2)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(state.params))
    assert bool(jnp.isfinite(metrics["trainer/value_loss"]).all())


def test_reward_scale_scales_values_but_not_reported_returns():
    leaves = PROBE | {"reward_scale": 3.0}
    env, learner = make("probe/constant_reward", **leaves)
    state, metrics = trained(learner, 150)
    assert next(iter(values(env, state, leaves).values())) == pytest.approx(3.0, abs=0.15)
    assert metrics["actor/episode_return_max"][-1] == 1.0


def test_roles_never_share_a_key():
    root = jax.random.key(0)
    roles = ["params", "rollout", "pool", "evaluation", "reset", "shuffle"]
    seen = {tuple(np.asarray(jax.random.key_data(role_key(root, r, s)))) for r in roles for s in range(50)}
    assert len(seen) == len(roles) * 50


def test_changing_the_next_episode_changes_no_target_before_it():
    env, network, config, learner = maze()
    settings = ppo.settings_of(env, config)
    state = jax.jit(learner.init)(jax.random.key(0))
    from stoix_like.envs.auto_reset import auto_reset_for

    after, rows, _ = ppo.collect(auto_reset_for(env, 8, 4), network, settings, state)
    ends = rows.is_last.at[1].set(True)
    rows = rows._replace(is_last=ends, discount=rows.discount.at[1].set(0.0))
    settings = settings._replace(standardization="none")
    other = jax.tree.map(lambda x: x.at[2:].set(jnp.roll(x[2:], 1, axis=1)), rows.observation)
    changed = rows._replace(observation=other, reward=rows.reward.at[2:].add(7.0))
    before = ppo.compute_batch(network, settings, state, rows, after.observation)
    later = ppo.compute_batch(network, settings, state, changed, after.observation)
    np.testing.assert_array_equal(before.target[:2], later.target[:2])
    assert float(jnp.abs(before.target[2:] - later.target[2:]).min()) > 1.0
