"""Learning from finished games: policy towards the search's, values towards outcomes, each position a bounded number of
times.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.alphazero.packing import unpack
from stoix_like.algorithms.alphazero.state import (
    AlphaZeroHyper,
    AlphaZeroParams,
    AlphaZeroSettings,
    LearningBudget,
    Sample,
)
from stoix_like.algorithms.optimizer import OptimizerState, apply_gradients
from stoix_like.games import BoardGame, Symmetries
from stoix_like.ops import distributions, trees
from stoix_like.ops.phases import phase
from stoix_like.replay import Ring, RingState
from stoix_like.types import Array, Key, Metrics, Network, NetworkParams, Observation

DECAY = 0.99  # per update, of the sums that the reuse is reported from


class Learning(NamedTuple):
    """What gradient steps change."""

    params: AlphaZeroParams
    optimizer: OptimizerState
    budget: LearningBudget


def add_to_budget(
    budget: LearningBudget, num_added: Array, settings: AlphaZeroSettings, max_reuse: Array
) -> LearningBudget:
    """The budget after `num_added` new samples. What cannot be used within a few updates is forgotten."""
    most = 4.0 * settings.most_gradient_steps * settings.batch_size
    return LearningBudget(
        jnp.minimum(budget.samples + max_reuse * num_added, most),
        DECAY * budget.recently_added + num_added,
        DECAY * budget.recently_drawn,
    )


class LearningSetup(NamedTuple):
    """What gradient steps are made with."""

    game: BoardGame
    network: Network  # its critic predicts outcomes [B, P]
    ring: Ring
    settings: AlphaZeroSettings


def learn(
    setup: LearningSetup,
    hyper: AlphaZeroHyper,
    factor: Array,
    learning: Learning,
    replay: RingState,
    step: Array,
    key: Key,
) -> tuple[Learning, Metrics]:
    """(parameters, optimiser and budget, metrics) after as many gradient steps as the budget allows.

    Args:
        setup: game, network, ring, sizes; at most `most_gradient_steps` are made.
        hyper: rates and weights.
        factor: on the learning rates.
        learning: what the steps change.
        replay: samples of finished games.
        step: index of the update, for the age of samples.
        key: consumed.
    """
    settings, take = setup.settings, functools.partial(_gradient_step, setup, hyper, factor, replay, step)

    def skip(learning: Learning, key: Key) -> tuple[Learning, Metrics]:
        _, shapes = jax.eval_shape(take, learning, key)
        return learning, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def maybe_step(learning: Learning, key: Key) -> tuple[Learning, tuple[Array, Metrics]]:
        is_taken = (learning.budget.samples >= settings.batch_size) & setup.ring.can_sample(replay)
        learning, metrics = jax.lax.cond(is_taken, take, skip, learning, key)
        return learning, (is_taken, metrics)

    keys = jax.random.split(key, settings.most_gradient_steps)
    learning, (is_taken, metrics) = jax.lax.scan(maybe_step, learning, keys)
    return learning, _mean_metrics(learning.budget, is_taken, metrics)


def _gradient_step(
    setup: LearningSetup,
    hyper: AlphaZeroHyper,
    factor: Array,
    replay: RingState,
    step: Array,
    learning: Learning,
    key: Key,
) -> tuple[Learning, Metrics]:
    draw_key, symmetry_key = jax.random.split(key)
    batch_size = setup.settings.batch_size
    with phase("replay"):
        batch = unpacked(setup.game, setup.ring.sample(replay, draw_key))
        if setup.settings.use_symmetries:
            batch = in_random_symmetries(setup.game.symmetries, batch, symmetry_key)
    params, optimizer, budget = learning
    gradients, metrics = jax.grad(loss, has_aux=True)(params.online, setup.network, hyper, batch)
    metrics["trainer/global_grad_norm"] = jnp.sqrt(trees.squared_norm(gradients))
    metrics["trainer/sample_age"] = jnp.mean((step - batch.step).astype(jnp.float32))
    online, optimizer = apply_gradients(params.online, optimizer, gradients, hyper, factor, hyper.weight_decay)
    average = trees.soft_update(params.average, online, hyper.tau)
    budget = budget._replace(samples=budget.samples - batch_size, recently_drawn=budget.recently_drawn + batch_size)
    return Learning(AlphaZeroParams(online, average), optimizer, budget), metrics


def _mean_metrics(budget: LearningBudget, is_taken: Array, metrics: Metrics) -> Metrics:
    count = jnp.sum(is_taken.astype(jnp.float32))
    means = {name: jnp.sum(values) / jnp.maximum(count, 1.0) for name, values in metrics.items()}
    means["trainer/gradient_steps_sum"] = count
    means["trainer/sample_reuse"] = budget.recently_drawn / jnp.maximum(budget.recently_added, 1.0)
    return means


def unpacked(game: BoardGame, batch: Sample) -> Sample:
    """Samples [B, ...] with observations and policies over all actions."""
    observation, policy = unpack(game, batch.observation, batch.policy)
    return batch._replace(observation=observation, policy=policy)


def in_random_symmetries(symmetries: Symmetries, batch: Sample, key: Key) -> Sample:
    """The samples [B, ...], each seen in a symmetry of the board drawn for it. Values do not change.

    A position with a legal action that no symmetry maps is seen as it is.
    """
    assert isinstance(batch.observation, Observation)  # narrows the type
    drawn = jax.random.randint(key, batch.is_full.shape, 0, len(symmetries.cells))  # [B]
    if symmetries.unmapped is not None:
        drawn = jnp.where(jnp.any(batch.observation.action_mask & symmetries.unmapped[None], axis=1), 0, drawn)
    cells, actions = jnp.asarray(symmetries.cells)[drawn], jnp.asarray(symmetries.actions)[drawn]  # [B, C], [B, A]
    planes = jnp.take_along_axis(batch.observation.agent_view, cells[..., None], axis=1)  # [B, C, channels]
    mask = jnp.take_along_axis(batch.observation.action_mask, actions, axis=1)
    policy = jnp.take_along_axis(batch.policy, actions, axis=1)
    return batch._replace(observation=Observation(planes, mask), policy=policy)


def loss(params: NetworkParams, network: Network, hyper: AlphaZeroHyper, batch: Sample) -> tuple[Array, Metrics]:
    """(the scalar to minimise, its parts as metrics) of samples [B, ...].

    The policy loss is the cross-entropy to the improved policy over the fully searched positions; the value loss the
    mean squared error to a mixture of outcome and search value (Silver et al. 2018, doi 10.1126/science.aar6404, eq. 1;
    Danihelka et al. 2022, for the improved policy).
    """
    assert isinstance(batch.observation, Observation)  # narrows the type
    logits, values = network.actor_critic(params, batch.observation)  # [B, A], [B, P]
    log_policy = jax.nn.log_softmax(logits)
    is_full = batch.is_full.astype(jnp.float32)
    num_full = jnp.maximum(jnp.sum(is_full), 1.0)
    cross_entropy = -jnp.sum(jnp.where(batch.policy > 0.0, batch.policy * log_policy, 0.0), axis=-1)  # [B]
    policy_loss = jnp.sum(is_full * cross_entropy) / num_full
    value_loss = jnp.mean(jnp.square(values - value_targets(batch, hyper.root_value_weight)))
    metrics = {
        "trainer/policy_loss": policy_loss,
        "trainer/value_loss": value_loss,
        "trainer/entropy": jnp.mean(distributions.entropy(logits)),
    }
    return policy_loss + hyper.vf_coef * value_loss, metrics


def value_targets(batch: Sample, root_value_weight: Array) -> Array:
    """[B, P]: (1 - w) * outcome + w * the search's values, for every player."""
    return (1.0 - root_value_weight) * batch.outcome + root_value_weight * batch.root_values
