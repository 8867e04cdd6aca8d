"""Searches whose every number is known: by hand, by the one path a tree leaves, or by a second way to run them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tabular import (
    GARBAGE_REWARD,
    GARBAGE_VALUE,
    appendix_tree,
    make_model,
    make_root,
    make_tree,
    on_device,
    paths,
    policy,
    random_tree,
    root_marginal,
    search_tree,
    softmax,
    split_config,
)

from stoix_like.errors import ConfigError
from stoix_like.search import smc
from stoix_like.search.model import SearchConfig, check

#: Two legal actions at state 0, three at state 1; terminals, truncations and fractional discounts below them.
RANDOM = random_tree(361)
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


def test_advantages_telescope():
    """gamma = 1, no end: the sum of r + V(s') - V(s) is the sum of rewards + V(last) - V(root), for every path.

    In a full tree of three actions the rewards a, 3 a, 9 a add up to a number that names the path, and values within
    0.4 leave it readable.
    """
    depth, num_values = 3, 3
    num_inner = (num_values**depth - 1) // 2  # 13
    num_states = num_inner + num_values**depth
    state = np.arange(num_states)[:, None]
    level = np.searchsorted([0, 1, 4, 13], state, side="right") - 1
    next_state = np.where(state < num_inner, 3 * state + 1 + np.arange(3), state)
    rng = np.random.default_rng(0)
    value = rng.uniform(-0.2, 0.2, num_states)
    tree = make_tree(rng.normal(size=(num_states, 3)), True, value, next_state, np.arange(3) * 3.0**level)
    out = search_tree(tree, [0, 0], num_particles=64, search_depth=depth, resampling="none")
    names = np.rint(out.sampled_advantages).astype(int)  # [N, P]
    actions = np.stack([names // 3**d % 3 for d in range(depth)], axis=-1)
    leaf = np.zeros_like(names)
    for d in range(depth):
        leaf = 3 * leaf + 1 + actions[..., d]
    assert len(np.unique(names)) > 15
    np.testing.assert_array_equal(actions[..., 0], out.initial_root_actions)
    np.testing.assert_allclose(out.sampled_advantages, names + value[leaf] - value[0], atol=1e-5)
    np.testing.assert_allclose(out.root_weights, softmax(out.sampled_advantages), rtol=1e-4)


CHAIN = {"num_particles": 4, "search_depth": 4, "resampling": "none"}
CHAIN_ROOTS = np.array([1, 2, 3, 4])


def chain(*, discount, value, after):
    """State k is k steps from the end, state 0, where `value` is claimed and leaving pays `after` and starts anew."""
    is_last = np.array([[False], [True], [False], [False], [False]])
    discounts = np.where(is_last, discount, 1.0)
    reward = np.array([[after], [1.0], [0.0], [0.0], [0.0]])
    return make_tree(
        np.zeros((5, 2)),
        True,
        [value, 0.5, 0.5, 0.5, 0.5],
        [[4] * 2] + [[k] * 2 for k in range(4)],
        reward,
        discounts,
        is_last,
    )


ENDS = {  # what the end's discount, the value claimed of it and the reward after it make of the advantage
    "termination": (0.0, 0.0, 0.0, 0.5),
    "termination with garbage": (0.0, GARBAGE_VALUE, GARBAGE_REWARD, 0.5),  # 1 - V, whatever follows
    "truncation": (1.0, 2.0, GARBAGE_REWARD, 2.5),  # 1 + 2 - V: the value of where it was cut off counts
}


@pytest.mark.parametrize(("discount", "value", "after", "advantage"), ENDS.values(), ids=ENDS)
def test_an_end_at_every_depth(discount, value, after, advantage):
    out = search_tree(chain(discount=discount, value=value, after=after), CHAIN_ROOTS, **CHAIN)
    np.testing.assert_allclose(out.sampled_advantages, advantage, rtol=1e-6)
    np.testing.assert_allclose(out.root_weights, 0.25, rtol=1e-6)
    np.testing.assert_array_equal(out.diagnostics.model_steps, 4 * CHAIN_ROOTS)
    np.testing.assert_allclose(out.diagnostics.trajectory_kl, 0.0, atol=1e-6)


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_gamma_lambda_and_fractional_discounts_shrink_what_is_later(discount):
    tree = chain(discount=discount, value=2.0, after=GARBAGE_REWARD)
    fractions = np.where(tree.is_last, tree.discount, np.array([0.9, 0.8, 0.7, 0.6, 0.5])[:, None])
    tree = tree._replace(discount=fractions)
    scalars = {"gamma": 0.9, "gae_lambda": 0.7}
    out = search_tree(tree, CHAIN_ROOTS, **CHAIN, **scalars)
    expected = [paths(tree, root, 4, **scalars)[0][2] for root in CHAIN_ROOTS]
    np.testing.assert_allclose(out.sampled_advantages, np.tile(np.array(expected)[:, None], (1, 4)), rtol=1e-5)


def test_what_belongs_to_the_first_draw_is_not_resampled_and_weights_begin_anew():
    """Six steps, resampled before the third and the fifth: advantages are those of two steps, in the first order."""
    roots = np.array([0, 1, 0, 1])
    noise = {"dirichlet_fraction": 0.6, "dirichlet_alpha": 1e6, "root_noise_correction": True}  # always the uniform
    leaves = {"num_particles": 32, "search_depth": 6, "resampling_period": 2, "continuation": "greedy"}
    out = search_tree(RANDOM, roots, temperature=0.1, **noise, **leaves)
    assert (out.root_actions != out.initial_root_actions).any()
    prior, log_prior = policy(RANDOM), np.log(np.where(RANDOM.mask, policy(RANDOM), 1.0))
    uniform = RANDOM.mask / np.maximum(RANDOM.mask.sum(axis=1, keepdims=True), 1)
    proposal = np.log(np.where(RANDOM.mask, 0.4 * prior + 0.6 * uniform, 1.0))
    for n, root in enumerate(roots):
        two_steps = {action: advantage for action, _, advantage in paths(RANDOM, root, 2, greedy=True)}
        assert len({round(a, 3) for a in two_steps.values()}) == len(two_steps) > 1
        expected = [two_steps[action] for action in out.initial_root_actions[n]]
        np.testing.assert_allclose(out.sampled_advantages[n], expected, rtol=1e-5, atol=1e-5)
        ratio = (log_prior - proposal)[root][out.initial_root_actions[n]]
        np.testing.assert_allclose(out.log_prior_ratio[n], ratio, atol=5e-3)  # the Dirichlet's own spread
    # The root of one kind of path wins before the resampling, and only what comes after it is in the weights.
    leaves = {"num_particles": 64, "search_depth": 2, "resampling_period": 1, "continuation": "greedy"}
    out = search_tree(appendix_tree(), [0], temperature=0.7, **leaves)
    later = np.array([1.0, 0.5])  # r(1, 0) and r(2, 1): the state stays, so its value cancels
    np.testing.assert_allclose(out.root_weights, softmax(later[out.root_actions] / 0.7), rtol=1e-5)
    uniform = np.full(64, 1 / 64)
    kl = (out.root_weights * np.log(out.root_weights / uniform)).sum()
    np.testing.assert_allclose(out.diagnostics.trajectory_kl, kl, rtol=1e-3)


def test_the_temperature_may_follow_from_the_advantages():
    leaves = {"num_particles": 16, "search_depth": 3, "resampling": "none"}
    out = search_tree(RANDOM, [0, 1, 0], temperature_function=_deviation, **leaves)
    spread = out.sampled_advantages.std(axis=1, keepdims=True)
    assert (spread > 0.1).all()
    np.testing.assert_allclose(out.root_weights, softmax(out.sampled_advantages / spread), rtol=1e-4)
    assert out.diagnostics.effective_sample_size.shape == (3, 3)


def _deviation(advantages):
    return jnp.std(advantages, axis=-1)


def test_a_search_to_the_end_equals_one_as_deep_as_the_longest_episode():
    """Greedy paths from the roots, some of which end sooner; what is not reached counts no particle."""
    roots = np.array([0, 1, 2])
    lengths = [next(d for d in range(1, 9) if _all_end(root, d)) for root in roots]
    longest = max(lengths)
    assert min(lengths) < longest < 8
    shared = {"num_particles": 8, "resampling": "none", "temperature": 0.7}
    fixed = search_tree(RANDOM, roots, search_depth=longest, **CERTAIN, **shared)
    full = search_tree(RANDOM, roots, search_depth="full", max_depth=12, **CERTAIN, **shared)
    np.testing.assert_allclose(root_marginal(full, RANDOM), root_marginal(fixed, RANDOM), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(full.diagnostics.model_steps, fixed.diagnostics.model_steps)
    sizes, expected = full.diagnostics.effective_sample_size, fixed.diagnostics.effective_sample_size
    assert sizes.shape == (12, 3)
    np.testing.assert_allclose(sizes[:longest], expected, rtol=1e-4)
    for n, length in enumerate(lengths):
        assert (sizes[:length, n] >= 1.0).all()
        np.testing.assert_array_equal(sizes[length:, n], 0.0)
    for n, root in enumerate(roots):
        scores = {action: advantage for action, _, advantage in paths(RANDOM, root, longest, greedy=True)}
        expected = [scores[action] for action in full.initial_root_actions[n]]
        np.testing.assert_allclose(full.sampled_advantages[n], expected, rtol=1e-5, atol=1e-5)


def _all_end(root, depth):
    """Whether a further step changes no path: the greedy paths of `depth` steps have ended."""
    deeper = paths(RANDOM, root, depth + 4, greedy=True)
    return np.allclose([a for *_, a in paths(RANDOM, root, depth, greedy=True)], [a for *_, a in deeper])


@pytest.mark.parametrize(
    ("leaf", "word"),
    [("root", "gumbel_top_k"), ("continuation", "greedyy"), ("resampling", "no"), ("resampler", "residual")],
)
def test_words_that_are_no_choice_are_refused_with_the_choices(leaf, word):
    with pytest.raises(ConfigError, match=f"search.{leaf}: no choice '{word}'") as caught:
        search_tree(RANDOM, [0], search_depth=1, num_particles=4, **{leaf: word})
    assert caught.value.hint.startswith("choices: ")


@pytest.mark.parametrize("leaf", ["gamma", "gae_lambda", "dirichlet_fraction", "resampling_ess_threshold"])
@pytest.mark.parametrize("number", [-0.1, 1.5, float("nan")])
def test_shares_outside_their_range_are_refused(leaf, number):
    with pytest.raises(ConfigError, match=rf"search.{leaf}: {number} is not in \[0, 1\]"):
        check(SearchConfig(**{leaf: number}), factored=False)


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


def test_a_search_leaves_its_root_alone_and_repeats_itself():
    config, floats = split_config(num_particles=16, search_depth=4, resampling_period=2)
    tree = on_device(RANDOM)
    model = make_model(tree)
    run = jax.jit(lambda root, key: smc.search(model, tree, key, root, 0.5, config._replace(**floats)))
    root = make_root(tree, jnp.array([0, 1], jnp.int32))
    before = jax.tree.map(np.array, root)
    first, again, other = (run(root, jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, root, before)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert (first.initial_root_actions != other.initial_root_actions).any()
    assert (first.sampled_advantages != other.sampled_advantages).any()


def _one_run(tree, key, scalars):
    """A search whose numbers are all traced, noise and threshold included."""
    leaves = {"resampling": "ess", "num_particles": 16, "search_depth": 3, "root_noise_correction": True}
    config = SearchConfig(**leaves)._replace(**{name: x for name, x in scalars.items() if name != "temperature"})
    root = make_root(tree, jnp.array([0, 1, 0, 1], jnp.int32))
    return smc.search(make_model(tree), tree, key, root, scalars["temperature"], config)


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
