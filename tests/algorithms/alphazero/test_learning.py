"""AlphaZero's gradient steps on samples made by hand: targets, symmetries, the bound on reuse, the average."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.self_play import SETTINGS

from stoix_like.algorithms.alphazero import learning
from stoix_like.algorithms.alphazero.learning import Learning, LearningSetup
from stoix_like.algorithms.alphazero.state import (
    AlphaZeroHyper,
    AlphaZeroParams,
    LearningBudget,
    Sample,
    example_sample,
)
from stoix_like.algorithms.optimizer import init_optimizer
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.ops.distributions import masked_logits
from stoix_like.replay import make_ring
from stoix_like.types import Network, NetworkParams, Observation

GAME = make_tic_tac_toe()
HYPER = AlphaZeroHyper(
    actor_lr=0.1,
    critic_lr=0.1,
    max_grad_norm=10.0,
    weight_decay=0.0,
    vf_coef=0.5,
    tau=0.25,
    play_temperature=1.0,
    root_value_weight=0.25,
    max_reuse=3.0,
    num_updates=10.0,
)


def sample(policy, root_value, outcome, *, legal=None, is_full=True, step=0):
    """One sample of a board of nine cells, with a batch axis. The root value of one of two players gives both."""
    root_values = np.array([root_value, -root_value]) if np.ndim(root_value) == 0 else root_value
    legal = np.asarray(policy) > 0.0 if legal is None else np.asarray(legal)
    observation = Observation(np.zeros((9, 2), bool), legal)
    row = Sample(
        observation,
        np.float32(policy),
        np.float32(root_values),
        np.float32(outcome),
        np.bool_(is_full),
        np.int32(step),
    )
    return jax.tree.map(lambda x: jnp.asarray(x)[None], row)


def stacked(*samples):
    return jax.tree.map(lambda *rows: jnp.concatenate(rows), *samples)


def constant_network():
    """Logits and a value that are parameters, the same in every position."""

    def init(_key, _observation):
        return NetworkParams(None, jnp.zeros(9), jnp.float32(0.0))

    def actor(params, observation):
        mask = observation.action_mask
        return masked_logits(jnp.broadcast_to(params.actor[None], mask.shape), mask)

    def critic(params, observation):
        value = jnp.broadcast_to(params.critic, observation.action_mask.shape[:1])
        return jnp.stack([value, -value], axis=-1)

    return Network(init, actor, critic, lambda p, o: (actor(p, o), critic(p, o)))


NETWORK = constant_network()
PARAMS = NetworkParams(None, jnp.log(jnp.arange(1.0, 10.0)), jnp.float32(0.5))


def test_loss_by_hand():
    # Actions 0 and 3 are legal, with probabilities 1/5 and 4/5. Targets: (1/4, 3/4), and 3/4 * -1 + 1/4 * 0.2 = -0.7.
    policy = [0.25, 0.0, 0.0, 0.75, 0.0, 0.0, 0.0, 0.0, 0.0]
    loss, metrics = learning.loss(PARAMS, NETWORK, HYPER, sample(policy, 0.2, [-1.0, 1.0]))
    cross_entropy = -(0.25 * np.log(0.2) + 0.75 * np.log(0.8))
    assert metrics["trainer/policy_loss"] == pytest.approx(cross_entropy, rel=1e-5)
    assert metrics["trainer/value_loss"] == pytest.approx(1.2**2, rel=1e-5)
    assert loss == pytest.approx(cross_entropy + 0.5 * 1.44, rel=1e-5)
    assert metrics["trainer/entropy"] == pytest.approx(-(0.2 * np.log(0.2) + 0.8 * np.log(0.8)), rel=1e-5)


def test_policies_of_quick_searches_are_not_learned_from():
    policy = [0.5, 0.5] + [0.0] * 7
    full, quick = sample(policy, 0.0, [1.0, -1.0]), sample(policy[::-1], 0.0, [-1.0, 1.0], is_full=False)
    alone = learning.loss(PARAMS, NETWORK, HYPER, full)[1]
    both = learning.loss(PARAMS, NETWORK, HYPER, stacked(full, quick))[1]
    assert both["trainer/policy_loss"] == alone["trainer/policy_loss"]
    assert both["trainer/value_loss"] == pytest.approx((0.25**2 + 1.25**2) / 2)  # targets 0.75 and -0.75
    none = learning.loss(PARAMS, NETWORK, HYPER, quick)[1]
    assert none["trainer/policy_loss"] == 0.0


def test_value_targets_of_three_players():
    batch = sample([1.0] + [0.0] * 8, [0.5, -0.4, -0.1], [1.0, -0.25, -0.75])
    np.testing.assert_allclose(learning.value_targets(batch, 0.2), [[0.9, -0.28, -0.62]], rtol=1e-6)


def test_symmetries_show_planes_policy_and_mask_together():
    planes = np.zeros((9, 2), bool)
    planes[1, 0] = planes[5, 1] = True
    legal = np.ones(9, bool)
    legal[[1, 5]] = False
    policy = np.where(legal, np.arange(9), 0.0)
    one = sample(policy / policy.sum(), 0.3, [1.0, -1.0], legal=legal)
    one = one._replace(observation=one.observation._replace(agent_view=jnp.asarray(planes)[None]))
    many = jax.tree.map(lambda x: jnp.tile(x, (400,) + (1,) * (x.ndim - 1)), one)
    shown = jax.jit(functools.partial(learning.in_random_symmetries, GAME.symmetries))(many, jax.random.key(0))
    seen = set()
    for row in range(400):
        mine = int(np.argmax(shown.observation.agent_view[row, :, 0]))
        theirs = int(np.argmax(shown.observation.agent_view[row, :, 1]))
        seen.add((mine, theirs))
        assert not shown.observation.action_mask[row, [mine, theirs]].any()
        assert shown.observation.action_mask[row].sum() == 7
        assert not (shown.policy[row] > 0)[jnp.array([mine, theirs])].any()
        assert sorted(shown.policy[row].tolist()) == sorted(one.policy[0].tolist())
    assert seen == {(1, 5), (1, 3), (3, 1), (3, 7), (5, 1), (5, 7), (7, 3), (7, 5)}  # top and right edge, turned
    np.testing.assert_array_equal(shown.outcome, many.outcome)


def test_a_position_with_an_action_that_no_symmetry_maps_is_shown_as_it_is():
    """Of two positions one has the action 4 among its legal ones."""
    planes = jnp.zeros((1, 9, 2), bool).at[0, 1, 0].set(True)
    unmapped = np.arange(9) == 4
    symmetries = GAME.symmetries._replace(unmapped=unmapped)
    for has_it in (True, False):
        legal = np.ones(9, bool)
        legal[[1, 4]] = [False, has_it]
        one = sample(legal / legal.sum(), 0.0, [1.0, -1.0], legal=legal)
        one = one._replace(observation=one.observation._replace(agent_view=planes))
        many = jax.tree.map(lambda x: jnp.tile(x, (100,) + (1,) * (x.ndim - 1)), one)
        shown = learning.in_random_symmetries(symmetries, many, jax.random.key(0))
        places = set(np.argmax(shown.observation.agent_view[:, :, 0], axis=1).tolist())
        assert places == ({1} if has_it else {1, 3, 5, 7})


def filled(num_samples):
    ring = make_ring(capacity=64, batch_size=4)
    rows = stacked(*[sample([1.0] + [0.0] * 8, 0.0, [1.0, -1.0], step=i) for i in range(num_samples)])
    empty = ring.init(example_sample(GAME))
    return ring, ring.add(empty, rows, jnp.ones(num_samples, bool))


@functools.cache
def jitted_learn():
    """(the function (learning, step, key) -> (learning, metrics), on eight samples, compiled once)."""
    ring, replay = filled(8)
    call = functools.partial(learning.learn, LearningSetup(GAME, NETWORK, ring, SETTINGS))
    return jax.jit(lambda before, step, key: call(HYPER, jnp.float32(1.0), before, replay, step, key))


def learn(budget):
    before = Learning(AlphaZeroParams(PARAMS, PARAMS), init_optimizer(PARAMS), budget)
    return jitted_learn()(before, jnp.int32(10), jax.random.key(0))


def test_no_more_is_drawn_than_the_budget_allows():
    zero = jnp.float32(0.0)
    budget = learning.add_to_budget(LearningBudget(zero, zero, zero), jnp.float32(5.0), SETTINGS, HYPER.max_reuse)
    assert budget.samples == 15.0  # three batches of four, and three samples
    after, metrics = learn(budget)
    assert metrics["trainer/gradient_steps_sum"] == 3
    assert after.budget.samples == 3.0
    assert metrics["trainer/sample_reuse"] == pytest.approx(12 / 5)
    most = learning.add_to_budget(LearningBudget(zero, zero, zero), jnp.float32(1e6), SETTINGS, HYPER.max_reuse)
    assert most.samples == 4 * 5 * 4  # what cannot be used soon is forgotten
    unchanged, metrics = learn(LearningBudget(jnp.float32(3.9), zero, zero))
    assert metrics["trainer/gradient_steps_sum"] == 0
    assert metrics["trainer/policy_loss"] == 0.0
    jax.tree.map(np.testing.assert_array_equal, unchanged.params, AlphaZeroParams(PARAMS, PARAMS))


def test_the_average_follows_and_ages_are_in_updates():
    after, metrics = learn(LearningBudget(jnp.float32(4.0), jnp.float32(0.0), jnp.float32(0.0)))
    moved = after.params.online.critic - PARAMS.critic
    assert abs(moved) > 1e-3
    assert after.params.average.critic == pytest.approx(PARAMS.critic + 0.25 * moved)
    assert 2.0 <= metrics["trainer/sample_age"] <= 10.0  # samples of updates 0 to 7, at update 10
