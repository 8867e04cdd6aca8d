"""Masked categoricals: exact zeros for what is illegal, agreement with plain softmax for what is legal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

from stoix_like.ops import distributions

LOGITS = jnp.array([[1.0, 2.0, 3.0, -1.0], [0.0, 500.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
MASK = jnp.array([[True, False, True, True], [True, True, True, False], [False, False, True, False]])


@pytest.fixture
def masked():
    return distributions.masked_logits(LOGITS, MASK)


def test_legal_actions_are_a_softmax_and_illegal_ones_have_probability_zero(masked):
    for row in range(3):
        legal = np.flatnonzero(MASK[row])
        x = np.asarray(LOGITS[row, legal], np.float64)
        probs = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
        safe = np.where(probs > 0, probs, 1.0)
        np.testing.assert_allclose(distributions.entropy(masked)[row], -(probs * np.log(safe)).sum(), atol=1e-6)
        for action, prob in zip(legal, probs, strict=True):
            if prob > 1e-30:
                got = distributions.log_prob(masked[row], jnp.int32(action))
                np.testing.assert_allclose(got, np.log(prob), atol=1e-5)
    illegal = np.argwhere(~np.asarray(MASK))
    for row, action in illegal:
        assert jnp.exp(distributions.log_prob(masked[row], jnp.int32(action))) == 0.0
    keys = jax.random.split(jax.random.key(0), 20_000)
    samples = jax.jit(jax.vmap(lambda k: distributions.sample(k, masked)))(keys)
    assert bool(jnp.all(jnp.take_along_axis(jnp.broadcast_to(MASK, (20_000, 3, 4)), samples[..., None], -1)))


def test_a_row_with_one_legal_action_or_none_has_no_entropy_no_gradient_and_no_divergence(masked):
    only = masked[2]
    assert distributions.entropy(only) == 0.0
    assert distributions.log_prob(only, jnp.int32(2)) == 0.0
    gradient = jax.grad(lambda x: distributions.entropy(distributions.masked_logits(x, MASK[2])))(LOGITS[2])
    np.testing.assert_array_equal(gradient, 0.0)
    logits = distributions.masked_logits(LOGITS[0], jnp.zeros(4, bool))
    assert bool(jnp.isfinite(distributions.entropy(logits)))
    assert 0 <= int(distributions.sample(jax.random.key(0), logits)) < 4
    rows = distributions.masked_logits(LOGITS, jnp.zeros_like(MASK))
    np.testing.assert_array_equal(distributions.kl_divergence(rows, rows), 0.0)


def test_samples_follow_the_probabilities_and_act_takes_the_mode_or_a_sample(masked):
    logits = distributions.masked_logits(jnp.log(jnp.array([0.1, 0.2, 0.7])), jnp.array([True, True, True]))
    keys = jax.random.split(jax.random.key(1), 40_000)
    samples = jax.vmap(lambda k: distributions.sample(k, logits))(keys)
    np.testing.assert_allclose(jnp.bincount(samples, length=3) / 40_000, [0.1, 0.2, 0.7], atol=0.01)
    greedy, sampled = (jax.vmap(lambda k, d=d: distributions.act(k, logits, d))(keys[:50]) for d in (True, False))
    assert set(np.asarray(greedy)) == {2}
    assert set(np.asarray(sampled)) == {0, 1, 2}
    # few actions are sampled by rows as one by one
    key = jax.random.key(3)
    np.testing.assert_array_equal(distributions.sample_rows(key, masked), distributions.sample(key, masked))


def test_factors_are_summed_sampled_apart_and_their_divergence_equals_the_joint_enumeration():
    logits = jnp.stack([LOGITS[0], LOGITS[2]])  # [F, A] = [2, 4]
    action = jnp.array([0, 2])
    joint = distributions.log_prob(logits, action, factored=True)
    single = sum(distributions.log_prob(logits[f], action[f]) for f in range(2))
    np.testing.assert_allclose(joint, single, rtol=1e-6)
    entropies = sum(distributions.entropy(logits[f]) for f in range(2))
    np.testing.assert_allclose(distributions.entropy(logits, factored=True), entropies, rtol=1e-6)
    assert distributions.sample(jax.random.key(0), logits, factored=True).shape == (2,)
    assert distributions.mode(logits).shape == (2,)
    p, q = (jax.random.normal(k, (4, 2, 3)) for k in jax.random.split(jax.random.key(2)))
    joint = [(x[:, 0, :, None] + x[:, 1, None, :]).reshape(4, 9) for x in (p, q)]
    got = distributions.kl_divergence(p, q, factored=True)
    assert got.shape == (4,)
    np.testing.assert_allclose(got, distributions.kl_divergence(*joint), rtol=1e-5)
    np.testing.assert_allclose(got, distributions.kl_divergence(p, q).sum(-1), rtol=1e-6)


def test_kl_divergence_by_hand_and_exactly_zero_at_equality(masked):
    p = jnp.log(jnp.array([[0.5, 0.5, 1.0], [0.2, 0.3, 0.5]]))
    q = jnp.log(jnp.array([[0.75, 0.25, 1.0], [0.2, 0.3, 0.5]]))
    mask = jnp.array([[True, True, False], [True, True, True]])
    p, q = distributions.masked_logits(p, mask), distributions.masked_logits(q, mask)
    kl = jax.jit(distributions.kl_divergence)
    expected = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    np.testing.assert_allclose(kl(p, q), [expected, 0.0], rtol=1e-5)
    assert kl(p, q)[1] == 0.0
    np.testing.assert_array_equal(kl(masked, masked), 0.0)
    # Not symmetric: a swap of the arguments would pass every test at equality.
    np.testing.assert_allclose(kl(q, p)[0], 0.75 * np.log(1.5) + 0.25 * np.log(0.5), rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_illegal_logits_get_no_gradient_and_nothing_is_nan(dtype):
    other = jnp.array([[500.0, 2.0, -500.0, 0.0], [0.0, -500.0, 1.0, 2.0], [9.0, 9.0, 9.0, 9.0]])

    @jax.jit
    def totals(p, q):
        p, q = distributions.masked_logits(p, MASK), distributions.masked_logits(q, MASK)
        own = distributions.log_prob(p, distributions.mode(p)) + distributions.entropy(p)
        kls = [jnp.sum(distributions.kl_divergence(p, q, factored=factored)) for factored in (False, True)]
        return jnp.stack([jnp.sum(own), *kls])

    asked = LOGITS.astype(dtype), other.astype(dtype)
    assert bool(jnp.isfinite(totals(*asked)).all())
    by_p, by_q = (np.asarray(x, np.float32) for x in jax.jit(jax.jacrev(totals, argnums=(0, 1)))(*asked))
    for slopes in (by_p, by_q[1:]):  # of the sums, by the logits [3, 4]
        assert np.isfinite(slopes).all()
        np.testing.assert_array_equal(slopes[:, ~np.asarray(MASK)], 0.0)
        np.testing.assert_array_equal(slopes[:, 2], 0.0)  # one legal action
        assert (slopes != 0.0).any(axis=(1, 2)).all()


@pytest.mark.parametrize("factored", [full(False), True])
def test_rows_of_many_actions_are_sampled_by_their_probabilities(factored):
    """16,384 draws over 200 actions, three quarters of them illegal: Pearson's statistic within 4 deviations."""
    size = 200
    assert size >= distributions.WIDE
    raw = jax.random.normal(jax.random.key(0), (2, size))
    legal = jax.random.bernoulli(jax.random.key(1), 0.25, (2, size))
    logits = distributions.masked_logits(raw, legal)
    count = 16_384
    of_rows = jnp.broadcast_to(logits if factored else logits[:1], (count, 2, size) if factored else (count, size))
    drawn = distributions.sample_rows(jax.random.key(2), of_rows, factored=factored)
    assert (drawn.dtype, drawn.shape) == (jnp.int32, (count, 2) if factored else (count,))
    for factor, actions in enumerate(jnp.atleast_2d(drawn.T)):
        expected = count * np.asarray(jax.nn.softmax(logits[factor]), np.float64)
        found = np.bincount(actions, minlength=size)
        assert found[~np.asarray(legal[factor])].sum() == 0
        statistic = ((found - expected)[expected > 0] ** 2 / expected[expected > 0]).sum()
        freedom = int(legal[factor].sum()) - 1
        assert abs(statistic - freedom) < 4.0 * (2.0 * freedom) ** 0.5
