"""Two searches by hand, seeds and numbers side by side, shapes, and what is refused.

Every particle of searches by chance is followed in test_smc_replay.py; their targets are counted in
test_smc_enumeration.py.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tabular import (
    make_model,
    make_root,
    make_tree,
    on_device,
    random_tree,
    root_marginal,
    search_tree,
    softmax,
)

from stoix_like.errors import ConfigError
from stoix_like.search import smc
from stoix_like.search.model import SearchConfig, check

#: Two legal actions at state 0, three at state 1; terminals, truncations and fractional discounts below them.
RANDOM = random_tree(361)
CHOICES = ("root", "continuation", "resampling", "resampler")
SHARES = ("gamma", "gae_lambda", "dirichlet_fraction", "resampling_ess_threshold")
#: The first actions are the legal ones, then everything follows from the tree.
CERTAIN = {"root": "gumbel_topk", "continuation": "greedy"}


def test_two_steps_by_hand_and_a_prior_beside_large_scores():
    """gamma = lambda = 1/2, temperature 1/2, V = 1, 2, 4, 8.

    Action 0: r = 1, then 3: 1 + 2/2 - 1 = 1, and 3 + 8/2 - 2 = 5 at scale 1/4, in all 2.25.
    Action 1: r = 2 and discount 1/2, then -1: 2 + 4/4 - 1 = 2, and -1 + 8/2 - 4 = -1 at scale 1/8, in all 1.875.
    """
    logits = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    bad = 50.0  # what the less probable second action would pay
    reward = [[1.0, 2.0], [3.0, bad], [bad, -1.0], [0.0, 0.0]]
    discount = [[1.0, 0.5], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    tree = make_tree(logits, True, [1.0, 2.0, 4.0, 8.0], [[1, 2], [3, 3], [3, 3], [3, 3]], reward, discount)
    leaves = {"num_particles": 2, "search_depth": 2, "gamma": 0.5, "gae_lambda": 0.5, "resampling": "none"}
    out = search_tree(tree, [0], temperature=0.5, **CERTAIN, **leaves)
    advantage = np.array([2.25, 1.875])
    weight = 1 / (1 + np.exp(-0.75))  # of action 0: the advantages differ by 0.375 / 0.5
    np.testing.assert_allclose(out.sampled_advantages, advantage[out.initial_root_actions], rtol=1e-6)
    np.testing.assert_allclose(root_marginal(out, tree), [[weight, 1 - weight]], rtol=1e-5)
    np.testing.assert_allclose(out.log_prior_ratio, np.log(0.5), rtol=1e-6)
    assert out.value == 1.0
    first = 1 / (1 + np.exp(2.0))  # of action 0 after one step: 1 against 2, over 0.5
    kl = weight * np.log(2 * weight) + (1 - weight) * np.log(2 * (1 - weight))
    found = out.diagnostics
    sizes = [[1 / (first**2 + (1 - first) ** 2)], [1 / (weight**2 + (1 - weight) ** 2)]]
    np.testing.assert_allclose(found.effective_sample_size, sizes, rtol=1e-5)
    np.testing.assert_allclose([found.trajectory_kl, found.root_kl], [[kl], [kl]], rtol=1e-4)
    assert (found.distinct_root_actions, found.surviving_root_actions, found.model_steps) == (2, 2, 4)
    # Two actions pay the same 10,000, at temperature 0.0001: 10^8, where float32 knows every eighth number.
    tree = make_tree(
        [[0.4, 0.0], [0.0, 0.0]], True, [0.0, 0.0], [[1, 1], [1, 1]], [[1e4, 1e4], [0.0, 0.0]], [[0.0] * 2] * 2
    )
    for resampling in ("none", "ess"):
        leaves = {"num_particles": 2, "search_depth": 1, "resampling": resampling}
        out = search_tree(tree, [0], temperature=1e-4, **CERTAIN, **leaves)
        np.testing.assert_allclose(root_marginal(out, tree), [softmax(np.array([0.4, 0.0]))], rtol=1e-5)


def test_the_temperature_may_follow_from_the_advantages():
    leaves = {"num_particles": 16, "search_depth": 3, "resampling": "none"}
    out = search_tree(RANDOM, [0, 1, 0], temperature_function=_deviation, **leaves)
    spread = out.sampled_advantages.std(axis=1, keepdims=True)
    assert (spread > 0.1).all()
    np.testing.assert_allclose(out.root_weights, softmax(out.sampled_advantages / spread), rtol=1e-4)
    assert out.diagnostics.effective_sample_size.shape == (3, 3)


def _deviation(advantages):
    return jnp.std(advantages, axis=-1)


@pytest.mark.parametrize(
    ("leaf", "wrong", "said"),
    [
        *((leaf, "other", f"search.{leaf}: no choice 'other'") for leaf in CHOICES),
        *((leaf, number, f"search.{leaf}: {number} is not in") for leaf in SHARES for number in (-0.1, 1.5, math.nan)),
    ],
)
def test_leaves_that_cannot_be_are_refused(leaf, wrong, said):
    with pytest.raises(ConfigError, match=said) as caught:
        check(SearchConfig(**{leaf: wrong}), factored=False)
    assert isinstance(wrong, float) or caught.value.hint.startswith("choices: ")


def test_temperatures_and_shapes_that_cannot_be_and_a_search_without_an_end_are_refused():
    config, tree = SearchConfig(num_particles=2, search_depth=1), on_device(RANDOM)
    root = make_root(tree, jnp.zeros(2, jnp.int32))
    begin = functools.partial(smc.search, make_model(tree), tree, jax.random.key(0))
    for temperature in (0.0, -0.5, float("nan"), 0):
        with pytest.raises(ConfigError, match="temperature"):
            begin(root, temperature, config)
    single = jax.tree.map(lambda x: x[0], root)
    other = root._replace(env_state=jax.tree.map(lambda x: x[:1], root.env_state))
    for wrong in (single, other):
        with pytest.raises(ConfigError, match="leaves of the root differ in their first axis"):
            begin(wrong, 1.0, config)
    for temperature in (jnp.ones(3), np.ones((2, 2))):
        with pytest.raises(ConfigError, match="a temperature of shape"):
            begin(root, temperature, config)
    assert jax.eval_shape(lambda: begin(root, np.ones(2), config)).action.shape == (2,)
    with pytest.raises(ConfigError, match="search_depth"):
        begin(root, 1.0, config._replace(search_depth="full"))


def _one_run(tree, key, scalars):
    """A search whose numbers are all traced, noise and threshold included."""
    leaves = {"resampling": "ess", "num_particles": 16, "search_depth": 3, "root_noise_correction": True}
    config = SearchConfig(**leaves)._replace(**{name: x for name, x in scalars.items() if name != "temperature"})
    root = make_root(tree, jnp.array([0, 1, 0, 1], jnp.int32))
    return smc.search(make_model(tree), tree, key, root, scalars["temperature"], config)


@pytest.mark.full
def test_vmapped_seeds_and_numbers_equal_separate_runs():
    tree = on_device(RANDOM)
    keys = jax.random.split(jax.random.key(3), 2)
    scalars = {
        "temperature": jnp.array([0.2, 0.6]),
        "gamma": jnp.array([0.9, 1.0]),
        "gae_lambda": jnp.array([1.0, 0.5]),
        "dirichlet_alpha": jnp.array([0.3, 3.0]),
        "dirichlet_fraction": jnp.array([0.1, 0.9]),
        "resampling_ess_threshold": jnp.array([0.9, 0.3]),
    }
    together = jax.jit(jax.vmap(_one_run, in_axes=(None, 0, 0)))(tree, keys, scalars)
    alone = jax.jit(_one_run)
    for i in range(2):
        one = alone(tree, keys[i], jax.tree.map(lambda x, i=i: x[i], scalars))
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-4, atol=1e-5), together, one)
    assert not np.allclose(together.sampled_advantages[0], together.sampled_advantages[1])


@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=["plain", "factored"])
def test_shapes_and_types(shape):
    num_joint = 3 ** len(shape)
    tree = on_device(make_tree(np.zeros((4, *shape)), True, np.zeros(4), np.zeros((4, num_joint), int), 0.0))
    root = make_root(tree, jnp.array([0, 1], jnp.int32))
    config = SearchConfig(num_particles=5, search_depth=3, resampling_period=1)
    out = jax.eval_shape(lambda: smc.search(make_model(tree), tree, jax.random.key(0), root, 1.0, config))
    factors, form = shape[:-1], lambda x: (x.shape, x.dtype.name)
    assert form(out.action) == ((2, *factors), "int32")
    assert form(out.root_actions) == form(out.initial_root_actions) == ((2, 5, *factors), "int32")
    for name in ("root_weights", "sampled_advantages", "log_prior_ratio"):
        assert form(getattr(out, name)) == ((2, 5), "float32")
    assert form(out.value) == ((2,), "float32")
    found = out.diagnostics
    assert form(found.effective_sample_size) == ((3, 2), "float32")
    assert form(found.trajectory_kl) == form(found.root_kl) == ((2,), "float32")
    for name in ("distinct_root_actions", "surviving_root_actions", "model_steps"):
        assert form(getattr(found, name)) == ((2,), "int32")
