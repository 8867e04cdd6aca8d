"""Resamplers: how often each particle is drawn, by count and on average, and what the sample size says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.search import resampling

NUM_DRAWS = 4096
RESAMPLERS = {"systematic": resampling.systematic, "multinomial": resampling.multinomial}
WEIGHTS = {
    # P w = 0.4, 2, 0, 0.8, 1.8: with systematic resampling particle 1 is drawn twice, always.
    "by hand": np.array([0.08, 0.4, 0.0, 0.16, 0.36]),
    "sharp": np.array([1e-6, 0.97, 0.01, 0.02 - 1e-6, 0.0, 0.0, 0.0, 0.0]),
    "alternating": np.tile([0.9, 0.1], 8) / 8,
    "random": np.random.default_rng(0).dirichlet(np.full(50, 0.3)),
}


def log_of(weights):
    with np.errstate(divide="ignore"):
        return jnp.asarray(np.log(weights), jnp.float32)


@jax.jit
def _both(key, log_weights):
    return {name: resampler(key, log_weights) for name, resampler in RESAMPLERS.items()}


def draw(name, weights, *, num_draws=NUM_DRAWS, seed=0):
    """Ancestors [num_draws, P], every row an independent draw."""
    log_weights = jnp.broadcast_to(log_of(weights), (num_draws, len(weights)))
    return np.asarray(_both(jax.random.key(seed), log_weights)[name])


def counts_of(ancestors):
    return np.stack([np.bincount(row, minlength=ancestors.shape[1]) for row in ancestors])


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
@pytest.mark.parametrize("name", RESAMPLERS)
def test_mean_counts_are_the_weights_and_systematic_ones_the_floor_or_the_ceiling(name, weights):
    counts = counts_of(draw(name, weights))
    expected = len(weights) * weights
    error = counts.std(axis=0) / np.sqrt(NUM_DRAWS)
    # Four standard errors, and for counts that never varied the one draw in NUM_DRAWS that may not have happened.
    assert (np.abs(counts.mean(axis=0) - expected) <= 4 * error + 4 / NUM_DRAWS).all()
    np.testing.assert_array_equal(counts[:, weights == 0.0], 0)
    if name == "systematic":
        assert (counts >= np.floor(expected + 1e-9)).all()  # 1e-9: what the product rounds
        assert (counts <= np.ceil(expected - 1e-9)).all()


def test_multinomial_variance_equal_weights_and_effective_sample_sizes_by_hand():
    """P w (1 - w): 0.96 and 0.75 of the first two, whose counts systematic draws give a variance of 0.24 and 0."""
    weights = np.array([0.4, 0.25, 0.2, 0.15])
    counts = counts_of(draw("multinomial", weights))
    variance = 4 * weights * (1 - weights)
    # The variance of a sample variance is about 2 variance^2 / n for nearly normal counts; these have lighter tails.
    np.testing.assert_allclose(counts.var(axis=0), variance, rtol=4 * np.sqrt(2 / NUM_DRAWS))
    for num_particles in (1, 4, 16, 64):
        ancestors = draw("systematic", np.full(num_particles, 1 / num_particles), num_draws=256)
        np.testing.assert_array_equal(np.sort(ancestors, axis=1), np.tile(np.arange(num_particles), (256, 1)))
    # Equal weights: P. One with everything: 1. Halves and quarters: 1 / (1/4 + 1/16 + 1/16) = 8 / 3.
    weights = np.array([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0], [0.5, 0.25, 0.25, 0.0]])
    sizes = jax.jit(resampling.effective_sample_size)(log_of(weights) + 100.0)
    np.testing.assert_allclose(sizes, [4.0, 1.0, 8 / 3], rtol=1e-5)


@pytest.mark.parametrize("draw_of", [0.0, np.float32(1.0) - np.float32(2.0**-24)])
@pytest.mark.parametrize("name", RESAMPLERS)
def test_no_draw_is_extreme_enough_for_weight_zero(monkeypatch, name, draw_of):
    """The least and the largest uniform number: the first point is 0, and rounding makes the last one 1."""
    weights = np.concatenate([np.zeros(5), np.random.default_rng(1).random(1000), np.zeros(19)])
    log_weights = log_of(weights / weights.sum())[None]
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, *_, **__: jnp.full(shape, draw_of, jnp.float32))
    ancestors = jax.jit(lambda key: RESAMPLERS[name](key, log_weights))(jax.random.key(0))
    assert (weights[np.asarray(ancestors)] > 0.0).all()


@pytest.mark.parametrize("name", RESAMPLERS)
def test_log_weights_need_not_be_normalised_and_all_the_weight_makes_everyones_ancestor(name):
    weights = WEIGHTS["by hand"]
    log_weights = jnp.broadcast_to(jnp.maximum(log_of(weights), -1e9), (64, 5))
    for offset in (-256.0, 256.0):
        moved = _both(jax.random.key(2), log_weights + offset)[name]
        assert (weights[np.asarray(moved)] > 0.0).all()
        # 1 unit in the last place of 256 is 3e-5, so a point is moved across a border in few of 320 cases.
        assert (np.asarray(moved) == np.asarray(_both(jax.random.key(2), log_weights)[name])).mean() > 0.98
    for heavy in (0, 3, 7):
        np.testing.assert_array_equal(draw(name, np.eye(8)[heavy], num_draws=256), heavy)


@pytest.mark.parametrize("name", RESAMPLERS)
def test_keys_decide_the_form_is_right_and_environments_are_drawn_independently(name):
    one, same, other = (draw(name, WEIGHTS["random"], num_draws=8, seed=seed) for seed in (0, 0, 1))
    assert one.shape == (8, 50)
    assert one.dtype == np.int32
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    # Two environments of equal weights agree as often as two draws by chance do, not always.
    ancestors = draw(name, np.array([0.3, 0.3, 0.4, 0.0]))
    assert len(np.unique(ancestors, axis=0)) > 1
    first, second = counts_of(ancestors)[0::2, 0], counts_of(ancestors)[1::2, 0]
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(NUM_DRAWS / 2)
