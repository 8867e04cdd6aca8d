"""Weights and duals of MPO against hand-computed values, rlax, the formulas in float64, and scipy.

Tolerances of 1e-5 are float32's through a few exponentials; a test with another says why.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from scipy import optimize
from support.marks import full

from stoix_like.ops import distributions, mpo

LOG_2, LOG_3 = np.log(2.0), np.log(3.0)
ALL_VALID = jnp.ones(5, bool)

weights_and_loss = jax.jit(mpo.weights_and_temperature_loss)
mean_kl = jax.jit(mpo.mean_kl)
advantage_spread = jax.jit(mpo.advantage_spread)


def random_case(seed=0, num_states=5, num_particles=7, scale=1.0):
    """Advantages and log prior ratios [B, P]."""
    keys = jax.random.split(jax.random.key(seed))
    shape = (num_states, num_particles)
    return scale * jax.random.normal(keys[0], shape), jax.random.normal(keys[1], shape)


def softmax64(x):
    x = np.asarray(x, np.float64)
    exp = np.exp(x - x.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def kl64(advantage, log_prior_ratio, temperature):
    """KL of the weights from the base per state [B], in float64."""
    base = softmax64(log_prior_ratio)
    weights = softmax64(np.asarray(log_prior_ratio, np.float64) + np.asarray(advantage, np.float64) / temperature)
    return (weights * np.log(np.where(weights > 0, weights, 1.0) / base)).sum(-1)


@jax.jit
def temperature_gradient(advantage, log_prior_ratio, is_valid, temperature, epsilon):
    def loss(t):
        return mpo.weights_and_temperature_loss(advantage, log_prior_ratio, is_valid, t, epsilon).loss

    return jax.grad(loss)(temperature)


def test_weights_loss_and_kl_by_hand():
    advantage = jnp.array([[0.0, LOG_3], [0.0, LOG_3]])
    log_prior_ratio = jnp.array([[0.0, 0.0], [LOG_3, 0.0]])
    is_valid = jnp.array([True, True])
    got = weights_and_loss(advantage, log_prior_ratio, is_valid, 1.0, 0.5)
    # State 0: exp(A) = (1, 3) over a uniform base. State 1: base (3/4, 1/4) times (1, 3) is (3, 3) / 4.
    np.testing.assert_allclose(got.weights, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6)
    # log of the base-weighted mean of exp(A): log 2 and log 1.5.
    np.testing.assert_allclose(got.loss, 0.5 + (LOG_2 + np.log(1.5)) / 2, rtol=1e-6)
    kl = [0.25 * np.log(0.5) + 0.75 * np.log(1.5), 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)]
    np.testing.assert_allclose(got.kl, np.mean(kl), rtol=1e-5)
    # Twice the advantage at twice the temperature: the same weights, twice the loss.
    twice = weights_and_loss(2 * advantage, log_prior_ratio, is_valid, 2.0, 0.5)
    np.testing.assert_allclose(twice.weights, got.weights, rtol=1e-6)
    np.testing.assert_allclose(twice.loss, 2 * got.loss, rtol=1e-6)


@pytest.mark.parametrize("temperature", [1e-6, 1e-2, 1.0, 1e3])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e4])
def test_weights_loss_kl_and_gradient_equal_float64(temperature, scale):
    """Where the particles are all actions it is acme's CategoricalMPO; with a uniform base, rlax's below."""
    advantage, log_prior_ratio = random_case(2, scale=scale)
    is_valid = jnp.array([True, False, True, True, True])
    got = weights_and_loss(advantage, log_prior_ratio, is_valid, temperature, 0.5)
    best = np.asarray(advantage, np.float64).max(-1, keepdims=True)
    tilted = np.log(softmax64(log_prior_ratio)) + (np.asarray(advantage, np.float64) - best) / temperature
    np.testing.assert_allclose(got.weights, softmax64(tilted), rtol=1e-4, atol=1e-7)
    log_normalizer = np.log(np.exp(tilted).sum(-1)) + best[:, 0] / temperature
    np.testing.assert_allclose(got.loss, temperature * (0.5 + log_normalizer[is_valid].mean()), rtol=1e-5)
    slope = temperature_gradient(advantage, log_prior_ratio, is_valid, temperature, 0.5)
    np.testing.assert_allclose(slope, 0.5 - got.kl, rtol=1e-5, atol=2e-6)
    kl = kl64(advantage, log_prior_ratio, temperature)[is_valid].mean()
    np.testing.assert_allclose(got.kl, kl, rtol=1e-4, atol=1e-6)


def test_weights_loss_and_gradient_equal_rlax_where_the_base_is_uniform():
    advantage, _ = random_case()

    def theirs(t):
        constraint = rlax.LagrangePenalty(alpha=t, epsilon=jnp.float32(0.3))
        loss, weights, _ = rlax.mpo_compute_weights_and_temperature_loss(advantage, constraint, lambda x: x, 1)
        return jnp.mean(loss), weights

    (loss, weights), slope = jax.jit(jax.value_and_grad(theirs, has_aux=True))(jnp.float32(0.7))
    arguments = advantage, jnp.zeros_like(advantage), ALL_VALID, 0.7, 0.3
    got = weights_and_loss(*arguments)
    np.testing.assert_allclose(got.weights, weights, rtol=1e-4, atol=1e-7)  # rlax divides, then subtracts the max
    np.testing.assert_allclose(got.loss, loss, rtol=1e-5)
    np.testing.assert_allclose(temperature_gradient(*arguments), slope, rtol=1e-5, atol=1e-6)


def test_limits_of_the_temperature_are_the_base_and_the_best_particle_and_shifts_change_no_weight():
    advantage, log_prior_ratio = random_case(4)
    hot = weights_and_loss(advantage, log_prior_ratio, ALL_VALID, 1e8, 0.5)
    np.testing.assert_allclose(hot.weights, softmax64(log_prior_ratio), rtol=1e-5)
    np.testing.assert_allclose(hot.kl, 0.0, atol=1e-6)
    cold = weights_and_loss(advantage, log_prior_ratio, ALL_VALID, 1e-6, 0.5)
    np.testing.assert_array_equal(cold.weights, jax.nn.one_hot(jnp.argmax(advantage, -1), 7))
    best = np.take_along_axis(softmax64(log_prior_ratio), np.asarray(jnp.argmax(advantage, -1))[:, None], -1)
    np.testing.assert_allclose(cold.kl, -np.log(best).mean(), rtol=1e-5)
    shift = jnp.arange(5.0)[:, None] * 3.0
    plain = weights_and_loss(advantage, log_prior_ratio, ALL_VALID, 0.5, 0.5)
    for a, b in ((advantage, log_prior_ratio + shift), (advantage + shift, log_prior_ratio)):
        shifted = weights_and_loss(a, b, ALL_VALID, 0.5, 0.5)
        np.testing.assert_allclose(shifted.weights, plain.weights, rtol=2e-5, atol=1e-6)  # 12 + x keeps one digit less
        np.testing.assert_allclose(shifted.kl, plain.kl, rtol=2e-5)


@pytest.mark.parametrize("garbage", [100.0, np.inf, np.nan])
def test_invalid_states_are_left_out_of_the_dual(garbage):
    advantage, log_prior_ratio = random_case(6)
    is_valid = jnp.array([True, False, True, False, True])
    bad = jnp.where(is_valid[:, None], 0.0, garbage * jnp.arange(1.0, 8.0)[None, :])
    plain = weights_and_loss(advantage, log_prior_ratio, is_valid, 0.5, 0.5)
    changed = weights_and_loss(advantage + bad, log_prior_ratio + bad, is_valid, 0.5, 0.5)
    assert (plain.loss, plain.kl) == (changed.loss, changed.kl)
    rows = np.asarray(is_valid)
    np.testing.assert_array_equal(plain.weights[rows], changed.weights[rows])
    slopes = (temperature_gradient(advantage + x, log_prior_ratio + x, is_valid, 0.5, 0.5) for x in (0.0, bad))
    assert next(slopes) == next(slopes)
    # The same as a batch of the valid states alone.
    alone = weights_and_loss(advantage[rows], log_prior_ratio[rows], jnp.ones(3, bool), 0.5, 0.5)
    np.testing.assert_allclose(plain.loss, alone.loss, rtol=1e-6)
    np.testing.assert_allclose(plain.kl, alone.kl, rtol=1e-6)


def test_without_a_valid_state_the_dual_does_not_move_and_weights_are_still_a_target():
    advantage, log_prior_ratio = random_case(7)
    arguments = advantage, log_prior_ratio, jnp.zeros(5, bool), 0.5, 0.5
    got = weights_and_loss(*arguments)
    np.testing.assert_allclose(got.weights, softmax64(log_prior_ratio + advantage / 0.5), rtol=1e-5)
    assert got.loss == got.kl == temperature_gradient(*arguments) == 0.0


@pytest.mark.parametrize("num_particles", [1, full(2), 16])
def test_extremes_are_finite_in_value_and_gradient(num_particles):
    signs = jnp.where(jnp.arange(num_particles) % 2 == 0, 1.0, -1.0)
    log_prior_ratio = jnp.stack([40.0 * signs, -40.0 * signs, jnp.zeros(num_particles)])
    is_valid, groups = jnp.ones(3, bool), jnp.zeros((3, num_particles), jnp.int32)
    for size, temperature in itertools.product([0.0, 1e-6, 1.0, 1e4], [1e-6, 1e-3, 1.0, 1e6]):
        advantage = jnp.stack([size * signs, jnp.full(num_particles, size), jnp.zeros(num_particles)])
        got = weights_and_loss(advantage, log_prior_ratio, is_valid, temperature, 0.5)
        slope = temperature_gradient(advantage, log_prior_ratio, is_valid, temperature, 0.5)
        spread = advantage_spread(advantage, log_prior_ratio, is_valid)
        assert all(bool(jnp.all(jnp.isfinite(x))) for x in (*got, slope, spread)), (size, temperature)
        np.testing.assert_allclose(jnp.sum(got.weights, -1), 1.0, rtol=1e-5)
        assert mean_kl(advantage, log_prior_ratio, is_valid, temperature, groups) == pytest.approx(0.0, abs=1e-6)


def test_only_the_temperature_has_a_gradient_and_that_of_its_loss_of_kl_is_the_same():
    advantage, log_prior_ratio = random_case(9)

    def total(a, ratio, t):
        got = mpo.weights_and_temperature_loss(a, ratio, ALL_VALID, t, 0.5)
        return got.loss + jnp.sum(jnp.square(got.weights)) + got.kl

    by_advantage, by_ratio, by_temperature = jax.grad(total, argnums=(0, 1, 2))(advantage, log_prior_ratio, 0.7)
    np.testing.assert_array_equal(by_advantage, 0.0)
    np.testing.assert_array_equal(by_ratio, 0.0)
    # Through the loss alone: weights and kl are constants to whoever descends.
    expected = temperature_gradient(advantage, log_prior_ratio, ALL_VALID, 0.7, 0.5)
    np.testing.assert_allclose(by_temperature, expected, rtol=1e-5)

    def loss_of_kl(t):
        return mpo.temperature_loss_of_kl(t, mpo.mean_kl(advantage, log_prior_ratio, ALL_VALID, t), 0.5)

    np.testing.assert_allclose(jax.grad(loss_of_kl)(0.7), expected, rtol=1e-5)


def test_root_kl_is_0_where_roots_are_alike_and_finite_where_weights_or_base_vanish():
    root_kl = jax.jit(mpo.root_kl)
    alike = root_kl(jnp.array([[0.1, 0.2, 0.3, 0.4]]), jnp.full((1, 4), 0.25), jnp.full((1, 4), 3))
    np.testing.assert_allclose(alike, [0.0], atol=1e-6)
    weights = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    base = jnp.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    got = root_kl(weights, base, jnp.array([[0, 1, 2], [0, 1, 2]]))
    np.testing.assert_allclose(got[0], LOG_2, rtol=1e-6)
    assert 80.0 < got[1] < 90.0  # truly infinite; float32's smallest normal number stands for 0


def test_root_kl_equals_numpy_marginals_and_is_at_most_the_trajectory_kl():
    advantage, log_prior_ratio = random_case(13, num_states=64)
    groups = jax.random.randint(jax.random.key(14), (64, 7), 0, 3)
    weights, base = softmax64(log_prior_ratio + advantage / 0.3), softmax64(log_prior_ratio)
    got = jax.jit(mpo.root_kl)(jnp.float32(weights), jnp.float32(base), groups)
    for b in range(64):
        marginal = [(weights[b][groups[b] == g].sum(), base[b][groups[b] == g].sum()) for g in range(3)]
        np.testing.assert_allclose(got[b], sum(w * np.log(w / v) for w, v in marginal if v > 0), rtol=1e-4, atol=1e-6)
    assert np.all(np.asarray(got) <= kl64(advantage, log_prior_ratio, 0.3) + 1e-6)
    is_valid = jnp.arange(64) % 3 > 0
    mean = mean_kl(advantage, log_prior_ratio, is_valid, 0.3, groups)
    np.testing.assert_allclose(mean, np.asarray(got)[is_valid].mean(), rtol=1e-5)


def solve(advantage, log_prior_ratio, is_valid, epsilon, low=1e-6, high=1e3, groups=None, num_iterations=30):
    @jax.jit
    def run(epsilon, low, high):
        kl_of = lambda t: mpo.mean_kl(advantage, log_prior_ratio, is_valid, t, groups)
        return mpo.solve_temperature(kl_of, epsilon, low, high, num_iterations=num_iterations)

    return float(run(epsilon, low, high))


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e4])
def test_solve_temperature_equals_scipy(epsilon, scale):
    advantage, log_prior_ratio = random_case(16, scale=scale)
    is_valid = jnp.array([True, True, False, True, True])
    kl_of = lambda x: kl64(advantage, log_prior_ratio, np.exp(x))[is_valid].mean() - epsilon
    expected = np.exp(optimize.brentq(kl_of, np.log(1e-8 * scale), np.log(1e4 * scale)))
    got = solve(advantage, log_prior_ratio, is_valid, epsilon, 1e-6 * scale, 1e3 * scale)
    # A KL of 1e-3 nat is the difference of float32 numbers near 1: four digits.
    np.testing.assert_allclose(got, expected, rtol=1e-3 if epsilon < 0.01 else 1e-5)


def test_solve_temperature_bisects_by_hand_falls_with_epsilon_and_scales_with_the_advantages():
    # kl(T) = 1 / T meets 0.25 at 4; the trace has one loop, whatever the number of iterations.
    got = jax.jit(lambda e: mpo.solve_temperature(lambda t: 1.0 / t, e, 1e-3, 1e3, num_iterations=40))(0.25)
    np.testing.assert_allclose(got, 4.0, rtol=1e-6)
    # After k halvings of log(high / low) the answer is that close, and from above: the constraint holds.
    for k in (4, 8):
        got = mpo.solve_temperature(lambda t: 1.0 / t, 0.25, 1e-3, 1e3, num_iterations=k)
        assert 4.0 <= got <= 4.0 * np.exp(np.log(1e6) / 2**k) * (1 + 1e-5)
    advantage, log_prior_ratio = random_case(17)
    solved = [solve(advantage, log_prior_ratio, ALL_VALID, e) for e in (0.01, 0.05, 0.2, 0.5, 0.9)]
    assert all(a > b for a, b in itertools.pairwise(solved))
    one = solve(advantage, log_prior_ratio, ALL_VALID, 0.3)
    np.testing.assert_allclose(solve(10 * advantage, log_prior_ratio, ALL_VALID, 0.3), 10 * one, rtol=1e-5)


def test_bounds_are_returned_exactly_where_the_constraint_is_slack_or_out_of_reach():
    advantage, log_prior_ratio = random_case(19)
    low, high = np.float32(0.003), np.float32(0.7)
    # KL is at most the log of the number of particles (and of one over the least base weight).
    assert solve(advantage, jnp.zeros_like(advantage), ALL_VALID, 10.0, low, high) == low
    assert solve(advantage, log_prior_ratio, ALL_VALID, 1e-9, low, high) == high
    # Nothing to choose between, or no valid state: slack.
    assert solve(jnp.zeros_like(advantage), log_prior_ratio, ALL_VALID, 0.1, low, high) == low
    assert solve(advantage, log_prior_ratio, jnp.zeros(5, bool), 0.1, low, high) == low


def test_a_solved_temperature_has_no_gradient():
    advantage, log_prior_ratio = random_case(20)
    kl_of = lambda a: lambda t: mpo.mean_kl(a, log_prior_ratio, ALL_VALID, t)
    slope = jax.grad(lambda a: mpo.solve_temperature(kl_of(a), 0.3, 1e-3, 1e3))(advantage)
    np.testing.assert_array_equal(slope, 0.0)


def test_a_root_kl_that_is_not_monotone_is_still_met():
    # Root 0 is certain, root 1 is a gamble: worse in the mean, so a warm search avoids it, and better at its best, so
    # a cold one takes it. In between the marginal is the base again and its KL is 0.
    advantage = jnp.array([[0.0, 0.0, 1.0, -4.0]])
    arguments = (advantage, jnp.zeros((1, 4)), jnp.ones(1, bool))
    groups = jnp.array([[0, 0, 1, 1]])
    kl = [float(mean_kl(*arguments, t, groups)) for t in (100.0, 5.0, 1.28, 0.1)]
    assert kl[0] < kl[1] > kl[2] < kl[3]
    temperature = solve(*arguments, 0.05, groups=groups)
    assert mean_kl(*arguments, temperature, groups) == pytest.approx(0.05, rel=1e-3)


def test_alpha_loss_by_hand_and_the_sign_of_its_gradient():
    kl = jnp.array([0.1, 0.3])
    penalty, dual = jax.jit(mpo.alpha_loss)(kl, 2.0, 0.5)
    np.testing.assert_allclose(penalty, 2.0 * 0.2, rtol=1e-6)
    np.testing.assert_allclose(dual, 2.0 * (0.5 - 0.2), rtol=1e-6)
    slope = lambda epsilon: jax.grad(lambda a: sum(mpo.alpha_loss(kl, a, epsilon)))(2.0)
    # Descending must raise alpha where KL exceeds epsilon and lower it where there is room.
    np.testing.assert_allclose(slope(0.05), 0.05 - 0.2, rtol=1e-5)
    np.testing.assert_allclose(slope(0.5), 0.5 - 0.2, rtol=1e-6)
    by_kl = jax.grad(lambda x: sum(mpo.alpha_loss(x, 2.0, 0.5)))(kl)
    np.testing.assert_allclose(by_kl, [1.0, 1.0], rtol=1e-6)  # alpha / B, from the penalty alone


def test_weighted_cross_entropy_by_hand_builds_nothing_of_batch_times_particles_times_actions():
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]))
    actions = jnp.array([[0, 1, 1, 2], [2, 2, 2, 2]])
    weights = jnp.array([[0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]])
    cross_entropy = jax.jit(mpo.weighted_cross_entropy, static_argnames="factored")
    expected = [0.4 * LOG_2 + 0.6 * 2 * LOG_2, -np.log(0.7)]
    np.testing.assert_allclose(cross_entropy(logits, actions, weights, factored=False), expected, rtol=1e-6)
    shapes = (jnp.zeros((2, 1000)), jnp.zeros((2, 16), jnp.int32), jnp.zeros((2, 16)))
    loss = lambda *x: jnp.sum(mpo.weighted_cross_entropy(*x, factored=False))
    jaxpr = jax.make_jaxpr(jax.grad(loss))(*shapes)
    sizes = [v.aval.size for equation in jaxpr.jaxpr.eqns for v in equation.outvars]
    assert max(sizes) == 2 * 1000


def test_factored_cross_entropy_equals_that_of_the_joint_actions_in_value_and_gradient():
    logits = jax.random.normal(jax.random.key(22), (4, 2, 3))  # [B, F, A]
    actions = jax.random.randint(jax.random.key(23), (4, 6, 2), 0, 3)  # [B, P, F]
    weights = jax.nn.softmax(jax.random.normal(jax.random.key(24), (4, 6)))

    def joint(x):
        logits = (x[:, 0, :, None] + x[:, 1, None, :]).reshape(4, 9)
        return mpo.weighted_cross_entropy(logits, 3 * actions[..., 0] + actions[..., 1], weights, factored=False)

    ours = lambda x: mpo.weighted_cross_entropy(x, actions, weights, factored=True)
    np.testing.assert_allclose(ours(logits), joint(logits), rtol=1e-5)
    slopes = (jax.grad(lambda x, f=f: jnp.sum(f(x)))(logits) for f in (ours, joint))
    np.testing.assert_allclose(*slopes, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_cross_entropy_has_no_gradient_to_illegal_logits(dtype):
    mask = jnp.array([[True, False, True, True], [False, True, False, False]])
    logits = jnp.array([[1.0, 90.0, -3.0, 0.0], [5.0, 1.0, 2.0, 3.0]]).astype(dtype)
    actions = jnp.array([[0, 2, 2], [1, 1, 1]])
    weights = jnp.array([[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])

    def loss(x):
        masked = distributions.masked_logits(x, mask)
        return jnp.sum(mpo.weighted_cross_entropy(masked, actions, weights, factored=False))

    value, slope = jax.jit(jax.value_and_grad(loss))(logits)
    slope = np.asarray(slope, np.float32)
    assert np.isfinite(value)
    np.testing.assert_array_equal(slope[~np.asarray(mask)], 0.0)
    np.testing.assert_array_equal(slope[1], 0.0)  # one legal action: nothing to learn
    assert np.all(slope[0][np.asarray(mask[0])] != 0.0)


def test_advantage_spread_by_hand():
    advantage = jnp.array([[0.0, 4.0], [0.0, 4.0], [-9.0, 9.0]])
    log_prior_ratio = jnp.array([[0.0, 0.0], [LOG_3, 0.0], [0.0, 0.0]])
    # Base (1/2, 1/2): deviation 2. Base (3/4, 1/4): sqrt(16 * 3 / 16). The third state is left out.
    is_valid = jnp.array([True, True, False])
    spread, expected = advantage_spread, (2.0 + np.sqrt(3.0)) / 2
    np.testing.assert_allclose(spread(advantage, log_prior_ratio, is_valid), expected, rtol=1e-6)
    np.testing.assert_allclose(spread(advantage + 1e3, log_prior_ratio - 5.0, is_valid), expected, rtol=1e-5)
    assert spread(advantage, log_prior_ratio, jnp.zeros(3, bool)) == 0.0
    assert spread(jnp.full((5, 7), 1e4), random_case(28)[1], ALL_VALID) == 0.0
    assert spread(advantage.at[2].set(jnp.nan), log_prior_ratio, is_valid) < 2.0
