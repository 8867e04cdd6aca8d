"""SPO as a whole: probes reach their values, what the search found is stored and learned from, numbers are traced."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import assert_legal, assert_same_bits
from support.configs import DISTINCT, SOLVED
from support.probes import BEST, HARDEST, KNOWN, observations, one_of_the_probes
from support.walks import EVERYTHING, SIZES, network_of, played, walked, with_numbers

import stoix_like as sl
from stoix_like.algorithms import searching, spo
from stoix_like.algorithms.spo_state import Duals, SPOHyper, SPOParams
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.sections.runs import ppo_config, spo_config
from stoix_like.envs.auto_reset import auto_reset_for
from stoix_like.errors import ConfigError
from stoix_like.ops import distributions
from stoix_like.search.diagnostics import SearchDiagnostics
from stoix_like.types import KEY_ROLES, ActionSpec, Environment, NetworkParams, role_key

ROLLOUT = {"num_envs": 16, "rollout_length": 8, "hidden_dim": 16, "num_layers": 1, "gamma": 0.9}
SEARCH = {"num_particles": 4, "search_depth": 2, "init_temperature": 0.5, "epsilon_policy": 0.1}
REPLAY = {"replay_buffer_size": 16 * 32, "sample_sequence_length": 8, "batch_size": 16, "epochs": 8}
RATES = {"actor_lr": 1e-2, "critic_lr": 1e-2, "tau": 0.05, "decay_learning_rates": False}
PROBE = ROLLOUT | SEARCH | REPLAY | RATES | {"num_minibatches": 1, "ent_coef": 0.0, "vf_coef": 1.0}


MODES = {  # the paper's, and those of the presets for BinPack and for Maze
    "iid": {},
    "distinct": DISTINCT,
    "resampled": SOLVED | {"resampling_period": 1},
}
EACH_MODE = pytest.mark.parametrize("mode", MODES)


@functools.cache
def probes_learned(mode, names=tuple(KNOWN)):
    """(network, parameters [K, ...], metrics [K, 60]) of these probes side by side after 60 updates."""
    config = spo_config(**PROBE | MODES[mode])
    network = sl.make_network(one_of_the_probes(0, names), config)

    def train(which):
        learner = spo.make(one_of_the_probes(which, names), network, config)
        return jax.lax.scan(lambda s, _: learner.update(s), learner.init(jax.random.key(0)), None, 60)

    state, metrics = jax.jit(jax.vmap(train))(jnp.arange(len(names)))
    return network, state.params, {name: np.asarray(value) for name, value in metrics.items()}


def assert_learned(learned, index, probe):
    """That the values of a probe are analytic, and that the search's choice was taken over by the network."""
    (network, params, metrics), observation = learned, observations(probe)
    for kind in (params.online, params.target):
        values = network.critic(jax.tree.map(lambda x: x[index], kind), observation)
        np.testing.assert_allclose(values, list(KNOWN[probe].values()), atol=0.05)
    if probe in BEST:  # a random policy's return is 0 at most
        logits = network.actor(jax.tree.map(lambda x: x[index], params.online), observation)
        best = jnp.array(list(BEST[probe].values()))
        assert float(jnp.take_along_axis(jax.nn.softmax(logits), best[:, None], axis=1).min()) > 0.9
        total, count = (
            metrics[f"actor/{name}"][index, -10:].sum() for name in ("episode_return_sum", "episodes_count")
        )
        assert total / count > 0.97


def test_the_hardest_probe_reaches_its_values_and_policy_and_its_particles_are_drawn_anew():
    learned = probes_learned("resampled", (HARDEST,))
    assert_learned(learned, 0, HARDEST)
    assert lost_roots(learned[2]).max() > 0.1


@pytest.mark.full
@EACH_MODE
@pytest.mark.parametrize("probe", KNOWN)
def test_probes_reach_their_analytic_values_and_policies(probe, mode):
    assert_learned(probes_learned(mode), list(KNOWN).index(probe), probe)


def lost_roots(metrics):
    return metrics["trainer/distinct_root_actions"] - metrics["trainer/surviving_root_actions"]


@pytest.mark.full
@EACH_MODE
def test_particles_of_a_probe_are_drawn_anew_in_the_mode_that_says_so(mode):
    """Nowhere but where a choice was made and another one is open: of two distinct roots often only one survives."""
    lost, index = lost_roots(probes_learned(mode)[2]), list(KNOWN).index(HARDEST)
    assert (lost[index].max() > 0.1) == (mode == "resampled")
    assert np.delete(lost, index, axis=0).max() == 0.0


def stored_steps(state, num_steps):
    """The steps in a replay that is not full, by time [T, N, ...]."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:, :num_steps], state.replay.experience)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), flat)


def test_the_replay_holds_what_was_played_in_small_types():
    walk, state = walked()
    state, collected = with_numbers(state, reward_scale=2.0), []  # the update's own search is to read it, too
    for _ in range(2):
        _, transitions, _ = walk.collect(state)
        collected.append(transitions)
        state, _ = walk.update(state)
    played_steps = jax.tree.map(lambda *x: jnp.concatenate(x), *collected)
    targets, _ = played_steps.record
    stored = stored_steps(state, 8)
    assert (int(state.replay.current_index), bool(state.replay.is_full)) == (8, False)
    for name in ("observation", "reward", "discount", "is_last", "next_observation"):
        assert_same_bits(getattr(stored, name), getattr(played_steps, name))
    assert_same_bits(stored.targets, targets)
    assert stored.targets.root_actions.dtype == stored.targets.initial_root_actions.dtype == jnp.uint8
    assert bool(played_steps.is_last.any())
    assert float(played_steps.discount[played_steps.is_last].max()) == 1.0  # truncations among them
    assert float(played_steps.discount.min()) == 0.0  # and terminations


def test_stored_roots_are_legal_and_kept_where_one_may_be_replaced_and_next_observations_true():
    walk, state = walked()
    _, rows, _ = walk.collect(state)
    targets, _ = rows.record
    assert bool((targets.initial_root_actions != targets.root_actions).any())
    kept, drawn = (np.asarray(x).reshape(-1, 6) for x in (targets.root_actions, targets.initial_root_actions))
    assert all(set(after) <= set(before) for after, before in zip(kept, drawn, strict=True))
    assert_legal(targets.root_actions, rows.observation.action_mask)
    assert np.isfinite(np.asarray(targets.advantages)).all()  # no particle ever took an illegal step
    assert np.isfinite(np.asarray(rows.reward)).all()
    # Within an episode the next row's, at its end the one that was reached and never that of the new level.
    after, following = (o.agent_view["features"] for o in (rows.next_observation, rows.observation))
    goes_on = np.asarray(~rows.is_last[:-1])
    np.testing.assert_array_equal(after[:-1][goes_on], following[1:][goes_on])
    ended = np.asarray(rows.is_last)
    assert ended[:-1].sum() > 2
    np.testing.assert_array_equal(after[ended][:, 1], following[ended][:, 1])  # the level just played
    assert (np.asarray(after)[ended][:, 2] == 3).all()
    assert (np.asarray(following)[1:][ended[:-1]][:, 2] == 0).all()


@pytest.mark.parametrize(
    ("changes", "keeps_drawn", "keeps_prior"),
    [
        ({}, False, False),  # period 4, depth 3
        ({"resampling_period": 2}, True, False),
        ({"resampling": "ess"}, True, False),
        ({"root_noise_correction": True}, False, True),
        ({"root": "gumbel_topk", "resampling": "none"}, False, True),
    ],
)
def test_only_what_can_differ_is_stored(changes, keeps_drawn, keeps_prior):
    walk = played(**changes)
    targets = jax.eval_shape(walk.learner.init, jax.random.key(0)).replay.experience.targets
    assert (targets.initial_root_actions is not None, targets.log_prior_ratio is not None) == (keeps_drawn, keeps_prior)


def test_rewards_are_stored_as_they_are_and_advantages_in_the_learners_scale():
    """To the search a scaled reward is another reward: advantages are linear in it, the values staying as they are."""
    walk, state = walked()
    numbers = [{"reward_scale": scale, "resampling_ess_threshold": 0.0} for scale in (1.0, 2.0, 3.0)]
    rows = [walk.collect(with_numbers(state, **given))[1] for given in numbers]
    advantages = [r.record[0].advantages[0] for r in rows]  # of the first step: later ones follow other actions
    slopes = advantages[1] - advantages[0], advantages[2] - advantages[1]
    np.testing.assert_allclose(*slopes, atol=1e-5)
    assert float(jnp.abs(slopes[0]).max()) > 0.5
    before, after = (np.asarray(o.agent_view["features"]) for o in (rows[2].observation, rows[2].next_observation))
    stride, level = after[..., 0] - before[..., 0], before[..., 1]
    own = 0.1 * level * np.where(stride < 0, 0, stride) - 0.02
    on_the_way = after[..., 0] < 5
    np.testing.assert_allclose(np.asarray(rows[2].reward)[on_the_way], own[on_the_way], atol=1e-6)


def weights_of(targets, temperature):
    """softmax(log prior + advantage / temperature), in float64."""
    prior = 0.0 if targets.log_prior_ratio is None else np.asarray(targets.log_prior_ratio, np.float64)
    logits = prior + np.asarray(targets.advantages, np.float64) / temperature
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def test_an_updates_search_reads_the_temperature_the_last_update_left():
    walk, state = walked()
    state, temperatures = with_numbers(state, dual_lr=0.2, resampling_ess_threshold=0.0), []
    prior = walk.collect(state)[1].record[0].log_prior_ratio
    assert float(jnp.abs(prior).max()) > 0.1  # else the weights would not show it
    for _ in range(4):
        temperatures.append(float(state.params.duals.temperature))
        state, _ = walk.update(state)
    stored = stored_steps(state, 10)  # of sixteen steps the first six were overwritten
    assert bool(state.replay.is_full)
    assert temperatures[0] == temperatures[1] == pytest.approx(0.3, rel=1e-6)
    assert len(set(temperatures[1:])) == 3
    for time in range(6, 16):
        targets = jax.tree.map(lambda x, t=time: x[t % 10], stored.targets)
        np.testing.assert_allclose(targets.root_weights, weights_of(targets, temperatures[time // 4]), atol=2e-5)


def test_a_fixed_temperature_is_read_from_the_state_and_std_gives_each_search_its_own():
    """So a sweep over it, and a run continued with another, search with it from the first step on."""
    env = sl.make_env("probe/action_observation_reward")
    config = spo_config(**PROBE | {"temperature_mode": "fixed", "fixed_temperature": 9.0, "search_depth": 1})
    network = sl.make_network(env, config)
    learner, settings = spo.make(env, network, config), spo.settings_of(env, config)
    auto_reset, model = auto_reset_for(env, 16, 8), searching.search_model(env, network)

    @jax.jit
    def first_rollout(key):
        state = learner.init(key)
        state = state._replace(hyper=state.hyper._replace(fixed_temperature=jnp.float32(0.7)))
        return spo.collect(auto_reset, model, settings, 2, state)[1].record[0], state.params.duals.temperature

    targets, held = first_rollout(jax.random.key(0))
    np.testing.assert_allclose(targets.root_weights, weights_of(targets, 0.7), atol=2e-5)
    assert float(held) == pytest.approx(9.0)
    assert len(np.unique(targets.root_actions)) == 2
    settings = walked()[0].settings._replace(temperature_mode="std")
    temperature = spo.temperature_of(settings, walked()[1].params)
    advantages = np.array([[0.0, 1.0, 2.0, 5.0], [3.0, 3.0, 3.0, 3.0]], np.float32)
    np.testing.assert_allclose(temperature(jnp.asarray(advantages)), [advantages[0].std(), 1e-3], rtol=1e-6)


def constant_network():
    """Logits and value are the parameters themselves, wherever one is."""

    def actor(params, observation):
        logits = jnp.broadcast_to(params.actor, observation.action_mask.shape)
        return distributions.masked_logits(logits, observation.action_mask)

    def critic(params, observation):
        return jnp.broadcast_to(params.critic, observation.action_mask.shape[:1])

    return network_of(NetworkParams(None, jnp.zeros(2), jnp.zeros(())), actor, critic)


def test_policies_ask_the_online_network_and_the_dual():
    """Both actions are drawn; a hot search follows the policy it began with, a cold one the reward."""
    env = sl.make_env("probe/action_reward")
    config = spo_config(**PROBE | {"num_particles": 2, "search_depth": 1, "root": "gumbel_topk"})
    learner = spo.make(env, constant_network(), config)
    state, timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 2000))
    online, target = (NetworkParams(None, jnp.log(jnp.array(p)), jnp.zeros(())) for p in ([0.8, 0.2], [0.1, 0.9]))
    act, alone = (jax.jit(p, static_argnums=4) for p in (learner.policy, learner.network_policy))
    for temperature, share_of_ones in ((1e3, 0.2), (1e-3, 1.0)):
        duals = Duals(jnp.log(jnp.float32(temperature)), jnp.float32(0.0))
        arguments = SPOParams(online, target, duals), state, timestep.observation, jax.random.key(1)
        assert float(act(*arguments, False).mean()) == pytest.approx(share_of_ones, abs=0.04)
        assert float(alone(*arguments, False).mean()) == pytest.approx(0.2, abs=0.04)
    assert float(alone(*arguments, True).max()) == 0


def test_training_searches_with_the_online_network_and_the_target_begins_as_its_equal():
    walk, state = walked()
    assert_same_bits(state.params.online, state.params.target)
    other = jax.tree.map(lambda x: x + 1.0, state.params.online)
    searches = [
        walk.collect(state._replace(params=p))[1].record[0]
        for p in (state.params, state.params._replace(target=other), state.params._replace(online=other))
    ]
    assert_same_bits(searches[0], searches[1])
    assert float(jnp.abs(searches[0].advantages[0] - searches[2].advantages[0]).max()) > 0.1


def test_nothing_is_learned_before_a_whole_sequence_was_played():
    """Four steps an update, sequences of six: the second update is the first that learns."""
    walk, state = walked()
    waited, metrics = walk.update(state)
    assert_same_bits(
        (state.params, state.optimizer, state.dual_optimizer), (waited.params, waited.optimizer, waited.dual_optimizer)
    )
    learned = [n for n in metrics if n.startswith("trainer/") and n not in SEARCH_METRICS and "learning_rate" not in n]
    assert {"trainer/policy_loss", "trainer/value_loss", "trainer/kl_policy", "trainer/temperature"} <= set(learned)
    assert {name: float(metrics[name]) for name in learned} == dict.fromkeys(learned, 0.0)
    assert float(metrics["trainer/gradient_steps_sum"]) == 0.0
    assert float(metrics["trainer/model_steps_sum"]) > 0.0
    assert (int(waited.step), int(waited.replay.current_index)) == (1, 4)
    after, metrics = walk.update(waited)
    assert float(metrics["trainer/gradient_steps_sum"]) == 4.0
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), waited.params, after.params)
    assert min(jax.tree.leaves(moved.duals)) > 0.0
    assert min(max(jax.tree.leaves(part)) for part in (moved.online.actor, moved.online.critic, moved.target)) > 0.0


SEARCH_METRICS = {
    *(f"trainer/effective_sample_size_depth_{depth}" for depth in (1, 2, 3)),
    *(f"trainer/{name}" for name in ("distinct_root_actions", "surviving_root_actions")),
    *(f"trainer/search_{name}" for name in ("trajectory_kl", "root_kl")),
    "trainer/model_steps_sum",
}


def test_what_the_search_did_is_told_as_means_over_its_decisions():
    walk, state = walked()
    _, rows, _ = walk.collect(state)
    _, metrics = walk.update(state)
    targets, diagnostics = rows.record
    assert set(metrics) >= SEARCH_METRICS
    assert float(metrics["trainer/model_steps_sum"]) == int(diagnostics.model_steps.sum())
    for name, actions in (("distinct", targets.initial_root_actions), ("surviving", targets.root_actions)):
        expected = np.mean([len(set(row)) for row in np.asarray(actions).reshape(-1, SIZES["num_particles"])])
        assert float(metrics[f"trainer/{name}_root_actions"]) == pytest.approx(expected, rel=1e-6)
    for depth in (1, 2, 3):
        size = float(metrics[f"trainer/effective_sample_size_depth_{depth}"])
        sizes = np.asarray(diagnostics.effective_sample_size[..., depth - 1])
        assert size == pytest.approx(sizes[sizes > 0].mean(), rel=1e-6)
    assert (sizes == 0).any()  # else it tests nothing: some searches ended before the last depth
    last = 1.0 / np.square(np.asarray(targets.root_weights)).sum(-1).mean()
    assert float(metrics["trainer/effective_sample_size_depth_3"]) >= last  # Jensen


def test_a_deep_search_tells_its_sample_sizes_at_few_depths():
    for depth, shown in ((4, [1, 2, 3, 4]), (8, [*range(1, 9)]), (9, [1, 2, 4, 8, 9]), (20, [1, 2, 4, 8, 16, 20])):
        ones = jnp.ones((3, 2))
        sizes = jnp.broadcast_to(jnp.arange(1.0, depth + 1.0), (3, 2, depth))
        metrics = spo.search_metrics(SearchDiagnostics(sizes, ones, ones, ones, ones, ones))
        told = {int(n.rsplit("_", 1)[1]): float(v) for n, v in metrics.items() if "effective" in n}
        assert told == {d: float(d) for d in shown}


OTHER_RATES = {"actor_lr": 1e-2, "critic_lr": 1e-2, "dual_lr": 0.3, "max_grad_norm": 1e-4, "num_updates": 3.0}
OTHER_LOSSES = {"ent_coef": 300.0, "vf_coef": 1e-4, "gamma": 0.5, "gae_lambda": 0.3, "reward_scale": 4.0, "tau": 0.5}
OTHER_DUALS = {"epsilon": 3.0, "epsilon_policy": 1e-9, "temperature_floor": 50.0}
OTHER_SEARCH = {"search_gamma": 0.3, "search_gae_lambda": 0.2, "resampling_ess_threshold": 0.1}
OTHER_NOISE = {"root_exploration_dirichlet_alpha": 0.01, "root_exploration_dirichlet_fraction": 0.9}
OTHER_VALUES = OTHER_RATES | OTHER_LOSSES | OTHER_DUALS | OTHER_SEARCH | OTHER_NOISE
SEEDS = (1, 2)


@functools.cache
def lanes():
    """(parameters and episodes of all lanes after three updates side by side, the same of separate runs). Lane 0 is as
    configured, the next ones have another value of one number each, the last ones another seed."""
    walk, first = walked()
    start = first.hyper
    hypers = [start, *(start._replace(**{n: jnp.float32(v)}) for n, v in OTHER_VALUES.items()), *[start] * len(SEEDS)]
    seeds = [0] * (1 + len(OTHER_VALUES)) + list(SEEDS)

    def run(hyper, seed):
        state = walk.learner.init(jax.random.key(seed))._replace(hyper=hyper)
        state, metrics = jax.lax.scan(lambda s, _: walk.learner.update(s), state, None, 3)
        return state.params, metrics["actor/episodes_count"].sum()

    def run_alone(hyper, seed):
        state, episodes = walk.init(jax.random.key(seed))._replace(hyper=hyper), 0.0
        for _ in range(3):
            state, metrics = walk.update(state)
            episodes += metrics["actor/episodes_count"]
        return state.params, episodes

    together = jax.jit(jax.vmap(run))(jax.tree.map(lambda *x: jnp.stack(x), *hypers), jnp.array(seeds))
    return jax.device_get((together, [run_alone(*lane) for lane in zip(hypers, seeds, strict=True)]))


LANES = ["as configured", *OTHER_VALUES, *(f"seed {seed}" for seed in SEEDS)]


@pytest.mark.parametrize("index", range(len(LANES)), ids=LANES)
def test_runs_side_by_side_equal_separate_ones_and_every_number_counts(index):
    together, alone = lanes()
    # Batched matrix products round differently, so the last bits differ; one other action would differ far more.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[index], b, rtol=1e-3, atol=1e-4), together, alone[index])
    if index > 0:
        effect = jax.tree.map(lambda a, b: np.abs(a - b).max(), alone[index][0], alone[0][0])
        assert max(jax.tree.leaves(effect)) > 2e-4


def test_numbers_of_the_state_are_those_of_the_configuration_and_all_are_tried():
    config = played(limit=3, **EVERYTHING).config
    hyper = spo.make_hyper(config)
    for name in SPOHyper._fields:
        assert float(getattr(hyper, name)) == np.float32(get_leaf(config, name)), name
        assert getattr(hyper, name).dtype == np.float32
    # every number is tried below
    untried = set(SPOHyper._fields) - set(OTHER_VALUES)
    assert untried == {"fixed_temperature"}  # of another mode: tried above, where it is read from the state
    # null numbers of the search are those of the learner
    given = spo.make_hyper(spo_config(gamma=0.7, gae_lambda=0.6, search_gamma=None, search_gae_lambda=None))
    assert (float(given.search_gamma), float(given.search_gae_lambda)) == (np.float32(0.7), np.float32(0.6))
    own = spo.make_hyper(spo_config(gamma=0.7, search_gamma=0.0, search_gae_lambda=0.5))
    assert (float(own.search_gamma), float(own.search_gae_lambda), float(own.gamma)) == (0.0, 0.5, np.float32(0.7))
    config = spo_config(gamma=0.7, search_gamma=None, gae_lambda=0.6, search_gae_lambda=None)
    searched = searching.search_config(played().env, config.spo, 0.7, 0.6)
    assert (searched.gamma, searched.gae_lambda) == (0.7, 0.6)


def test_what_cannot_work_is_refused_when_the_learner_is_made_and_roles_never_share_a_key():
    endless = Environment(*played().env[:2], ActionSpec(3), deterministic=True)
    config = spo_config(**SIZES | {"search_depth": "full"})
    with pytest.raises(ConfigError, match="search_depth: full needs an end"):
        spo.make(endless, played().network, config)
    full = spo_config(**SIZES | {"replay_buffer_size": 8 * 7})  # seven steps: six and what follows
    assert spo.make(played().env, played().network, full)
    with pytest.raises(ConfigError, match="6 are sampled with 1 more at once"):
        spo_config(**SIZES | {"replay_buffer_size": 8 * 6})
    with pytest.raises(ConfigError, match="a PPOConfig has no section spo"):
        spo.make(played().env, played().network, ppo_config())
    root = jax.random.key(0)
    seen = {tuple(np.asarray(jax.random.key_data(role_key(root, r, s)))) for r in KEY_ROLES for s in range(50)}
    assert len(seen) == len(KEY_ROLES) * 50
