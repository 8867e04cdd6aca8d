"""SPO's gradient steps on replayed sequences: the policy towards the search, the values towards returns, the duals.

Sources: SPO (arXiv 2402.07963, section 3 and appendix D), MPO (arXiv 1806.06920). The temperature and the weights of
the search see the same advantages and the same prior; states whose search drew a single action say nothing about the
temperature and are left out of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.optimizer import (
    OptimizerState,
    apply_dual_gradients,
    apply_gradients,
)
from stoix_like.algorithms.spo_state import (
    LEAST_LOG,
    Duals,
    ReplayStep,
    SPOHyper,
    SPOParams,
    SPOSettings,
    SPOState,
)
from stoix_like.ops import distributions, losses, mpo, returns, trees
from stoix_like.ops.groups import action_groups
from stoix_like.ops.phases import phase
from stoix_like.replay import Buffer
from stoix_like.types import Array, Metrics, Network, NetworkParams, role_key

SOLVER_STEPS = 30  # bisections, over a range of e^21: to a share of 2e-8 of the temperature


class SPOBatch(NamedTuple):
    """What a gradient step needs, M = B * L rows."""

    observation: Any  # [M, ...]
    value_target: Array  # [M]
    target_logits: Array  # [M, A] or [M, F, A], of the target network
    root_actions: Array  # [M, P] or [M, P, F] int32
    root_weights: Array  # [M, P]
    drawn: Array  # [M, P] int32, equal numbers for equal roots beside the advantages
    advantages: Array  # [M, P]
    log_prior_ratio: Array  # [M, P]
    target_mass: Array  # [M], see `target_mass`
    is_valid: Array  # [M] bool: at least two different actions were drawn


class _Learning(NamedTuple):
    params: SPOParams
    optimizer: OptimizerState
    dual_optimizer: Any


class _Trained(NamedTuple):
    """What gradients are taken by."""

    online: NetworkParams
    duals: Duals


def optimize(
    network: Network, buffer: Buffer, settings: SPOSettings, state: SPOState, factor: Array
) -> tuple[SPOState, Metrics]:
    """(the state after all gradient steps of an update, their mean metrics); `factor` multiplies the rates."""

    def gradient_step(learning: _Learning, key: Array) -> tuple[_Learning, Metrics]:
        with phase("replay"):
            sequences = buffer.sample(state.replay, key)
        batch = make_batch(network, settings, state.hyper, learning.params.target, sequences)
        return _step(network, settings, state.hyper, learning, batch, factor)

    keys = jax.random.split(role_key(state.key, "replay", state.step), settings.gradient_steps)
    learning, metrics = jax.lax.scan(
        gradient_step, _Learning(state.params, state.optimizer, state.dual_optimizer), keys
    )
    state = state._replace(params=learning.params, optimizer=learning.optimizer, dual_optimizer=learning.dual_optimizer)
    return state, jax.tree.map(jnp.mean, metrics)


def make_batch(
    network: Network, settings: SPOSettings, hyper: SPOHyper, target: NetworkParams, sequences: ReplayStep
) -> SPOBatch:
    """Rows to learn from, of sequences [B, L, ...], or [B, L + 1, ...] where the last one only bootstraps."""
    length = settings.sequence_length
    learned: ReplayStep = jax.tree.map(lambda x: x[:, :length], sequences)
    rows: ReplayStep = trees.merge_leading(learned)
    value_target = value_targets(network, settings, hyper, target, sequences)
    targets = rows.targets
    root_actions = targets.root_actions.astype(jnp.int32)
    drawn = root_actions if targets.initial_root_actions is None else targets.initial_root_actions.astype(jnp.int32)
    drawn = action_groups(drawn)
    log_prior = targets.log_prior_ratio
    return SPOBatch(
        observation=rows.observation,
        value_target=value_target.reshape(-1),
        target_logits=network.actor(target, rows.observation),
        root_actions=root_actions,
        root_weights=targets.root_weights,
        drawn=drawn,
        advantages=targets.advantages,
        log_prior_ratio=jnp.zeros_like(targets.advantages) if log_prior is None else log_prior,
        target_mass=target_mass(settings, targets.advantages, log_prior),
        is_valid=jnp.any(drawn > 0, axis=-1),
    )


def target_mass(settings: SPOSettings, advantages: Array, log_prior_ratio: Array | None) -> Array:
    """What the particles' first weights add up to [M], 1 on average: the factor of a state in the policy's loss.

    These weights estimate the policy without bias. Divided by their own sum they do not: they are too sharp, and a
    policy that learns from its own samples collapses without any evidence. Times their sum, targets without evidence
    are the policy on average. It is 1 where particles are drawn from the policy, and where all legal actions are drawn.
    """
    if log_prior_ratio is None:
        return jnp.ones(advantages.shape[:1], jnp.float32)
    mass = jnp.sum(jnp.exp(log_prior_ratio), axis=-1)
    return mass / advantages.shape[-1] if settings.search.root == "iid" else mass


def value_targets(
    network: Network, settings: SPOSettings, hyper: SPOHyper, target: NetworkParams, sequences: ReplayStep
) -> Array:
    """Returns [B, L] by generalised advantage estimation with the target's values, cut where an episode ends."""
    length = settings.sequence_length
    batch_size = sequences.reward.shape[0]

    def values_of(observation: Any) -> Array:
        return network.critic(target, trees.merge_leading(observation)).reshape(batch_size, -1)

    values = values_of(sequences.observation)  # [B, L + 1], or [B, L] if the next observations are stored
    if sequences.next_observation is None:
        values, next_values = values[:, :-1], values[:, 1:]
    else:
        next_values = values_of(sequences.next_observation)
    by_time = tuple(
        jnp.swapaxes(x, 0, 1)
        for x in (
            sequences.reward[:, :length] * hyper.reward_scale,
            sequences.discount[:, :length] * hyper.gamma,
            sequences.is_last[:, :length],
            values,
            next_values,
        )
    )
    r_t, discount_t, is_last_t, v_tm1, v_t = by_time
    return jnp.swapaxes(returns.gae(r_t, discount_t, is_last_t, v_tm1, v_t, hyper.gae_lambda).target, 0, 1)


def _step(
    network: Network, settings: SPOSettings, hyper: SPOHyper, learning: _Learning, batch: SPOBatch, factor: Array
) -> tuple[_Learning, Metrics]:
    trained = _Trained(learning.params.online, learning.params.duals)
    gradients, metrics = jax.grad(loss, has_aux=True)(trained, network, settings, hyper, batch)
    metrics["trainer/global_grad_norm"] = jnp.sqrt(trees.squared_norm(gradients.online))
    online, optimizer = apply_gradients(trained.online, learning.optimizer, gradients.online, hyper, factor)
    duals, dual_optimizer = apply_dual_gradients(trained.duals, learning.dual_optimizer, gradients.duals, hyper.dual_lr)
    duals = settle_duals(settings, hyper, trained.duals, duals, batch)
    target = trees.soft_update(learning.params.target, online, hyper.tau)
    return _Learning(SPOParams(online, target, duals), optimizer, dual_optimizer), metrics


def loss(
    trained: _Trained, network: Network, settings: SPOSettings, hyper: SPOHyper, batch: SPOBatch
) -> tuple[Array, Metrics]:
    """(the scalar to minimise by the online network and the duals, its parts as metrics) of M rows."""
    duals = trained.duals
    logits, value = network.actor_critic(trained.online, batch.observation)
    cross_entropy = mpo.weighted_cross_entropy(
        logits, batch.root_actions, batch.root_weights, factored=settings.factored
    )
    policy_loss = jnp.mean(batch.target_mass * cross_entropy)
    policy_kl = distributions.kl_divergence(batch.target_logits, logits, factored=settings.factored)
    penalty, alpha_loss = mpo.alpha_loss(policy_kl, duals.alpha, hyper.epsilon_policy)
    value_loss = jnp.mean(losses.squared_error(value, batch.value_target))
    entropy = jnp.mean(distributions.entropy(logits, factored=settings.factored))
    temperature_loss, kls = _temperature_loss(settings, hyper, duals.temperature, batch)
    total = policy_loss + penalty + hyper.vf_coef * value_loss - hyper.ent_coef * entropy
    metrics = {
        "trainer/policy_loss": policy_loss,
        "trainer/value_loss": value_loss,
        "trainer/entropy": entropy,
        "trainer/explained_variance": losses.explained_variance(value, batch.value_target),
        "trainer/kl_policy": jnp.mean(policy_kl),
        "trainer/temperature": duals.temperature,
        "trainer/alpha": duals.alpha,
        "trainer/advantage_spread": mpo.advantage_spread(batch.advantages, batch.log_prior_ratio, batch.is_valid),
        "trainer/decided_states": jnp.mean(batch.is_valid.astype(jnp.float32)),
        **kls,
    }
    return total + alpha_loss + temperature_loss, metrics


def _temperature_loss(
    settings: SPOSettings, hyper: SPOHyper, temperature: Array, batch: SPOBatch
) -> tuple[Array, Metrics]:
    """(the dual's loss, 0 unless the temperature is learned; the KLs of the weights it stands for)."""
    sample = (batch.advantages, batch.log_prior_ratio, batch.is_valid)
    dual = mpo.weights_and_temperature_loss(*sample, temperature, hyper.epsilon)
    root_kl = mpo.mean_kl(*sample, jax.lax.stop_gradient(temperature), groups=batch.drawn)
    constrained = root_kl if settings.constrains_root else dual.kl
    metrics = {
        "trainer/kl_nonparametric": dual.kl,
        "trainer/kl_root": root_kl,
        "trainer/kl_over_epsilon": constrained / hyper.epsilon,
    }
    if settings.temperature_mode != "dual":
        return jnp.float32(0.0), metrics
    is_any = jnp.any(batch.is_valid)
    of_root = jnp.where(is_any, mpo.temperature_loss_of_kl(temperature, root_kl, hyper.epsilon), 0.0)
    return (of_root if settings.constrains_root else dual.loss), metrics


def settle_duals(settings: SPOSettings, hyper: SPOHyper, before: Duals, duals: Duals, batch: SPOBatch) -> Duals:
    """The duals after a step: the temperature solved or fixed if that is the mode, and held above its floor.

    Without decided states it is what it was `before`: the optimiser's momentum alone would move it. The floor is a
    share of the advantages' own deviation: how large advantages are differs by orders of magnitude between
    environments, and without decided states nothing is known of it.
    """
    sample: tuple[Array, Array, Array] = (batch.advantages, batch.log_prior_ratio, batch.is_valid)
    is_any = jnp.any(batch.is_valid)
    log_temperature = jnp.where(is_any, duals.log_temperature, before.log_temperature)
    if settings.temperature_mode in ("dual", "solve"):
        least = hyper.temperature_floor * mpo.advantage_spread(*sample)
        if settings.temperature_mode == "solve":
            log_temperature = jnp.where(is_any, jnp.log(_solved(settings, hyper, batch)), log_temperature)
        log_temperature = jnp.maximum(log_temperature, jnp.log(jnp.maximum(least, 1e-12)))
    elif settings.temperature_mode == "std":  # what searches use on average; each has its own
        spread = mpo.advantage_spread(*sample)
        log_temperature = jnp.where(is_any, jnp.log(jnp.maximum(spread, 1e-12)), before.log_temperature)
    elif settings.temperature_mode == "fixed":
        log_temperature = jnp.log(hyper.fixed_temperature)
    return Duals(jnp.maximum(log_temperature, LEAST_LOG), jnp.maximum(duals.log_alpha, LEAST_LOG))


def _solved(settings: SPOSettings, hyper: SPOHyper, batch: SPOBatch) -> Array:
    """The temperature at which the constrained KL of this batch is epsilon, within e^-14 .. e^7 deviations."""
    sample = (batch.advantages, batch.log_prior_ratio, batch.is_valid)
    spread = jnp.maximum(mpo.advantage_spread(*sample), 1e-8)
    groups = batch.drawn if settings.constrains_root else None
    return mpo.solve_temperature(
        lambda temperature: mpo.mean_kl(*sample, temperature, groups=groups),
        hyper.epsilon,
        spread * jnp.exp(-14.0),
        spread * jnp.exp(7.0),
        SOLVER_STEPS,
    )
