"""SPO's gradient steps on sequences made by hand, with networks that are tables: targets, duals, what moves what."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.walks import look_at, table_network

from stoix_like.algorithms import spo, spo_learning
from stoix_like.algorithms.optimizer import init_dual_optimizer, init_optimizer
from stoix_like.algorithms.spo_state import Duals, ReplayStep, SearchTargets, SPOParams, SPOSettings, SPOState
from stoix_like.config.sections.runs import spo_config
from stoix_like.replay import Buffer
from stoix_like.search.model import SearchConfig
from stoix_like.types import NetworkParams

BATCH, LENGTH, PARTICLES, ACTIONS, PLACES = 4, 5, 8, 3, 7
NETWORK = table_network()
RATES = {"actor_lr": 0.01, "critic_lr": 0.02, "dual_lr": 0.05, "tau": 0.1}
NUMBERS = RATES | {"ent_coef": 0.0, "vf_coef": 1.0, "gamma": 0.9}
ENDS = ((0, 2), (1, 1), (2, 0), (2, 3))  # (row, step); of these two are truncations where there are any
TRUNCATED = ((1, 1), (2, 3))


def settings(mode="dual", *, truncates=False, gradient_steps=1, root=False):
    return SPOSettings(
        rollout_length=LENGTH,
        gradient_steps=gradient_steps,
        sequence_length=LENGTH,
        factored=False,
        can_truncate=truncates,
        decays_rates=False,
        constrains_root=root,
        temperature_mode=mode,
        search=SearchConfig(num_particles=PARTICLES),
    )


def sequences(*, truncates=False, log_prior=0.0):
    """Replayed steps as NumPy, of shape [B, L] where they store what followed, else [B, L + 1]."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, PLACES, (BATCH, LENGTH + 1))
    shape = (BATCH, LENGTH if truncates else LENGTH + 1)
    discount, is_last, following = np.ones(shape, np.float32), np.zeros(shape, bool), places[:, 1:].copy()
    for place in ENDS:
        is_last[place], discount[place] = True, float(truncates and place in TRUNCATED)
        following[place] = (following[place] + 1 + rng.integers(PLACES - 1)) % PLACES  # not where the next one begins
    numbers = (*shape, PARTICLES)
    weights, actions = rng.gamma(0.5, size=numbers), rng.integers(0, ACTIONS, numbers).astype(np.uint8)
    targets = SearchTargets(
        root_actions=actions,
        root_weights=(weights / weights.sum(-1, keepdims=True)).astype(np.float32),
        initial_root_actions=actions,
        advantages=rng.normal(0.0, 0.3, numbers).astype(np.float32),
        log_prior_ratio=rng.normal(0.0, 1.0, numbers).astype(np.float32) * np.float32(log_prior),
    )
    steps = ReplayStep(
        observation=look_at(places[:, : shape[1]]),
        reward=rng.normal(size=shape).astype(np.float32),
        discount=discount,
        is_last=is_last,
        targets=targets,
        next_observation=look_at(following) if truncates else None,
    )
    return jax.tree.map(np.array, steps)


def places_of(observation):
    return observation.agent_view["place"]


def tables(seed):
    """Parameters of a table network."""
    rng = np.random.default_rng(seed)
    logits, values = rng.normal(size=(PLACES, ACTIONS)), rng.normal(size=PLACES)
    return NetworkParams(None, jnp.asarray(logits, jnp.float32), jnp.asarray(values, jnp.float32))


def first_state(*, online=1, target=1, temperature=0.1, alpha=0.5, **leaves):
    """A state whose networks are tables of these seeds."""
    hyper = jax.tree.map(jnp.asarray, spo.make_hyper(spo_config(**NUMBERS | leaves)))
    duals = Duals(jnp.log(jnp.float32(temperature)), jnp.log(jnp.float32(alpha)))
    params = SPOParams(tables(online), tables(target), duals)
    optimizers = init_optimizer(params.online), init_dual_optimizer(duals)
    return SPOState(params, hyper, jax.random.key(0), jnp.int32(0), *optimizers, rollout=(), replay=())


@functools.cache
def learner_of(chosen):
    """(state, sequences, number of rounds, factor of the rates) -> (state, metrics of the last round); all rounds see
    the same sequences."""

    @jax.jit
    def run(state, steps, num_rounds, factor):
        buffer = Buffer(init=None, add=None, sample=lambda _state, _key: steps, can_sample=None)
        one = jax.jit(lambda s: spo_learning.optimize(NETWORK, buffer, chosen, s, factor))
        metrics = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(one, state)[1])
        return jax.lax.fori_loop(0, num_rounds, lambda _, carry: one(carry[0]), (state, metrics))

    return run


def learn(chosen, state, steps, num_rounds=1, factor=1.0):
    """The state after learning, and the metrics of the last round as numbers."""
    state, metrics = learner_of(chosen)(state, steps, num_rounds, jnp.float32(factor))
    return state, jax.tree.map(float, metrics)


def returns_by_hand(reward, discount, is_last, next_value, gamma, lambda_):
    """Lambda returns from their definition, backwards in float64: what follows a last step is never looked at."""
    target = np.zeros(reward.shape)
    for row in range(reward.shape[0]):
        later = 0.0
        for t in reversed(range(reward.shape[1])):
            stops = is_last[row, t] or t == reward.shape[1] - 1
            mixed = next_value[row, t] if stops else (1 - lambda_) * next_value[row, t] + lambda_ * later
            later = target[row, t] = reward[row, t] + gamma * discount[row, t] * mixed
    return target


@functools.cache
def _targets(truncates):
    chosen = settings(truncates=truncates)
    return jax.jit(lambda state, s: spo_learning.value_targets(NETWORK, chosen, state.hyper, state.params.target, s))


def value_targets(state, steps):
    return np.asarray(_targets(steps.next_observation is not None)(state, steps))


@pytest.mark.parametrize("truncates", [False, True])
def test_value_targets_equal_lambda_returns_by_hand(truncates):
    steps = sequences(truncates=truncates)
    state = first_state(online=1, target=2, reward_scale=3.0, gae_lambda=0.7)
    values = np.asarray(state.params.target.critic, np.float64)
    after = values[places_of(steps.next_observation) if truncates else places_of(steps.observation)[:, 1:]]
    rows = (3.0 * steps.reward[:, :LENGTH], steps.discount[:, :LENGTH], steps.is_last[:, :LENGTH], after)
    np.testing.assert_allclose(value_targets(state, steps), returns_by_hand(*rows, 0.9, 0.7), rtol=1e-5, atol=1e-5)


def test_nothing_is_learned_from_the_last_row_but_its_value():
    """Without a time limit it is what the one before reached."""
    steps, state = sequences(), first_state(target=2)
    changed = jax.tree.map(np.copy, steps)
    changed.reward[:, LENGTH] += 100.0
    changed.discount[:, LENGTH] = 0.5
    changed.is_last[:, LENGTH] ^= True
    changed.targets.root_actions[:, LENGTH] = 0
    changed.targets.root_weights[:, LENGTH] = np.nan
    changed.targets.advantages[:, LENGTH] = np.nan
    one, other = (learn(settings(), state, s) for s in (steps, changed))
    jax.tree.map(np.testing.assert_array_equal, (one[0].params, one[1]), (other[0].params, other[1]))
    places_of(changed.observation)[:, LENGTH] = (places_of(steps.observation)[:, LENGTH] + 1) % PLACES
    differences = np.abs(value_targets(state, steps) - value_targets(state, changed))
    assert differences[:, -1].min() > 1e-3


def test_values_are_drawn_to_the_targets_of_the_target_critic():
    steps, state = sequences(), first_state(online=1, target=2)
    _, metrics = learn(settings(), state, steps)
    value = np.asarray(state.params.online.critic)[places_of(steps.observation)[:, :LENGTH]]
    right, wrong = (np.mean((value - value_targets(first_state(target=t), steps)) ** 2) / 2 for t in (2, 1))
    assert metrics["trainer/value_loss"] == pytest.approx(right, rel=1e-5)
    assert abs(right - wrong) > 0.05  # they can be told apart


def test_a_target_network_follows_its_closed_form_and_the_policy_kl_counts_from_it_to_online():
    steps, state = sequences(), first_state(online=1, target=2)
    online, one_by_one = [], state
    for _ in range(4):
        one_by_one, _ = learn(settings(), one_by_one, steps)
        online.append(one_by_one.params.online)
    together, _ = learn(settings(gradient_steps=4), state, steps)
    keep = 0.9 ** np.arange(4, -1, -1, dtype=np.float64)  # 1 - tau = 0.9

    def closed_form(first, *followed):
        return keep[0] * first + 0.1 * np.tensordot(keep[1:], np.stack(followed).astype(np.float64), 1)

    expected = jax.tree.map(closed_form, state.params.target, *online)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), together.params.target, expected)
    jax.tree.map(np.testing.assert_array_equal, together.params, one_by_one.params)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), state.params.online, online[-1])
    assert min(jax.tree.leaves(moved)) > 1e-3
    steps = sequences()
    _, metrics = learn(settings(), first_state(online=1, target=1), steps)
    assert metrics["trainer/kl_policy"] == 0.0
    _, metrics = learn(settings(), first_state(online=1, target=2), steps)
    log_online, log_target = (jax.nn.log_softmax(tables(seed).actor) for seed in (1, 2))
    kl = jnp.sum(jnp.exp(log_target) * (log_target - log_online), axis=-1)
    expected = float(kl[places_of(steps.observation)[:, :LENGTH]].mean())
    assert metrics["trainer/kl_policy"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("root", "log_prior"), [("iid", 0.0), ("iid", 1.0), ("gumbel_topk", 1.0)])
def test_the_policy_goes_to_the_weights_of_the_search_unless_alpha_holds_it(root, log_prior):
    """Without a penalty its probabilities become the mean weight of each action at each place; with one, they stay.

    A state counts as much as its first weights add up to, of independent draws on average.
    """
    steps, chosen = sequences(log_prior=log_prior), settings()
    chosen = chosen._replace(search=chosen.search._replace(root=root))
    first = np.exp(steps.targets.log_prior_ratio[:, :LENGTH, :])
    mass = (first.mean(-1) if root == "iid" else first.sum(-1))[..., None]
    rates = {"tau": 0.0, "epsilon_policy": 1e3, "dual_lr": 0.0, "actor_lr": 0.05, "max_grad_norm": 1e3}
    place = places_of(steps.observation)[:, :LENGTH, None]
    expected = np.zeros((PLACES, ACTIONS))
    targets = mass * steps.targets.root_weights[:, :LENGTH]
    np.add.at(expected, (place, steps.targets.root_actions[:, :LENGTH]), targets)
    seen = np.unique(place)
    assert len(seen) >= 5
    expected = expected[seen] / expected[seen].sum(axis=-1, keepdims=True)
    for alpha, wanted in ((1e-6, expected), (1e3, jax.nn.softmax(tables(1).actor)[seen])):
        start = first_state(alpha=alpha, **rates)
        _, metrics = learn(chosen, start, steps)
        log_policy = np.asarray(jax.nn.log_softmax(tables(1).actor))
        each = targets * log_policy[place, steps.targets.root_actions[:, :LENGTH]]
        assert metrics["trainer/policy_loss"] == pytest.approx(-each.sum(-1).mean(), rel=1e-5)
        state, _ = learn(chosen, start, steps, num_rounds=600)
        np.testing.assert_allclose(jax.nn.softmax(state.params.online.actor)[seen], wanted, atol=0.02)
    assert np.abs(expected - wanted).max() > 0.2


def kl_by_hand(steps, temperature, *, root=False):
    """Mean KL in float64 over the rows learned from in which two different actions were drawn."""
    normal = lambda x: x / x.sum(-1, keepdims=True)
    rows = lambda x: x[:, :LENGTH].reshape(-1, PARTICLES)
    advantage, prior, drawn = (
        rows(x) for x in (steps.targets.advantages, steps.targets.log_prior_ratio, steps.targets.initial_root_actions)
    )
    tilt = (advantage - advantage.max(-1, keepdims=True)).astype(np.float64) / temperature
    base, weights = normal(np.exp(prior.astype(np.float64))), normal(np.exp(prior + tilt))
    if root:
        same = drawn[:, None, :] == np.arange(ACTIONS)[None, :, None]  # [M, A, P]
        base, weights = ((same * x[:, None]).sum(-1) for x in (base, weights))
    ratio = np.log(np.where(weights > 0, weights, 1.0)) - np.log(np.where(base > 0, base, 1.0))
    is_decided = np.array([len(set(row)) > 1 for row in drawn])
    return float((weights * ratio).sum(-1)[is_decided].mean())


def undecided(steps, first_row=0):
    """The same with one action drawn in every state from that row on, and advantages a hundred times as large."""
    changed = jax.tree.map(np.copy, steps)
    changed.targets.root_actions[first_row:] = 1
    changed.targets.initial_root_actions[first_row:] = 1
    changed.targets.advantages[first_row:] *= 100.0
    return changed


CONSTRAINTS = pytest.mark.parametrize(("root", "epsilon"), [(False, 0.5), (True, 0.2)])


@CONSTRAINTS
@pytest.mark.parametrize(("start", "direction"), [(0.01, 1.0), (3.0, -1.0)])
def test_the_learned_temperature_moves_towards_epsilon_and_stays_there(root, epsilon, start, direction):
    """Whatever the advantages in states without a choice: neither the KLs nor the dual see them."""
    steps = undecided(sequences(), first_row=3)
    state, chosen = first_state(temperature=start, epsilon=epsilon), settings(root=root)
    after, metrics = learn(chosen, state, steps)
    assert np.sign(after.params.duals.log_temperature - state.params.duals.log_temperature) == direction
    assert metrics["trainer/temperature"] == pytest.approx(start, rel=1e-5)
    assert metrics["trainer/kl_nonparametric"] == pytest.approx(kl_by_hand(steps, start), rel=1e-4)
    assert metrics["trainer/kl_root"] == pytest.approx(kl_by_hand(steps, start, root=True), rel=1e-4)
    settled, _ = learn(chosen, state, steps, num_rounds=300)
    found = float(settled.params.duals.temperature)
    assert kl_by_hand(steps, found, root=root) == pytest.approx(epsilon, rel=0.03)


@CONSTRAINTS
@pytest.mark.parametrize("log_prior", [0.0, 1.0])
def test_the_solved_temperature_meets_epsilon_on_the_batch(root, epsilon, log_prior):
    """From one step on, wherever it began; states without a choice have no say in it."""
    steps = undecided(sequences(log_prior=log_prior), first_row=3)
    state, metrics = learn(settings("solve", root=root), first_state(temperature=5.0, epsilon=epsilon), steps)
    assert kl_by_hand(steps, float(state.params.duals.temperature), root=root) == pytest.approx(epsilon, rel=1e-3)
    assert metrics["trainer/decided_states"] == pytest.approx(0.75)


def test_the_constraint_is_on_roots_that_were_drawn_in_states_with_a_choice():
    """Advantages stand beside the first draw; what a resampling left over may be a single action."""
    steps = sequences()
    resampled = steps._replace(targets=steps.targets._replace(root_actions=np.zeros_like(steps.targets.root_actions)))
    chosen, state = settings("solve", root=True), first_state(epsilon=0.2)
    one, _ = learn(chosen, state, steps)
    other, metrics = learn(chosen, state, resampled)
    assert metrics["trainer/decided_states"] == 1.0
    np.testing.assert_array_equal(one.params.duals.log_temperature, other.params.duals.log_temperature)


def test_a_fixed_temperature_is_what_the_number_says_and_others_follow_the_deviation_of_the_advantages():
    state = first_state(temperature=0.7, fixed_temperature=0.2, temperature_floor=50.0)
    after, _ = learn(settings("fixed"), state, sequences(), num_rounds=3)
    assert float(after.params.duals.temperature) == pytest.approx(0.2, rel=1e-6)
    assert float(after.params.duals.log_alpha) != float(state.params.duals.log_alpha)
    # with mode std it tells what searches use on average; the floor of the others is a share of the same number
    steps = undecided(sequences(), first_row=3)
    spread = steps.targets.advantages[:3, :LENGTH].std(axis=-1).mean()
    for mode, floor, expected in (("std", 50.0, spread), ("dual", 5.0, 5.0 * spread), ("solve", 5.0, 5.0 * spread)):
        after, _ = learn(settings(mode), first_state(temperature=0.1, temperature_floor=floor), steps)
        assert float(after.params.duals.temperature) == pytest.approx(expected, rel=1e-4), mode


@pytest.mark.parametrize(("mode", "root"), [("dual", False), ("dual", True), ("solve", False), ("std", False)])
def test_states_without_a_choice_leave_the_temperature_alone(mode, root):
    """Also right after it was moving: an optimiser's momentum is no reason to go on."""
    chosen, steps = settings(mode, root=root), sequences()
    moving, _ = learn(chosen, first_state(), steps, num_rounds=5)
    after, metrics = learn(chosen, moving, undecided(steps), num_rounds=5)
    assert metrics["trainer/decided_states"] == metrics["trainer/kl_nonparametric"] == metrics["trainer/kl_root"] == 0.0
    np.testing.assert_array_equal(after.params.duals.log_temperature, moving.params.duals.log_temperature)
    assert float(after.params.duals.log_alpha) != float(moving.params.duals.log_alpha)


def test_alpha_rises_where_the_policy_left_its_target_and_a_rate_of_zero_holds_both_duals():
    for target, direction in ((1, -1.0), (2, 1.0)):  # the policy still, the policy far
        state = first_state(online=1, target=target, alpha=0.5)
        after, metrics = learn(settings(), state, sequences())
        assert metrics["trainer/alpha"] == pytest.approx(0.5, rel=1e-6)
        assert np.sign(float(after.params.duals.log_alpha - state.params.duals.log_alpha)) == direction
    after, _ = learn(settings(), first_state(dual_lr=0.0, target=2), sequences(), num_rounds=3)
    assert float(after.params.duals.temperature) == pytest.approx(0.1, rel=1e-6)
    assert float(after.params.duals.alpha) == pytest.approx(0.5, rel=1e-6)


def test_an_entropy_bonus_makes_the_policy_even():
    steps, state = sequences(), first_state(ent_coef=100.0, actor_lr=0.05, epsilon_policy=1e3, alpha=1e-6)
    _, first = learn(settings(), state, steps)
    _, last = learn(settings(), state, steps, num_rounds=300)
    assert first["trainer/entropy"] < 1.05 < last["trainer/entropy"] == pytest.approx(np.log(ACTIONS), abs=0.01)


def test_rates_that_fall_are_those_of_the_networks_and_not_of_the_duals():
    """Half the rate is half of Adam's first step, in policy and value; both duals take their whole step, and at 0."""
    state, steps = first_state(target=2), sequences()
    whole, half, none = (learn(settings(), state, steps, factor=f)[0].params for f in (1.0, 0.5, 0.0))
    for name in ("actor", "critic"):
        first, *reached = (np.asarray(getattr(p.online, name)) for p in (state.params, whole, half, none))
        steps_taken = [x - first for x in reached]
        np.testing.assert_allclose(steps_taken[1], 0.5 * steps_taken[0], atol=1e-6)
        np.testing.assert_array_equal(steps_taken[2], 0.0)
        assert np.abs(steps_taken[0]).max() == pytest.approx(RATES[f"{name}_lr"], rel=1e-2)
    for params in (whole, half, none):
        moved = jax.tree.map(lambda a, b: float(abs(a - b)), params.duals, state.params.duals)
        np.testing.assert_allclose(moved, RATES["dual_lr"], rtol=1e-4)
