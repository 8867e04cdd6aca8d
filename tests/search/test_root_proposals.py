"""First actions: how they are drawn, what they weigh, and what a search of one step makes of them, exactly."""

import functools
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full, quick
from support.tabular import GARBAGE_REWARD, make_tree, policy, root_marginal, search_tree, softmax

from stoix_like.algorithms.spo_learning import target_mass
from stoix_like.errors import ConfigError
from stoix_like.search import smc

#: States by what is legal in them; each action leads to the last state, whose value differs from 0.
FIVE_LEGAL, ONE_LEGAL, TWO_LEGAL, ALL_LEGAL, NONE_LEGAL, SHARP, LEAF = range(7)
STATES = np.arange(LEAF)
WITH_LEGAL = [FIVE_LEGAL, ONE_LEGAL, TWO_LEGAL, ALL_LEGAL, SHARP]
NUM_REPEATS = 4096  # searches per state, each with draws of its own
TEMPERATURE = 0.5


def one_step_tree():
    rng = np.random.default_rng(0)
    mask = np.array(
        [
            [1, 1, 0, 1, 1, 1],
            [0, 0, 1, 0, 0, 0],
            [1, 0, 0, 0, 0, 1],
            [1, 1, 1, 1, 1, 1],
            [0, 0, 0, 0, 0, 0],
            [1, 1, 1, 0, 1, 0],
            [1, 1, 1, 1, 1, 1],
        ],
        bool,
    )
    logits = rng.normal(size=mask.shape)
    logits[SHARP] = [0.0, -60.0, -60.5, 0.0, -61.0, 0.0]
    reward = np.where(mask, rng.normal(0.0, 0.5, mask.shape), GARBAGE_REWARD)
    return make_tree(logits, mask, rng.normal(size=7), np.full(mask.shape, LEAF), reward)


TREE = one_step_tree()
PRIOR = policy(TREE)
LOG_PRIOR = np.log(np.where(TREE.mask, PRIOR, 1.0))  # read at legal actions only
ADVANTAGE = TREE.reward + TREE.value[LEAF] - TREE.value[:, None]


@functools.cache
def searched(num_particles, num_repeats=NUM_REPEATS, temperature=TEMPERATURE, **leaves):
    """{state: output of its searches} of one step from every state."""
    leaves = {"search_depth": 1, "root": "gumbel_topk"} | leaves
    roots = np.repeat(STATES, num_repeats)
    output = search_tree(TREE, roots, num_particles=num_particles, temperature=temperature, **leaves)
    output = output._replace(diagnostics=None)  # its axes are others
    return {state: jax.tree.map(lambda x, state=state: x[roots == state], output) for state in STATES}


def frequencies(actions):
    return np.bincount(np.asarray(actions).ravel(), minlength=6) / np.size(actions)


def assert_mean(samples, expected):
    """The mean over axis 0 within four standard errors; exactly where nothing varies."""
    error = samples.std(axis=0) / np.sqrt(len(samples))
    np.testing.assert_array_less(np.abs(samples.mean(axis=0) - expected), 4 * error + 1e-5)


def noisy(fraction):
    """The proposals under a Dirichlet of huge alpha, which always gives the uniform over legal actions."""
    uniform = TREE.mask / np.maximum(TREE.mask.sum(axis=1, keepdims=True), 1)
    return (1 - fraction) * PRIOR + fraction * uniform


NOISE = {"dirichlet_fraction": 0.5, "dirichlet_alpha": 0.3, "root_noise_correction": True}
CONFIGS = {
    "three of a noisy proposal": {"num_particles": 3, "dirichlet_fraction": 0.3, "dirichlet_alpha": 1e6},
    "eight": {"num_particles": 8},
    "independent": {"num_particles": 16, "root": "iid"},
    "independent with noise": {"num_particles": 16, "root": "iid"} | NOISE,
}
DISTINCT = ["three of a noisy proposal", "eight"]


@pytest.mark.parametrize("name", quick(CONFIGS, ["three of a noisy proposal", "independent"]))
def test_only_legal_actions_are_drawn_and_weights_sum_to_one(name):
    outputs = searched(**CONFIGS[name])
    for state in WITH_LEGAL:
        out = outputs[state]
        assert TREE.mask[state][out.initial_root_actions].all()
        assert TREE.mask[state][out.action].all()
        np.testing.assert_array_equal(out.root_actions, out.initial_root_actions)  # one step: nothing is resampled
        np.testing.assert_allclose(out.root_weights.sum(axis=1), 1.0, rtol=1e-5)
        assert np.isfinite(out.log_prior_ratio).all()
        np.testing.assert_allclose(out.sampled_advantages, ADVANTAGE[state][out.root_actions], atol=1e-5)
    nothing_legal = outputs[NONE_LEGAL]
    np.testing.assert_allclose(nothing_legal.root_weights.sum(axis=1), 1.0, rtol=1e-5)
    assert ((nothing_legal.action >= 0) & (nothing_legal.action < 6)).all()


@pytest.mark.parametrize("name", DISTINCT)
def test_roots_are_distinct_as_far_as_there_are_legal_ones(name):
    num_particles = CONFIGS[name]["num_particles"]
    for state in WITH_LEGAL:
        actions = searched(**CONFIGS[name])[state].initial_root_actions
        copies = np.stack([np.bincount(row, minlength=6) for row in actions])  # [N, A]
        num_distinct = min(num_particles, TREE.mask[state].sum())
        np.testing.assert_array_equal((copies > 0).sum(axis=1), num_distinct)
        drawn = np.where(copies > 0, copies, num_particles)
        assert (copies.max(axis=1) - drawn.min(axis=1) <= 1).all()  # 8 particles of 5 legal: 2, 2, 2, 1, 1


@pytest.mark.parametrize("name", DISTINCT)
def test_sums_over_distinct_roots_are_unbiased(name):
    """The mean over many draws of sum_j weight_j [a_j = a], not normalised, is the policy's probability of a."""
    for state in WITH_LEGAL:
        out = searched(**CONFIGS[name])[state]
        weights = np.exp(out.log_prior_ratio.astype(float))
        estimates = np.stack([(weights * (out.initial_root_actions == a)).sum(axis=1) for a in range(6)], axis=1)
        assert_mean(estimates, PRIOR[state])
        improved = (weights * np.exp(out.sampled_advantages / TEMPERATURE)).sum(axis=1)
        legal = TREE.mask[state]
        assert_mean(improved, (PRIOR[state, legal] * np.exp(ADVANTAGE[state, legal] / TEMPERATURE)).sum())


def test_targets_without_evidence_are_the_policy_only_times_their_mass():
    """Normalised weights of 4 of 20 actions are too sharp, and what they teach they would teach again."""
    settings = SimpleNamespace(search=SimpleNamespace(root="gumbel_topk"))
    prior = 1 / np.arange(1, 21) / np.sum(1 / np.arange(1, 21))
    tree = make_tree(np.log(prior)[None], True, [0.0], np.zeros((1, 20), int), 0.0)
    leaves = {"search_depth": 1, "root": "gumbel_topk", "temperature": 1.0}
    out = search_tree(tree, np.zeros(NUM_REPEATS, int), num_particles=4, **leaves)
    marginal, mass = root_marginal(out, tree), np.asarray(mass_of(settings, out))
    assert_mean(mass, 1.0)
    assert_mean(mass[:, None] * marginal, prior)
    drift = marginal[:, 0].mean() - prior[0]
    assert drift > 4 * marginal[:, 0].std() / np.sqrt(NUM_REPEATS)
    for state in WITH_LEGAL:  # nothing left out, nothing to mend
        np.testing.assert_allclose(mass_of(settings, searched(8)[state]), 1.0, rtol=1e-5)


def mass_of(settings, out):
    return target_mass(settings, out.sampled_advantages, out.log_prior_ratio)


@pytest.mark.parametrize("resampling", ["period", full("ess")])
def test_resampling_without_evidence_keeps_the_roots_and_their_prior(resampling):
    """Not by the prior: of first actions with 0.97, 0.01, 0.01, 0.01 one would be left with nothing known of them."""
    prior = np.array([0.97, 0.01, 0.01, 0.01])
    tree = make_tree(np.log(prior)[None], True, [0.0], np.zeros((1, 4), int), 0.0)
    leaves = {"num_particles": 4, "search_depth": 4, "root": "gumbel_topk", "resampling": resampling}
    leaves |= {"resampling_period": 1, "resampling_ess_threshold": 0.9}
    out = search_tree(tree, np.zeros(256, int), temperature=1.0, **leaves)
    np.testing.assert_allclose(out.diagnostics.effective_sample_size, 4.0, rtol=1e-5)
    np.testing.assert_array_equal(out.diagnostics.surviving_root_actions, 4)
    np.testing.assert_allclose(root_marginal(out, tree), np.tile(prior, (256, 1)), rtol=1e-4)
    np.testing.assert_allclose(out.diagnostics.root_kl, 0.0, atol=1e-5)


def test_the_order_is_that_of_draws_without_replacement():
    """First as the proposal, second as the proposal without the first: the Plackett-Luce distribution."""
    proposal = noisy(0.3)
    for state in (FIVE_LEGAL, ALL_LEGAL):
        first, second, _ = searched(**CONFIGS["three of a noisy proposal"])[state].initial_root_actions.T
        assert_mean(np.eye(6)[first], proposal[state])
        pairs = proposal[state][:, None] * proposal[state][None] / (1 - proposal[state][:, None])
        np.fill_diagonal(pairs, 0.0)
        found = np.eye(36)[first * 6 + second]
        error = np.sqrt(pairs.ravel() / NUM_REPEATS)  # of the expected counts: some pairs come up once or never
        assert (np.abs(found.mean(axis=0) - pairs.ravel()) <= 5 * error + 1e-5).all()  # 5: there are 120 comparisons


@pytest.mark.parametrize("state", WITH_LEGAL)
def test_every_legal_action_makes_the_target_exact_and_the_action_is_drawn_by_it(state):
    """Nothing is left to chance: softmax(log policy + advantage / temperature) in every search."""
    out = searched(**CONFIGS["eight"])[state]
    legal = TREE.mask[state]
    expected = np.zeros(6)
    expected[legal] = softmax((TREE.logits + ADVANTAGE / TEMPERATURE)[state, legal])
    np.testing.assert_allclose(root_marginal(out, TREE), np.tile(expected, (NUM_REPEATS, 1)), rtol=1e-4, atol=1e-6)
    copies = np.stack([np.bincount(row, minlength=6) for row in out.root_actions])
    of_particle = np.take_along_axis(copies, out.root_actions, axis=1)
    ratio = LOG_PRIOR[state][out.root_actions] - np.log(of_particle)
    np.testing.assert_allclose(out.log_prior_ratio, ratio, rtol=1e-5, atol=1e-5)
    if state in (FIVE_LEGAL, TWO_LEGAL, ALL_LEGAL):
        assert_mean(np.eye(6)[out.action], root_marginal(out, TREE).mean(axis=0))


def test_a_hot_search_returns_the_prior_and_a_cold_one_the_best_action():
    for temperature, state in itertools.product((1e9, np.inf), WITH_LEGAL):
        out = searched(8, num_repeats=16, temperature=temperature)[state]
        np.testing.assert_allclose(root_marginal(out, TREE), np.tile(PRIOR[state], (16, 1)), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(searched(16, 16, temperature, root="iid")[state].root_weights, 1 / 16, rtol=1e-5)
    for state in WITH_LEGAL:
        best = np.where(TREE.mask[state], ADVANTAGE[state], -np.inf).argmax()
        out = searched(8, num_repeats=16, temperature=1e-4)[state]
        np.testing.assert_array_equal(root_marginal(out, TREE), np.tile(np.eye(6)[best], (16, 1)))
        np.testing.assert_array_equal(out.action, best)


def test_independent_roots_are_drawn_from_the_policy_and_weigh_the_same():
    outputs = searched(**CONFIGS["independent"])
    for state in WITH_LEGAL:
        actions = outputs[state].initial_root_actions
        assert_mean(np.eye(6)[actions].mean(axis=1), PRIOR[state])
        # Independent within a search too: two particles agree as often as the probabilities say.
        assert_mean((actions[:, 0] == actions[:, 1]).astype(float), np.square(PRIOR[state]).sum())
        np.testing.assert_array_equal(outputs[state].log_prior_ratio, 0.0)


@pytest.mark.full
def test_noise_alone_is_a_dirichlet_over_the_legal_actions_and_otherwise_a_part_of_the_proposal():
    """Of K legal actions with alpha = 1 each has mean 1 / K and mean square 2 / (K (K + 1)), whatever the policy."""
    outputs = searched(64, 512, root="iid", dirichlet_fraction=1.0, dirichlet_alpha=1.0)
    for state in (FIVE_LEGAL, TWO_LEGAL, ALL_LEGAL, SHARP):
        actions = outputs[state].initial_root_actions
        share = np.stack([frequencies(row) for row in actions])  # [N, A]
        legal, k = TREE.mask[state], TREE.mask[state].sum()
        np.testing.assert_array_equal(share[:, ~legal], 0.0)
        assert_mean(share[:, legal], 1 / k)
        # 64 draws of a share d have the mean square d^2 (1 - 1/64) + d / 64.
        assert_mean(np.square(share[:, legal]), 2 / (k * (k + 1)) * (1 - 1 / 64) + 1 / k / 64)
        np.testing.assert_array_equal(outputs[state].log_prior_ratio, 0.0)
    # As probabilities, not as logits: (1 - f) p + f / K on average, for any alpha.
    outputs = searched(64, 512, root="iid", dirichlet_fraction=0.25, dirichlet_alpha=0.3)
    for state in WITH_LEGAL:
        share = np.stack([frequencies(row) for row in outputs[state].initial_root_actions])
        assert_mean(share, noisy(0.25)[state])


def test_extreme_noise_stays_finite():
    out = searched(16, root="iid", dirichlet_fraction=0.5, dirichlet_alpha=0.01, root_noise_correction=True)
    for state in WITH_LEGAL:
        assert np.isfinite(out[state].log_prior_ratio).all()
        assert np.isfinite(out[state].root_weights).all()


def test_correction_is_the_log_ratio_of_policy_and_proposal_and_nothing_without_noise():
    """With a huge alpha the proposal is known: log p - log((1 - f) p + f / K), unbiased as any importance weight."""
    leaves = CONFIGS["independent with noise"]
    known = searched(**(leaves | {"dirichlet_alpha": 1e6}))
    for state in WITH_LEGAL:
        ratio = LOG_PRIOR[state] - np.log(np.where(TREE.mask, noisy(0.5), 1.0))[state]
        # Shares of a Dirichlet of alpha 1e6 are off by 1e-3 / sqrt(K) at most a few times that.
        np.testing.assert_allclose(
            known[state].log_prior_ratio, ratio[known[state].initial_root_actions], rtol=1e-4, atol=5e-3
        )
    unknown = searched(**leaves)
    for state in WITH_LEGAL:
        weights = np.exp(unknown[state].log_prior_ratio.astype(float))
        estimates = [(weights * (unknown[state].initial_root_actions == a)).mean(axis=1) for a in range(6)]
        assert_mean(np.stack(estimates, axis=1), PRIOR[state])
    plain = searched(16, num_repeats=16, root="iid")
    corrected = searched(16, num_repeats=16, root="iid", root_noise_correction=True)
    for state in WITH_LEGAL:
        np.testing.assert_array_equal(plain[state].root_actions, corrected[state].root_actions)
        np.testing.assert_allclose(plain[state].root_weights, corrected[state].root_weights, rtol=1e-5)


def test_a_factor_without_legal_values_does_not_drown_the_others():
    """It is drawn uniformly, and its ratio is 1; where nothing is legal at all, so is every weight."""
    logits = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    mask = np.array([[[True] * 3, [False] * 3], [[False] * 3, [False] * 3]])
    tree = make_tree(np.stack([logits, logits]), mask, [0.0, 0.0], np.zeros((2, 9), int), 0.0)
    noise = {"dirichlet_fraction": 0.5, "dirichlet_alpha": 1e6, "root_noise_correction": True}
    out = search_tree(tree, [0, 1], num_particles=64, search_depth=1, **noise)
    prior = softmax(logits[0])
    ratio = np.log(prior / (0.5 * prior + 0.5 / 3))[out.initial_root_actions[0, :, 0]]
    np.testing.assert_allclose(out.log_prior_ratio[0], ratio, atol=5e-3)  # the Dirichlet's own spread
    np.testing.assert_allclose(out.root_weights[0], softmax(ratio), rtol=2e-2)
    np.testing.assert_allclose(out.log_prior_ratio[1], 0.0, atol=1e-6)
    np.testing.assert_allclose(out.root_weights[1], 1 / 64, rtol=1e-5)


def test_the_most_probable_roots_without_noise():
    """`topk`: the same in every search, ranked by the policy; with every legal action it is exact too."""
    few, all_legal = (searched(number, num_repeats=4, root="topk") for number in (3, 8))
    for state in (FIVE_LEGAL, ALL_LEGAL, SHARP):
        ranking = np.argsort(-PRIOR[state])[:3]
        np.testing.assert_array_equal(few[state].root_actions, np.tile(ranking, (4, 1)))
        np.testing.assert_allclose(few[state].log_prior_ratio, np.tile(LOG_PRIOR[state, ranking], (4, 1)), rtol=1e-5)
        exact = searched(8)[state]
        np.testing.assert_allclose(
            root_marginal(all_legal[state], TREE), root_marginal(exact, TREE)[:4], rtol=1e-4, atol=1e-6
        )


def test_best_action_adds_up_the_weight_of_equal_actions_and_factors_have_no_distinct_roots():
    """Action 2 has 0.3 + 0.3, more than action 1 with the largest single weight."""
    output = jax.tree.map(jnp.asarray, searched(**CONFIGS["three of a noisy proposal"])[ALL_LEGAL])
    output = output._replace(
        root_actions=jnp.array([[2, 1, 2]]), root_weights=jnp.array([[0.3, 0.4, 0.3]]), action=jnp.array([1])
    )
    np.testing.assert_array_equal(smc.best_action(output), [2])
    factored = output._replace(root_actions=jnp.array([[[2, 1], [2, 0], [2, 1]]]))
    np.testing.assert_array_equal(smc.best_action(factored), [[2, 1]])
    tree = make_tree(np.zeros((1, 2, 3)), True, [0.0], np.zeros((1, 9), int), 0.0)
    with pytest.raises(ConfigError, match="factors"):
        search_tree(tree, np.zeros(2, int), root="gumbel_topk", num_particles=4)
