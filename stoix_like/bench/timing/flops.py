"""The number of operations of networks of dense layers, to compute the ceiling of a measured rate."""

from __future__ import annotations

from typing import NamedTuple

import jax

from stoix_like.config.sections.runs import PPOConfig, SPOConfig
from stoix_like.runtime.runs import build


def ppo_flops_per_step(config: PPOConfig) -> float:
    """Dense operations per step of PPO with separate MLPs: one forward pass, and learning in each epoch."""
    flops = network_flops(config)
    return flops.forward + flops.learning * config.training_core.epochs


class NetworkFlops(NamedTuple):
    """Floating-point operations for one observation; separate networks, dense layers only.

    Learning takes three times the forward pass, except in the first layers: the gradient of the observation is not
    computed.
    """

    actor: float  # one forward pass
    critic: float
    learning: float  # forward and backward, of both

    @property
    def forward(self) -> float:
        """One forward pass of both networks."""
        return self.actor + self.critic


def network_flops(config: PPOConfig | SPOConfig) -> NetworkFlops:
    """The operations of the configuration's network, from the shapes of its kernels, without biases."""
    env = build.make_env(config.environment)
    network = build.make_network(env, config)
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    batched = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), timestep.observation)
    params = jax.eval_shape(network.init, jax.random.key(0), batched)
    actor, critic = ([x.shape for x in jax.tree.leaves(p) if len(x.shape) == 2] for p in (params.actor, params.critic))
    widths = {columns for _, columns in (*actor, *critic)}
    first = sum(2.0 * rows * columns for rows, columns in (*actor, *critic) if rows not in widths)
    of_actor, of_critic = (sum(2.0 * rows * columns for rows, columns in kernels) for kernels in (actor, critic))
    return NetworkFlops(of_actor, of_critic, 3 * (of_actor + of_critic) - first)
